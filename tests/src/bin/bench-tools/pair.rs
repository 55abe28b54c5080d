//! Two processes of a program that take turns: one alone, the other under a profiler or with a
//! library.

use crate::attached::Attached;
use crate::layout::Layout;
use crate::program::Program;
use crate::scratch::{Scratch, Variable};
use crate::toolbox::{nobody_probes, ours};
use crate::turns::{self, Turn};
use crate::workload::Workload;
use anyhow::{Context, Result};
use fastrand::Rng;

/// Templates that the compiler instantiates in a second.
const TEMPLATES_A_SECOND: f64 = 20.0;
/// Maximum number of CPU seconds before the measurement begins. samplerd then knows the program's
/// libraries and most of its stacks.
const WARM_UP_S: f64 = 1.0;

/// Both processes, waiting for work.
pub(crate) struct Pair {
    alone: Program,
    with: Program,
    /// samplerd, or nothing.
    pub(crate) attached: Attached,
}

/// Result of the turns.
pub(crate) struct Turned {
    turns: Vec<Turn>,
    own_s: f64,
}

/// Templates for a round of the compiler that takes this many seconds. The compiler ends with its
/// round.
pub(crate) fn templates(seconds: f64) -> u32 {
    (seconds * TEMPLATES_A_SECOND) as u32
}

impl Pair {
    /// Starts both processes for turns of this many seconds in all. The second process gets
    /// `environment`, and samplerd if there are `options` for samplerd.
    ///
    /// # Errors
    /// If one of the processes does not start.
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
        // The names are equally long. Paths of sockets are among the arguments, and would move what
        // lies below them on the stack.
        let (alone, with) = (start("alone", &[])?, start("under", environment)?);
        nobody_probes(with.pid())?;
        let attached = match options {
            Some(options) => ours(with.pid(), options).context("attach samplerd")?,
            None => Attached::Nothing,
        };
        Ok(Pair { alone, with, attached })
    }

    /// Process id of the second process.
    pub(crate) fn pid(&self) -> u32 {
        self.with.pid()
    }

    /// Whether both processes end with their first round.
    pub(crate) fn is_once(&self) -> bool {
        self.with.is_once()
    }

    /// Runs both processes before a measurement of this many seconds. Returns the rounds of the
    /// second one: samplerd samples these, too.
    ///
    /// # Errors
    /// If one of the processes fails.
    pub(crate) fn warm_up(&mut self, seconds: f64) -> Result<u32> {
        if self.is_once() {
            return Ok(0);
        }
        let seconds = WARM_UP_S.min(seconds);
        turns::block(&mut self.alone, seconds)?;
        Ok(turns::block(&mut self.with, seconds)?.rounds)
    }

    /// Runs turns of both processes, until the second has used this many seconds of CPU time.
    ///
    /// # Errors
    /// If one of the processes fails.
    pub(crate) fn run(&mut self, seconds: f64, random: &mut Rng) -> Result<Turned> {
        let Pair { alone, with, attached } = self;
        let own_s = attached.cpu_s();
        let turns = match with.is_once() {
            true => turns::stopping(alone, with)?,
            false => turns::of_rounds(alone, with, seconds, random)?,
        };
        let own_s = attached.cpu_s() - own_s;
        Ok(Turned { turns, own_s })
    }
}

impl Turned {
    /// Rounds of the second process.
    pub(crate) fn rounds(&self) -> u32 {
        turns::sums(&self.turns)[1].rounds
    }

    /// CPU seconds of the second process.
    pub(crate) fn cpu_s(&self) -> f64 {
        turns::sums(&self.turns)[1].cpu_s
    }

    /// CPU time of samplerd divided by that of the second process.
    pub(crate) fn own(&self) -> f64 {
        self.own_s / self.cpu_s()
    }

    /// CPU time of a round divided by that of a round alone, with its standard error.
    /// The error is infinite if the processes end with their first round.
    pub(crate) fn slowdown(&self) -> (f64, f64) {
        turns::ratio(&self.turns)
    }
}

/// `×1.008 ± 0.003`: the ratio with its 95 % interval.
pub(crate) fn slowdown_text((ratio, error): (f64, f64)) -> String {
    match error.is_finite() {
        true => format!("×{ratio:.3} ± {:.3}", 1.96 * error),
        false => format!("×{ratio:.3}"),
    }
}
