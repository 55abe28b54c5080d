//! A trial: a probed process compared with an unprobed one.

use crate::own::{Own, block, cost, is_quiet, number, range};
use anyhow::Result;
use sampler_tests::{Daemon, Workload, again, wait};
use serde_json::Value;

/// How often a block runs with and without probes.
const ROUNDS: usize = 5;
/// How often a new daemon calibrates if its prices do not match the measurement. The host may have
/// become slower or faster in between. A cost that is missing, or charged twice, never matches.
pub(crate) const TRIES: usize = 5;
/// Largest factor between prediction and measurement. The calibration ran at another time, and a
/// neighbour on the same core makes everything more expensive. A missing role, or a wrong unit,
/// causes a larger factor.
pub(crate) const EMULATED: f64 = 1.8;
/// Largest factor for programs that do other things between hits.
pub(crate) const REAL: f64 = 2.5;
/// Largest factor for single-stepped hits. Single-stepping leaves the virtual machine, so other
/// work of the host matters even more.
pub(crate) const STEPPED: f64 = 3.0;

/// Calls that run in a probed process and in an unprobed one, by turns. The predicted cost must be
/// within a factor of the slowdown.
pub(crate) struct Trial<'a> {
    pub(crate) case: &'a str,
    pub(crate) count: u64,
    pub(crate) factor: f64,
    pub(crate) arguments: &'a [&'a str],
}

impl Trial<'_> {
    /// Runs the trial in these processes until a daemon's prices match. Returns the status of that
    /// daemon.
    pub(crate) fn holds(&self, plain: &mut Workload, probed: &mut Workload) -> Result<Value> {
        let what = format!("{} {:?}", self.case, self.arguments);
        again::until(&what, TRIES, || self.attempt(plain, probed))
    }

    /// Runs the trial with a daemon that has just calibrated. Returns the daemon's status, or by
    /// what factor its price is off.
    pub(crate) fn attempt(
        &self,
        plain: &mut Workload,
        probed: &mut Workload,
    ) -> Result<Result<Value, String>> {
        // This process starts before the daemon: a daemon that shares links reads the files of new
        // processes.
        let mut quiet = Own::start()?;
        let daemon = Daemon::start(&[probed.pid()], self.arguments)?;
        let (mut slower, mut spent, mut rounds) = (0.0, 0.0, 0);
        // Another daemon on the machine that profiles all processes slows down the unprobed
        // process, too. Such a round does not count.
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

    /// Runs a block in each process. Returns the extra time of the probed one, and the cost that
    /// samplerd charges to its probes.
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

/// Checks the trial with two processes of the program that calls in a loop.
pub(crate) fn agrees(case: &str, count: u64, arguments: &[&str]) -> Result<()> {
    let (mut plain, mut probed) = (Own::start()?, Own::start()?);
    let trial = Trial { case, count, factor: EMULATED, arguments };
    trial.holds(&mut plain.workload, &mut probed.workload).map(drop)
}
