//! What was in windows, taken to all that the program has done: by its clock, or by what counts its work ([`super::Tally`]).

use super::groups::{Group, Groups, TALLIES, TRAFFIC};
use super::tally::{MET, SERVED};
use super::{Bend, Drag, Look};
use crate::estimate::{Cluster, Clusters, Correction};

/// So much of a round of the program, as a standard error, windows may as a mean begin nearer to its beginning than they end, if attaching takes as long as a round or longer: what waits between two rounds waits as well for the processor that samplerd
/// has. (0.08 to 0.22 ± 0.04 in six runs of pairs of malloc and free in rounds of 0.9 ms, on two processors.)
const BEGUN: f64 = 0.15;
/// As long as it takes to put probes in.
const ATTACHING_NS: f64 = 0.8e6;

/// All of a process's progress, at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// As many times that of its strata.
    pub factor: f64,
    /// Ticks that belong to the last stratum and are in none.
    pub tail: f64,
    /// What its clock shows.
    pub clock: f64,
    /// What its tallies show by now, where that can be seen.
    pub looks: [Option<Look>; TALLIES],
}

impl Progress {
    /// No more than its strata.
    pub fn of_strata() -> Progress {
        Progress { factor: 1.0, tail: 0.0, clock: 0.0, looks: [None; TALLIES] }
    }
}

/// By what groups stand for all.
pub(super) enum Taken {
    /// Their strata, of which all progress is so many times; ticks that belong to the last beside.
    Clock { factor: f64, tail: f64 },
    /// Tallies: the mean of what each of them says. All progress is so many ticks.
    Tallies { each: Vec<Tallied>, ticks: f64 },
}

/// What a tally has counted.
pub(super) struct Tallied {
    /// Its number.
    at: usize,
    /// All of it.
    counted: f64,
    /// Relative standard error of that.
    error: f64,
}

impl Tallied {
    /// `None` where nothing is known of windows.
    fn of(groups: &Groups, at: usize, all: &Progress) -> Option<Tallied> {
        let (counted, error) = groups.tallies()[at].all(all.looks[at], all.clock)?;
        let is_known = groups.iter().any(|group| group.flows[at].length > 0.0);
        is_known.then_some(Tallied { at, counted, error })
    }

    /// What it has counted for each tick of their strata in windows of which that is known, each by its share of its stratum.
    fn in_tick(&self, groups: &[Group], ns: [f64; 2]) -> f64 {
        let flows = groups.iter().map(|group| &group.flows[self.at]);
        let (known, length) = flows.fold((0.0, 0.0), |(known, length), flow| {
            (known + flow.inside.value(ns), length + flow.length)
        });
        known / length
    }

    /// The same of each group in all of its strata. In those of which that is not known it is as much for a tick as in the others: were it nothing,
    /// groups of such windows would look like some in which it had counted less.
    fn inside(&self, groups: &[Group], ns: [f64; 2]) -> Vec<f64> {
        let in_tick = self.in_tick(groups, ns);
        let inside = |group: &Group| {
            let flow = &group.flows[self.at];
            flow.inside.value(ns) + (group.strata - flow.length) * in_tick
        };
        groups.iter().map(inside).collect()
    }

    /// What the sums of windows are to be multiplied by.
    fn factor(&self, groups: &[Group], ns: [f64; 2]) -> f64 {
        let strata: f64 = groups.iter().map(|group| group.strata).sum();
        self.counted / (self.in_tick(groups, ns) * strata)
    }
}

impl Taken {
    pub(super) fn by_clock(all: &Progress) -> Taken {
        Taken::Clock { factor: all.factor, tail: all.tail }
    }

    /// By what these tallies have counted, the best first; `None` where that is nothing.
    pub(super) fn by_tallies(groups: &Groups, tallies: &[usize], all: &Progress) -> Option<Taken> {
        let each: Vec<Tallied> =
            tallies.iter().filter_map(|at| Tallied::of(groups, *at, all)).collect();
        let ticks = all.factor * (groups.length() + all.tail);
        (!each.is_empty()).then_some(Taken::Tallies { each, ticks })
    }

    /// What the sums of each group are to be multiplied by where traps add so much, but for its own [`Bend`].
    fn factor(&self, groups: &[Group], ns: [f64; 2]) -> f64 {
        match self {
            Taken::Clock { factor, .. } => *factor,
            Taken::Tallies { each, .. } => mean(each.iter().map(|of| of.factor(groups, ns))),
        }
    }

    /// What of all progress each group stands for, ticks.
    fn lengths(&self, groups: &Groups, ns: [f64; 2]) -> Vec<f64> {
        match self {
            Taken::Clock { factor, tail } => {
                let mut lengths: Vec<f64> = groups.iter().map(|of| of.length).collect();
                if let Some(last) = lengths.last_mut() {
                    *last = (*last + tail).max(0.0);
                }
                lengths.into_iter().map(|of| of * factor).collect()
            }
            Taken::Tallies { each, ticks } => {
                // So that what groups differ from their lengths in is what the mean of all estimates is off by.
                let all: Vec<f64> = each.iter().map(|of| of.factor(groups.all(), ns)).collect();
                let sum: f64 = all.iter().sum();
                let mut lengths = vec![0.0; groups.iter().len()];
                for (of, factor) in each.iter().zip(&all) {
                    // Its factor is all that it has counted, by what it has counted inside.
                    let weight = ticks * factor / sum * factor / of.counted;
                    let parts = of.inside(groups.all(), ns).into_iter().map(|part| weight * part);
                    lengths.iter_mut().zip(parts).for_each(|(to, part)| *to += part);
                }
                lengths
            }
        }
    }

