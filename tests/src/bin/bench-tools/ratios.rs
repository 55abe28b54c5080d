//! Figures of a tool, always relative to runs of the same repetition.

use crate::repetitions::Row;
use crate::run::Run;
use crate::tool::Tool;
use sampler_tests::spread::Spread;

/// Figures of a tool on a workload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figures {
    /// CPU time of a round divided by that of the baseline, in each repetition.
    pub(crate) slowdowns: Vec<f64>,
    /// Elapsed time of a round divided by that of the baseline, in each repetition.
    pub(crate) wall: Vec<f64>,
    /// CPU time of the profiler's own processes divided by that of the program alone for the same
    /// work.
    pub(crate) tool: Vec<f64>,
    /// Samples for each second of CPU time of the program alone. samplerd only.
    pub(crate) samples_per_second: f64,
    /// Share of the samples whose record found no room.
    pub(crate) lost: f64,
}

impl Figures {
    /// Spread of the slowdowns.
    pub(crate) fn slowdown(&self) -> Spread {
        Spread::of(self.slowdowns.iter().copied())
    }
}

/// Figures of `tool`; `None` if no repetition has both `tool` and its baseline.
pub(crate) fn figures(row: &Row, tool: Tool) -> Option<Figures> {
    let pairs = pairs(row.runs(tool), row.runs(tool.baseline()));
    if pairs.is_empty() {
        return None;
    }
    let each = |ratio: fn(&Run, &Run) -> f64| {
        pairs.iter().map(|(with, without)| ratio(with, without)).collect::<Vec<f64>>()
    };
    let taken: f64 = pairs.iter().map(|(with, _)| with.samples.taken).sum();
    let lost: f64 = pairs.iter().map(|(with, _)| with.samples.lost).sum();
    let alone = |(with, without): &(Run, Run)| without.cpu_s() * f64::from(with.cost.rounds);
    Some(Figures {
        slowdowns: each(|with, without| with.cpu_s() / without.cpu_s()),
        wall: each(|with, without| with.wall_s() / without.wall_s()),
        tool: each(|with, without| with.tool_s / f64::from(with.cost.rounds) / without.cpu_s()),
        samples_per_second: taken / pairs.iter().map(alone).sum::<f64>(),
        lost: lost / taken.max(1.0),
    })
}

fn pairs(with: &[Option<Run>], without: &[Option<Run>]) -> Vec<(Run, Run)> {
    with.iter().zip(without).filter_map(|(with, without)| Some(((*with)?, (*without)?))).collect()
}

/// Time that `above` adds divided by the time that `below` adds, in each repetition with both and
/// their common baseline.
pub(crate) fn added(row: &Row, above: Tool, below: Tool) -> Option<Spread> {
    let without = row.runs(Tool::None);
    let all = row.runs(above).iter().zip(row.runs(below)).zip(without);
    let ratios: Vec<f64> = all
        .filter_map(|((above, below), without)| {
            let without = (*without)?.cpu_s();
            let (above, below) = ((*above)?.cpu_s() - without, (*below)?.cpu_s() - without);
            (below > 0.0).then_some(above / below)
        })
        .collect();
    (!ratios.is_empty()).then(|| Spread::of(ratios))
}

