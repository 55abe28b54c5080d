//! Rounds: every setup of every case once, in random order, again and again.
//!
//! Drift of the machine (its clock, its neighbours) then affects all setups alike.
//! Ratios are taken within a round.

use super::attach::Bench;
use super::cases::{Case, Setup};
use anyhow::{Context, Result};
use sampler_tests::progress::Progress;
use sampler_tests::spread::Spread;

/// Nanoseconds per call of a case, by setup and round.
pub(crate) struct Measured {
    /// The case.
    pub(crate) case: Case,
    /// The times of each setup by round, in the order of the case's setups.
    times: Vec<Vec<f64>>,
}

/// Blocks whose median is one measurement.
const BLOCKS: u32 = 15;

/// Measures `cases`.
///
/// # Errors
/// If the target or the kernel refuses something.
pub(crate) fn run(bench: &mut Bench, cases: &[Case], rounds: u32) -> Result<Vec<Measured>> {
    let nothing =
        |case: &Case| Measured { case: *case, times: vec![Vec::new(); case.setups.len()] };
    let mut measured: Vec<Measured> = cases.iter().map(nothing).collect();
    let setups = |index: usize| (0..cases[index].setups.len()).map(move |setup| (index, setup));
    let mut order: Vec<(usize, usize)> = (0..cases.len()).flat_map(setups).collect();
    let progress = Progress::of("rounds", rounds as usize);
    for _ in 0..rounds {
        fastrand::shuffle(&mut order);
        for &(index, number) in &order {
            let (case, setup) = (&cases[index], cases[index].setups[number]);
            let links = bench.attach(setup).with_context(|| format!("attach {}", setup.name()))?;
            let time = bench.target.time(case.block, BLOCKS, setup.calls())?;
            drop(links);
            measured[index].times[number].push(time);
        }
        progress.done();
    }
    Ok(measured)
}

impl Measured {
    /// Times with a setup, one for each round.
    pub(crate) fn times(&self, setup: Setup) -> &[f64] {
        let number = self.case.setups.iter().position(|other| *other == setup);
        number.map_or(&[], |number| &self.times[number])
    }

    /// Cost of a setup's probes per call: the time with them less the time without, by round.
    pub(crate) fn costs(&self, setup: Setup) -> Vec<f64> {
        let without = self.times(Setup::Nothing);
        self.times(setup).iter().zip(without).map(|(with, without)| with - without).collect()
    }

    /// Ratio of the costs of two setups, round by round. Goals bound this ratio.
    pub(crate) fn cost_ratio(&self, above: Setup, below: Setup) -> Spread {
        ratio(&self.costs(above), &self.costs(below))
    }

    /// Ratio of the whole times of two setups, round by round.
    pub(crate) fn time_ratio(&self, above: Setup, below: Setup) -> Spread {
        ratio(self.times(above), self.times(below))
    }
}

fn ratio(above: &[f64], below: &[f64]) -> Spread {
    Spread::of(above.iter().zip(below).map(|(above, below)| above / below))
}
