//! Cost of a malloc and a free under probes, with one and with many processes attached.
//! Also the cost for a process that does not allocate.

use super::Setup;
use anyhow::{Context, Result, ensure};
use sampler_tests::build;
use sampler_tests::child::Child;
use sampler_tests::spread::Spread;
use std::process::Command;

/// All setups.
pub(crate) const SETUPS: [Setup; 4] = [Setup::Nothing, Setup::One, Setup::Given, Setup::All];
/// Blocks whose median is one measurement, and calls in each block.
const BLOCKS: u32 = 15;
const CALLS: u32 = 20_000;

/// Nanoseconds of CPU time for each call, by setup and round.
pub(crate) struct Hits {
    /// malloc and free, the same address again.
    pub(crate) pairs: [Vec<f64>; SETUPS.len()],
    /// Sixteen rounds of arithmetic.
    pub(crate) compute: [Vec<f64>; SETUPS.len()],
}

/// Measures in a process of its own, while the idle processes run.
///
/// # Errors
/// If the process or a daemon does not start.
pub(crate) fn measure(idle: &[u32], rounds: u32) -> Result<Hits> {
    let program = build::compile_bench("loop.c")?;
    let last = std::thread::available_parallelism().context("count the processors")?.get() - 1;
    let mut target = Child::start("the target", Command::new(program).arg(last.to_string()))?;
    ensure!(target.line()? == "ready", "the target does not start");
    let pids = [&[target.pid()], idle].concat();
    let mut hits = Hits { pairs: Default::default(), compute: Default::default() };
    let mut order = [0, 1, 2, 3];
    for _ in 0..rounds {
        fastrand::shuffle(&mut order);
        for index in order {
            let daemon = SETUPS[index].start(&pids)?;
            hits.pairs[index].push(time(&mut target, "pairs")?);
            hits.compute[index].push(time(&mut target, "compute")?);
            if let Some(daemon) = daemon {
                daemon.stop()?;
            }
        }
    }
    Ok(hits)
}

fn time(target: &mut Child, what: &str) -> Result<f64> {
    target.send(&format!("{what} {BLOCKS} {CALLS}"))?;
    let line = target.line()?;
    let times: Result<Vec<f64>, _> = line.split(' ').map(str::parse).collect();
    let times = times.with_context(|| format!("the target says {line:?}"))?;
    Ok(Spread::of(times).median / f64::from(CALLS))
}

impl Hits {
    /// Costs of a pair with a setup: the time with the setup less the time without a daemon, by
    /// round.
    pub(crate) fn costs(&self, setup: usize) -> Vec<f64> {
        self.pairs[setup].iter().zip(&self.pairs[0]).map(|(with, without)| with - without).collect()
    }

    /// Cost of a pair with a setup divided by that with one process attached.
    pub(crate) fn cost_ratio(&self, setup: usize) -> Spread {
        ratio(&self.costs(setup), &self.costs(1))
    }

    /// Time of a process that allocates nothing, divided by that without a daemon.
    pub(crate) fn compute_ratio(&self, setup: usize) -> Spread {
        ratio(&self.compute[setup], &self.compute[0])
    }
}

fn ratio(above: &[f64], below: &[f64]) -> Spread {
    Spread::of(above.iter().zip(below).map(|(above, below)| above / below))
}
