//! Time to attach: from the start of the daemon to its `ready` line.

use super::Setup;
use anyhow::{Context, Result};
use sampler_tests::spread::Spread;
use std::time::Instant;

/// Times in milliseconds, over the rounds.
pub(crate) struct Attach {
    /// Time to attach to one process.
    pub(crate) one_ms: Spread,
    /// Time to attach to all processes, each given.
    pub(crate) given_ms: Spread,
    /// Time to attach to the whole machine.
    pub(crate) all_ms: Spread,
    /// Time for each further process given.
    pub(crate) more_ms: Spread,
}

/// Starts daemons, one at a time.
///
/// # Errors
/// If a daemon does not start or does not end well.
pub(crate) fn measure(pids: &[u32], rounds: u32) -> Result<Attach> {
    let mut order = [Setup::One, Setup::Given, Setup::All];
    let mut times: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds {
        fastrand::shuffle(&mut order);
        for setup in order {
            let start = Instant::now();
            let daemon = setup.start(pids)?.context("every setup here has a daemon")?;
            let index = [Setup::One, Setup::Given, Setup::All].iter().position(|of| *of == setup);
            times[index.context("a setup of these")?].push(start.elapsed().as_secs_f64() * 1e3);
            daemon.stop()?;
        }
    }
    let [one, given, all] = times;
    let further = (pids.len() - 1) as f64;
    let more = given.iter().zip(&one).map(|(given, one)| (given - one) / further);
    Ok(Attach {
        more_ms: Spread::of(more),
        one_ms: Spread::of(one),
        given_ms: Spread::of(given),
        all_ms: Spread::of(all),
    })
}