/// Microseconds that each sample of `tool` costs, in each repetition. The numerator is the added
/// time of `tool` less `share` times the added time of `below`. `None` if nothing is sampled.
pub(crate) fn microseconds_per_sample(
    row: &Row,
    tool: Tool,
    below: Tool,
    share: f64,
) -> Option<Spread> {
    let without = row.runs(Tool::None);
    let all = row.runs(tool).iter().zip(row.runs(below)).zip(without);
    let each: Vec<f64> = all
        .filter_map(|((with, below), without)| {
            let (with, below, without) = ((*with)?, (*below)?.cpu_s(), (*without)?.cpu_s());
            let bound = without + share * (below - without);
            let rest = (with.cpu_s() - bound) * f64::from(with.cost.rounds);
            (with.samples.taken > 0.0).then_some(1e6 * rest / with.samples.taken)
        })
        .collect();
    (!each.is_empty()).then(|| Spread::of(each))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attached::Samples;
    use crate::program::Cost;
    use crate::repetitions::Cell;
    use crate::tool::Ours;
    use crate::workload::Workload;

    const OURS: Tool = Tool::Ours(Ours::Default);

    /// A run of `rounds` that take `round_s` each.
    fn run(rounds: u32, round_s: f64, taken: f64) -> Option<Run> {
        let all = f64::from(rounds) * round_s;
        Some(Run {
            cost: Cost { cpu_s: all, wall_s: 2.0 * all, rounds },
            tool_s: 0.1 * all,
            samples: Samples { taken, lost: taken / 4.0 },
        })
    }

    fn row(cells: &[(Tool, Vec<Option<Run>>)]) -> Row {
        let cell = |(tool, runs): &(Tool, Vec<Option<Run>>)| Cell {
            tool: *tool,
            runs: runs.clone(),
            problem: None,
        };
        Row { workload: Workload::Pairs, cells: cells.iter().map(cell).collect() }
    }

    #[test]
    fn rounds_of_one_repetition_are_compared() {
        let row = row(&[
            (Tool::None, vec![run(10, 0.1, 0.0), run(20, 0.2, 0.0)]),
            (OURS, vec![run(5, 0.3, 40.0), run(5, 0.4, 40.0)]),
        ]);
        let figures = figures(&row, OURS).unwrap();
        let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(near(&figures.slowdowns, &[3.0, 2.0]), "{figures:?}");
        assert!(near(&figures.wall, &[3.0, 2.0]));
        assert!(near(&figures.tool, &[0.3, 0.2]));
        // 80 samples in the work of 5 · 0.1 + 5 · 0.2 s.
        assert!(near(&[figures.samples_per_second, figures.lost], &[80.0 / 1.5, 0.25]));
    }

    #[test]
    fn a_profiler_is_compared_with_its_own_allocator() {
        let row = row(&[
            (Tool::None, vec![run(1, 1.0, 0.0)]),
            (Tool::Jemalloc, vec![run(1, 0.5, 0.0)]),
            (Tool::JemallocSampling, vec![run(1, 0.6, 0.0)]),
        ]);
        let slowdown = figures(&row, Tool::JemallocSampling).unwrap().slowdown().median;
        assert!((slowdown - 1.2).abs() < 1e-12);
    }

    #[test]
    fn a_failed_run_excludes_its_repetition() {
        let row = row(&[
            (Tool::None, vec![run(1, 1.0, 0.0), None, run(1, 1.0, 0.0)]),
            (OURS, vec![None, run(1, 9.0, 0.0), run(1, 2.0, 0.0)]),
        ]);
        assert_eq!(figures(&row, OURS).unwrap().slowdowns, [2.0]);
        assert_eq!(figures(&row, Tool::Memleak), None);
    }

    #[test]
    fn added_time_is_over_the_program_alone() {
        let row = row(&[
            (Tool::None, vec![run(1, 1.0, 0.0), run(1, 1.0, 0.0)]),
            (Tool::Empty, vec![run(1, 1.5, 0.0), run(1, 1.0, 0.0)]),
            (OURS, vec![run(10, 1.6, 100.0), None]),
            (Tool::Memleak, vec![run(1, 7.0, 0.0), run(1, 7.0, 0.0)]),
        ]);
        let ratio = added(&row, Tool::Memleak, OURS).unwrap();
        assert!((ratio.median - 10.0).abs() < 1e-9 && ratio.n == 1);
        // A repetition in which nothing is added has no ratio.
        assert_eq!(added(&row, Tool::Memleak, Tool::Empty).unwrap().n, 1);
        // 10 rounds of 0.6 s less 1.1 · 0.5 s, divided by 100 samples.
        let each = microseconds_per_sample(&row, OURS, Tool::Empty, 1.1).unwrap();
        assert!((each.median - 5000.0).abs() < 1e-6 && each.n == 1, "{each:?}");
        assert_eq!(microseconds_per_sample(&row, Tool::Memleak, Tool::Empty, 1.1), None);
    }
}
