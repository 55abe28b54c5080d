//! Whether what a word shows, some times, is what a counter of work shows.

/// By how much each step may differ for the same CPU time, as a standard deviation over their mean: programs change.
const MOST_SPREAD: f64 = 0.4;
/// What is as steady as that beside the wall's clock is a clock itself, which traps feed.
const CLOCK: f64 = 0.004;
/// Fewer counts in all tell nothing.
const LEAST: f64 = 64.0;
/// CPU time in which what a word counts is compared: a window's, nanoseconds.
const WINDOW_NS: f64 = 5e6;
/// What differs by no more in every step is the same counter, seen twice.
const SAME: f64 = 0.03;

/// Time between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Between {
    /// By the wall's clock, nanoseconds.
    pub(super) wall_ns: f64,
    /// CPU time of the process, nanoseconds.
    pub(super) cpu_ns: f64,
}

/// What a word has shown.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    /// Its address.
    pub(super) at: u64,
    /// What it showed last.
    pub(super) last: u32,
    /// By how much it was more each time.
    pub(super) steps: Vec<u32>,
}

impl Series {
    /// How much would be left open by it in windows, as a relative variance; `None`: it counts no work.
    fn open(&self, between: &[Between]) -> Option<f64> {
        let all: f64 = self.steps.iter().map(|of| f64::from(*of)).sum();
        let spread = |of: fn(&Between) -> f64| {
            let rate = all / between.iter().map(of).sum::<f64>();
            let off = self
                .steps
                .iter()
                .zip(between)
                .map(|(step, time)| (f64::from(*step) / (rate * of(time)) - 1.0).powi(2));
            (off.sum::<f64>() / between.len() as f64).sqrt()
        };
        let (by_wall, by_cpu) = (spread(|of| of.wall_ns), spread(|of| of.cpu_ns));
        let cpu_ns: f64 = between.iter().map(|of| of.cpu_ns).sum();
        let in_window = all / cpu_ns * WINDOW_NS;
        let counts = all >= LEAST && by_cpu <= MOST_SPREAD && by_wall > CLOCK;
        counts.then(|| by_cpu * by_cpu + 1.0 / in_window)
    }

    /// Whether it is another's in every step.
    fn is_like(&self, other: &Series) -> bool {
        let sum = |of: &Series| of.steps.iter().map(|step| f64::from(*step)).sum::<f64>();
        let ratio = sum(self) / sum(other);
        self.steps.iter().zip(&other.steps).all(|(a, b)| {
            let (a, b) = (f64::from(*a), ratio * f64::from(*b));
            // Two looks at what counts now and then are one apart.
            (a - b).abs() <= SAME * b + 1.0 + ratio
        })
    }
}

/// Addresses of those that count work, the best first, and no two that count the same: so many at most with those that are known before.
pub(super) fn counters(
    series: Vec<Series>,
    between: &[Between],
    known: &[u64],
    most: usize,
) -> Vec<u64> {
    let (mut chosen, others): (Vec<Series>, Vec<Series>) =
        series.into_iter().partition(|of| known.contains(&of.at));
    let mut rated: Vec<(f64, Series)> =
        others.into_iter().filter_map(|of| Some((of.open(between)?, of))).collect();
    rated.sort_by(|(a, of_a), (b, of_b)| a.total_cmp(b).then(of_a.at.cmp(&of_b.at)));
    let mut found = Vec::new();
    for (_, of) in rated {
        let is_room = known.len() + found.len() < most;
        if is_room && !chosen.iter().any(|other| of.is_like(other)) {
            found.push(of.at);
            chosen.push(of);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight looks of a program that has the processor for a part of the time.
    fn between() -> Vec<Between> {
        let share = |at: usize| 0.5 + 0.05 * (at % 4) as f64;
        (0..8).map(|at| Between { wall_ns: 60e6 / share(at), cpu_ns: 60e6 }).collect()
    }

    fn series(at: u64, step: impl Fn(usize) -> f64) -> Series {
        Series { at, last: 0, steps: (0..8).map(|of| step(of) as u32).collect() }
    }

    #[test]
    fn what_goes_with_work_counts() {
        let between = between();
        let wall = |of: usize| between[of].wall_ns;
        let all = vec![
            series(1, |of| 60.0 + (of % 3) as f64),
            series(2, |of| 60_000.0 + 9_000.0 * (of % 2) as f64),
            // The same again, and twice that.
            series(3, |of| 60_001.0 + 9_000.0 * (of % 2) as f64),
            series(4, |of| 120_000.0 + 18_000.0 * (of % 2) as f64),
            // Milliseconds, and nanoseconds.
            series(5, |of| wall(of) / 1e3),
            series(6, wall),
            // Anything.
            series(7, |of| [3.0, 9e6, 1.0, 5e3, 2e7, 7.0, 1e4, 2.0][of]),
            // Hardly ever.
            series(8, |_| 1.0),
        ];
        // Of those that are alike the fastest, which shows most in a window.
        assert_eq!(counters(all.clone(), &between, &[], 6), [4, 1]);
        assert_eq!(counters(all.clone(), &between, &[], 1), [4]);
        assert_eq!(counters(all.clone(), &between, &[3], 6), [1]);
        assert!(counters(all, &between, &[9, 10], 2).is_empty());
        assert!(counters(Vec::new(), &between, &[], 6).is_empty());
    }
}