    /// The groups as clusters, and by what bytes and objects of each were multiplied.
    pub(super) fn made(&self, groups: &Groups, drag: &Drag) -> (Clusters, Vec<[f64; 2]>) {
        let of_all = self.factor(groups.all(), drag.ns);
        let of_drag = |bend: Bend| of_all * bend.factor(drag.ns);
        let factors: Vec<[f64; 2]> = groups.iter().map(|of| of.bend.map(of_drag)).collect();
        let seen: Vec<[f64; 2]> = groups.iter().map(sums).collect();
        let totals = seen.iter().zip(&factors).map(|(seen, by)| [seen[0] * by[0], seen[1] * by[1]]);
        let lengths = self.lengths(groups, drag.ns);
        let clusters: Vec<Cluster> = lengths
            .into_iter()
            .zip(totals)
            .map(|(length, total)| Cluster { length, total })
            .collect();
        let few = groups.judged();
        let seen: Vec<[f64; 2]> = few.iter().map(sums).collect();
        let [of_bytes, of_objects] = [0, 1].map(|of| {
            drag.errors_of(|ns| {
                let each = few.iter().zip(&seen);
                let one = |(group, seen): (&Group, &[f64; 2])| seen[of] * group.bend[of].factor(ns);
                self.factor(&few, ns) * each.map(one).sum::<f64>()
            })
        });
        let errors = [0, 1].map(|side| of_bytes[side].max(of_objects[side]));
        let windows = groups.windows();
        let mut made = Clusters { groups: clusters, windows, errors, correction: None };
        let (mut traffic_bytes, mut tallied, mut tallies) = (0.0, 0.0, Vec::new());
        if let Taken::Tallies { each, .. } = self {
            tallies = each.iter().map(|of| of.at).collect();
            let told: Vec<f64> = tallies.iter().map(|at| met(groups, *at).1).collect();
            match tallies[0] {
                TRAFFIC => traffic_bytes = told[0],
                _ => tallied = told[0],
            }
            let of_all = each.iter().map(|of| of.error).fold(0.0, f64::max);
            let unlike = unlike(groups, &tallies, made.of_phases());
            let tick_ns = groups.tick_ns(drag.ns);
            let begun = mean(tallies.iter().map(|at| begun(groups, *at, tick_ns)));
            let others = SERVED.hypot(MET * unlike.sqrt()).hypot(of_all).hypot(begun);
            made.errors = errors.map(|error| error.hypot(others));
        }
        let ([allocating_ns, freeing_ns], of_ns) = (drag.ns, drag.errors());
        made.correction = Some(Correction {
            allocating_ns,
            allocating_error_ns: of_ns[0],
            freeing_ns,
            freeing_error_ns: of_ns[1],
            of_drag: made.errors[1],
            of_drag_below: made.errors[0],
            of_clock: 0.0,
            marks: groups.marks().map(|marks| marks.calls()).sum::<f64>() as u64,
            traffic_bytes: traffic_bytes as u64,
            tallied: tallied as u64,
            tally: tallies.first().map_or(TRAFFIC, |at| *at) as u32,
            tallies: if tallied > 0.0 { tallies.len() as u32 } else { 0 },
        });
        (made, factors)
    }
}

/// Windows in which it is known what a tally has counted, and how much that was.
fn met(groups: &Groups, at: usize) -> (f64, f64) {
    let flows = groups.iter().map(|of| &of.flows[at]);
    flows.fold((0.0, 0.0), |(known, counted), of| {
        (known + f64::from(of.windows), counted + of.counted)
    })
}

/// What windows differ in by these tallies, as a relative variance of one, if it is so much of the mean of all, however slowly it changes. That slow counters are met now and then is chance,
/// and not what phases do, but for what chance may hide.
fn unlike(groups: &Groups, tallies: &[usize], of_phases: f64) -> f64 {
    let n = tallies.len() as f64;
    let (mut chance, mut all) = (0.0, 0.0);
    for at in tallies {
        let (known, counted) = met(groups, *at);
        // Of a mean of n, each by itself.
        chance += known / counted.max(1.0) / (n * n);
        all += counted;
    }
    let seen = of_phases * f64::from(groups.windows());
    (seen - chance).max(0.0) + (2.0 / all.max(1.0)).min(1.0)
}

/// What it makes, relatively, that windows begin behind a count more often than before one, where counts are slow, and windows do not begin and end [where it counts](super::Steps): a tick is
/// so much of the program's own time.
fn begun(groups: &Groups, at: usize, tick_ns: f64) -> f64 {
    let (_, counted) = met(groups, at);
    let loose: u32 = groups.iter().map(|of| of.flows[at].loose).sum();
    let tally = &groups.tallies()[at];
    let step = tally.step();
    let round_ns = tally.rate().map_or(0.0, |rate| step / rate * tick_ns);
    let stalls = if round_ns > ATTACHING_NS { ATTACHING_NS / round_ns } else { 1.0 };
    BEGUN * stalls * f64::from(loose) * step / counted.max(1.0)
}

fn mean(of: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = of.len() as f64;
    of.sum::<f64>() / n
}

fn sums(group: &Group) -> [f64; 2] {
    [&group.bytes, &group.objects].map(|of| of.iter().sum())
}
