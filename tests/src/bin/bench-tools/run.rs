//! One workload under one tool, for so many seconds of its CPU time.

use crate::attached::{Attached, Samples};
use crate::layout::Layout;
use crate::program::{Cost, Program};
use crate::repetitions::Plan;
use crate::scratch::Scratch;
use crate::tool::Tool;
use crate::toolbox::{Toolbox, is_probed, nobody_probes};
use crate::workload::Workload;
use anyhow::{Context, Result, ensure};

/// Seconds that a run may take for each second of CPU time that it is to last: on a busy machine it ends early.
const MAX_SECONDS_PER_CPU_SECOND: f64 = 4.0;
/// Share of the CPU time that goes before.
const WARM_UP: f64 = 0.1;

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

/// Runs `workload` under `tool` until it has used the plan's CPU time, at least one round. A program that ends with its round is
/// started and attached to again.
///
/// # Errors
/// If one of them does not start or fails.
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

/// Rounds that do not count: a tool's first ones cost more.
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

    /// Rounds of `program` under `tools`.
    fn add(&mut self, program: &mut Program, seconds: f64, tools: [&Attached; 2]) -> Result<()> {
        let own_s = || tools.map(Attached::cpu_s).iter().sum::<f64>();
        let [_, attached] = tools;
        let samples = attached.samples()?;
        // What answering costs is nobody's: the time is taken after, and below before it.
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
