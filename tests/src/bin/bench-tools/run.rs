//! One workload under one tool, for some seconds of the workload's CPU time.

use crate::attached::{Attached, Samples};
use crate::layout::Layout;
use crate::program::{Cost, Program};
use crate::repetitions::Plan;
use crate::scratch::Scratch;
use crate::tool::Tool;
use crate::toolbox::{Toolbox, is_probed, nobody_probes};
use crate::workload::Workload;
use anyhow::{Context, Result, ensure};

/// Longest elapsed time of a run, for each second of its planned CPU time. On a busy machine a run
/// ends early.
const MAX_SECONDS_PER_CPU_SECOND: f64 = 4.0;
/// Share of the planned CPU time that is used before the measurement.
const WARM_UP: f64 = 0.1;

/// Result of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Run {
    /// Cost of the measured rounds.
    pub(crate) cost: Cost,
    /// CPU time of the profiler's own processes during the measured rounds, seconds.
    pub(crate) tool_s: f64,
    /// Samples of samplerd during the measured rounds.
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

/// Runs `workload` under `tool` until the workload has used the plan's CPU time, at least one
/// round. A program that ends with its round is started and attached to again.
///
/// # Errors
/// If the workload or the tool does not start or fails.
pub(crate) fn measure(
    toolbox: &Toolbox,
    workload: Workload,
    tool: Tool,
    plan: Plan,
    scratch: &Scratch,
) -> Result<Run> {
    let environment = tool.environment(&scratch.path(""));
    let mut run = Run { cost: Cost::default(), tool_s: 0.0, samples: Samples::default() };
    let seconds = plan.seconds;
    while run.lacks(seconds) {
        let recorder = toolbox.before(tool, scratch)?;
        let mut program =
            Program::start(workload, plan.templates, Layout::Random, &environment, scratch)?;
        let pid = program.pid();
        nobody_probes(pid)?;
        let attached = toolbox.attach(tool, pid, scratch);
        let attached = attached.with_context(|| format!("attach {}", tool.title()))?;
        warm_up(&mut program, seconds)?;
        run.add(&mut program, seconds, [&recorder, &attached])?;
        if !program.is_over() && !tool.probes() {
            ensure!(!is_probed(pid)?, "somebody else has put probes into this program meanwhile");
        }
        attached.detach()?;
        drop(program);
        recorder.detach()?;
    }
    Ok(run)
}

/// Runs rounds that are not measured: the first rounds under a tool cost more.
fn warm_up(program: &mut Program, seconds: f64) -> Result<()> {
    let mut done = 0.0;
    while !program.is_once() && done < WARM_UP * seconds {
        done += program.round()?.cpu_s;
    }
    Ok(())
}

impl Run {
    fn lacks(&self, seconds: f64) -> bool {
        let Cost { cpu_s, wall_s, rounds } = self.cost;
        rounds == 0 || (cpu_s < seconds && wall_s < MAX_SECONDS_PER_CPU_SECOND * seconds)
    }

    /// Adds rounds of `program` under `tools`.
    fn add(&mut self, program: &mut Program, seconds: f64, tools: [&Attached; 2]) -> Result<()> {
        let own_s = || tools.map(Attached::cpu_s).iter().sum::<f64>();
        let [_, attached] = tools;
        let samples = attached.samples()?;
        // The CPU time of answering queries is not counted. The time is read after the query here,
        // and before the query below.
        let before_s = own_s();
        while !program.is_over() && self.lacks(seconds) {
            self.cost.add(program.round()?);
        }
        self.tool_s += own_s() - before_s;
        let after = attached.samples()?;
        self.samples.taken += after.taken - samples.taken;
        self.samples.lost += after.lost - samples.lost;
        Ok(())
    }
}
