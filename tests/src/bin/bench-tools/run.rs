//! One workload under one tool, for so many seconds of its CPU time.

use crate::attached::Samples;
use crate::program::{Cost, Program};
use crate::scratch::Scratch;
use crate::tool::Tool;
use crate::toolbox::Toolbox;
use crate::workload::Workload;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};

/// Seconds that a run may take for each second of CPU time that it is to last: on a busy machine it ends early.
const PATIENCE: f64 = 4.0;

/// What a run gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Run {
    /// What the measured rounds cost.
    pub(crate) cost: Cost,
    /// CPU time of the profiler's own processes meanwhile, seconds.
    pub(crate) tool_s: f64,
    /// What samplerd took meanwhile.
    pub(crate) samples: Samples,
}

impl Run {
    /// CPU seconds of a round.
    pub(crate) fn cpu_s(&self) -> f64 {
        self.cost.cpu_s / f64::from(self.cost.rounds)
    }

    /// Seconds of a round.
    pub(crate) fn wall_s(&self) -> f64 {
        self.cost.wall_s / f64::from(self.cost.rounds)
    }
}

/// Runs `workload` under `tool` until it has used `seconds` of CPU time, at least one round.
///
/// # Errors
/// If one of them does not start or fails.
pub(crate) fn measure(
    toolbox: &Toolbox,
    workload: Workload,
    tool: Tool,
    seconds: f64,
    scratch: &Scratch,
) -> Result<Run> {
    let environment = tool.environment(&scratch.path(""));
    let mut run = Run { cost: Cost::default(), tool_s: 0.0, samples: Samples::default() };
    let deadline = Instant::now() + Duration::from_secs_f64(seconds * PATIENCE);
    while run.cost.rounds == 0 || (run.cost.cpu_s < seconds && Instant::now() < deadline) {
        let recorder = toolbox.before(tool, scratch)?;
        let mut program = Program::start(workload, &environment, scratch)?;
        let attached = toolbox.attach(tool, program.pid(), scratch);
        let attached = attached.with_context(|| format!("attach {}", tool.title()))?;
        if !program.is_once() {
            program.round()?;
        }
        let samples = attached.samples()?;
        // What answering costs is nobody's: the time is taken after, and below before it.
        let tool_s = recorder.cpu_s() + attached.cpu_s();
        while !program.is_over()
            && run.cost.cpu_s < seconds
            && (run.cost.rounds == 0 || Instant::now() < deadline)
        {
            let cost = program.round()?;
            run.cost.cpu_s += cost.cpu_s;
            run.cost.wall_s += cost.wall_s;
            run.cost.rounds += cost.rounds;
        }
        run.tool_s += recorder.cpu_s() + attached.cpu_s() - tool_s;
        let after = attached.samples()?;
        run.samples.taken += after.taken - samples.taken;
        run.samples.lost += after.lost - samples.lost;
        attached.detach()?;
        drop(program);
        recorder.detach()?;
    }
    Ok(run)
}
