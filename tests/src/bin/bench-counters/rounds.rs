//! Measures in rounds. Each round runs every case once, in random order.

use crate::cases::{Case, Kind, Run};
use sampler_tests::spread::Spread;

/// A case with its runs, one for each round.
pub(crate) struct Measured {
    /// The case.
    pub(crate) case: Case,
    /// Runs of the case.
    pub(crate) runs: Vec<Run>,
}

/// Runs `cases` for `rounds` rounds.
pub(crate) fn run(cases: &[Case], rounds: u32, seed: u64, cpus: usize) -> Vec<Measured> {
    let mut measured: Vec<Measured> =
        cases.iter().map(|case| Measured { case: *case, runs: Vec::new() }).collect();
    let mut order: Vec<usize> = (0..cases.len()).collect();
    let mut shuffle = fastrand::Rng::with_seed(seed);
    for round in 0..rounds {
        shuffle.shuffle(&mut order);
        for &index in &order {
            let run = cases[index].run(seed << 16 | u64::from(round), cpus);
            measured[index].runs.push(run);
        }
    }
    measured
}

impl Measured {
    /// Nanoseconds of an event.
    pub(crate) fn time(&self) -> Spread {
        Spread::of(self.runs.iter().map(|run| run.time_ns))
    }

    /// 5th percentile, mean and 95th percentile of the counted values, divided by the number of
    /// events.
    pub(crate) fn share(&self) -> [f64; 3] {
        crate::accuracy::band(self.runs.iter().map(|run| run.share))
    }

    /// Ratio of the times to those of `other`, round by round.
    pub(crate) fn ratio(&self, other: &Measured) -> Spread {
        Spread::of(
            self.runs.iter().zip(&other.runs).map(|(own, other)| own.time_ns / other.time_ns),
        )
    }
}

/// Number of runs whose threads all worked at the same time, and number of runs with at most as
/// many threads as CPUs.
pub(crate) fn parallel(all: &[Measured], cpus: usize) -> (usize, usize) {
    let runs = || all.iter().filter(|of| of.case.threads <= cpus).flat_map(|of| &of.runs);
    (runs().filter(|run| run.is_parallel()).count(), runs().count())
}

/// The case with this kind, number of threads and number of events.
pub(crate) fn find(all: &[Measured], kind: Kind, threads: usize, each: u64) -> Option<&Measured> {
    all.iter().find(|measured| measured.case == Case { kind, threads, each })
}
