//! A process that is probed beside one that is not.

use crate::own::{Own, block, cost, is_quiet, number, range};
use anyhow::Result;
use sampler_tests::{Daemon, Workload, again, wait};
use serde_json::Value;

/// How often a block is run with and without probes.
const ROUNDS: usize = 5;
/// How often a daemon calibrates itself anew where its prices do not fit what is measured then: the host may have become slower or
/// faster in between. What was forgotten, or is charged twice, never fits.
pub(crate) const TRIES: usize = 5;
/// By what factor prediction and measurement may differ. The calibration ran at another time, and a neighbour on the same core
/// makes everything dearer; a role that was forgotten, or a unit mistaken, is further off.
pub(crate) const EMULATED: f64 = 1.8;
/// The same of programs that do other things between hits.
pub(crate) const REAL: f64 = 2.5;
/// Single-stepping leaves the virtual machine, and then it matters even more what else its host does.
pub(crate) const STEPPED: f64 = 3.0;

/// What is run in a process that is probed and in one that is not, by turns: the predicted cost is within a factor of the slowdown.
pub(crate) struct Trial<'a> {
    pub(crate) case: &'a str,
    pub(crate) count: u64,
    pub(crate) factor: f64,
    pub(crate) arguments: &'a [&'a str],
}

impl Trial<'_> {
    /// Runs it in these two until a daemon's prices fit; the status of that one.
    pub(crate) fn holds(&self, plain: &mut Workload, probed: &mut Workload) -> Result<Value> {
        let what = format!("{} {:?}", self.case, self.arguments);
        again::until(&what, TRIES, || self.attempt(plain, probed))
    }

    /// With a daemon that has just calibrated itself: its status, or by what factor it is off.
    pub(crate) fn attempt(
        &self,
        plain: &mut Workload,
        probed: &mut Workload,
    ) -> Result<Result<Value, String>> {
        // Before the daemon: one that shares links looks into the files of those who come.
        let mut quiet = Own::start()?;
        let daemon = Daemon::start(&[probed.pid()], self.arguments)?;
        let (mut slower, mut spent, mut rounds) = (0.0, 0.0, 0);
        // A daemon elsewhere on the machine that profiles everybody makes the other process slower, too: such a round does not count.
        wait::until("rounds in which nobody else probes", || {
            let before = is_quiet(&mut quiet)?;
            let (difference, more) = self.round(&daemon, plain, probed)?;
            if before && is_quiet(&mut quiet)? {
                (slower, spent) = (slower + difference, spent + more);
                rounds += 1;
            }
            Ok((rounds == ROUNDS).then_some(()))
        })?;
        let status = daemon.status()?;
        daemon.stop()?;
        let (ratio, Trial { case, arguments, factor, .. }) = (spent / slower, self);
        println!(
            "{case} {arguments:?}: predicted {:.2} ms, measured {:.2} ms, ratio {ratio:.2}",
            spent / 1e6,
            slower / 1e6
        );
        let fits = ratio < *factor && ratio > 1.0 / factor;
        Ok(if fits { Ok(status) } else { Err(format!("ratio {ratio}")) })
    }

    /// A block in each: how much longer the probed one took, and what its probes are said to have cost.
    fn round(
        &self,
        daemon: &Daemon,
        plain: &mut Workload,
        probed: &mut Workload,
    ) -> Result<(f64, f64)> {
        let Trial { case, count, .. } = *self;
        let before = number(&cost(daemon, probed.pid())?["spent_ns"]["value"], "spent_ns")?;
        let difference = block(probed, case, count)? - block(plain, case, count)?;
        let (after, ..) = range(&cost(daemon, probed.pid())?["spent_ns"], "spent_ns")?;
        Ok((difference, after - before))
    }
}

/// Two processes of the program that calls in a loop; of these a trial holds.
pub(crate) fn agrees(case: &str, count: u64, arguments: &[&str]) -> Result<()> {
    let (mut plain, mut probed) = (Own::start()?, Own::start()?);
    let trial = Trial { case, count, factor: EMULATED, arguments };
    trial.holds(&mut plain.workload, &mut probed.workload).map(drop)
}
