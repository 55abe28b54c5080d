//! A program alone, and the same one under something, by turns.

use crate::attached::Attached;
use crate::layout::Layout;
use crate::program::Program;
use crate::scratch::{Scratch, Variable};
use crate::toolbox::{nobody_probes, ours};
use crate::turns::{self, Turn};
use crate::workload::Workload;
use anyhow::{Context, Result};
use fastrand::Rng;

/// Templates that take the compiler a second.
const TEMPLATES_A_SECOND: f64 = 20.0;
/// CPU seconds before anything counts.
const WARM_UP_S: f64 = 0.3;

/// Both, waiting for work.
pub(crate) struct Pair {
    alone: Program,
    with: Program,
    /// samplerd, or nothing.
    pub(crate) attached: Attached,
}

/// What turns gave.
pub(crate) struct Turned {
    turns: Vec<Turn>,
    /// Rounds of the one that is under something, those included that do not count.
    pub(crate) rounds: u32,
    own_s: f64,
}

/// Templates for a round of the compiler, which ends it, of so many seconds.
pub(crate) fn templates(seconds: f64) -> u32 {
    (seconds * TEMPLATES_A_SECOND) as u32
}

impl Pair {
    /// Starts both, one of them with `environment`, and under samplerd if there are `options` for it, for turns of so many seconds in all.
    ///
    /// # Errors
    /// If one of them does not start.
    pub(crate) fn start(
        workload: Workload,
        seconds: f64,
        layout: Layout,
        environment: &[Variable],
        options: Option<&[&str]>,
        scratch: &Scratch,
    ) -> Result<Pair> {
        let start = |name, environment: &[Variable]| {
            let scratch = scratch.part(name)?;
            Program::start(workload, templates(seconds), layout, environment, &scratch)
        };
        // Equally long, since the paths of sockets are among the arguments: they would move what lies below them on the stack.
        let (alone, with) = (start("alone", &[])?, start("under", environment)?);
        nobody_probes(with.pid())?;
        let attached = match options {
            Some(options) => ours(with.pid(), options).context("attach samplerd")?,
            None => Attached::Nothing,
        };
        Ok(Pair { alone, with, attached })
    }

    /// Process id of the one that is under something.
    pub(crate) fn pid(&self) -> u32 {
        self.with.pid()
    }

    /// Whether a round is all that they do.
    pub(crate) fn is_once(&self) -> bool {
        self.with.is_once()
    }

    /// Turns of both, until the one that is under something has had so many seconds of CPU time.
    ///
    /// # Errors
    /// If one of them fails.
    pub(crate) fn run(&mut self, seconds: f64, random: &mut Rng) -> Result<Turned> {
        let Pair { alone, with, attached } = self;
        // Rounds that only fill caches are rounds that samplerd sees.
        let mut rounds = 0;
        if !with.is_once() {
            turns::block(alone, WARM_UP_S)?;
            rounds = turns::block(with, WARM_UP_S)?.rounds;
        }
        let own_s = attached.cpu_s();
        let turns = match with.is_once() {
            true => turns::stopping(alone, with)?,
            false => turns::of_rounds(alone, with, seconds, random)?,
        };
        let own_s = attached.cpu_s() - own_s;
        rounds += turns::sums(&turns)[1].rounds;
        Ok(Turned { turns, rounds, own_s })
    }
}

impl Turned {
    /// CPU seconds of that one.
    pub(crate) fn cpu_s(&self) -> f64 {
        turns::sums(&self.turns)[1].cpu_s
    }

    /// CPU time of samplerd, by that.
    pub(crate) fn own(&self) -> f64 {
        self.own_s / self.cpu_s()
    }

    /// CPU time of a round by that of a round alone, with its standard error: infinite where a round is all.
    pub(crate) fn slowdown(&self) -> (f64, f64) {
        turns::ratio(&self.turns)
    }
}

/// `×1.008 ± 0.003`: with 95 %.
pub(crate) fn slowdown_text((ratio, error): (f64, f64)) -> String {
    match error.is_finite() {
        true => format!("×{ratio:.3} ± {:.3}", 1.96 * error),
        false => format!("×{ratio:.3}"),
    }
}
