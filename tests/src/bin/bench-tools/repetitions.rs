//! Repetitions: each runs every tool on every workload once, the tools of a workload one after
//! another in random order.
//!
//! Drift of the machine (its clock, its neighbours) then affects all tools alike. Ratios are taken
//! within a repetition of one workload, which lasts a minute or so.

use crate::run::{self, Run};
use crate::scratch::Scratch;
use crate::tool::Tool;
use crate::toolbox::Toolbox;
use crate::workload::Workload;
use anyhow::Result;
use fastrand::Rng;
use sampler_tests::progress::Progress;

/// A tool on a workload.
pub(crate) struct Cell {
    /// The tool.
    pub(crate) tool: Tool,
    /// The run of each repetition; `None` if the run failed.
    pub(crate) runs: Vec<Option<Run>>,
    /// Why the tool does not run here, or its first failure.
    pub(crate) problem: Option<String>,
}

/// The tools on a workload.
pub(crate) struct Row {
    /// The workload.
    pub(crate) workload: Workload,
    /// The tools in the order of the tables.
    pub(crate) cells: Vec<Cell>,
}

/// Duration, repetitions and order of the runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// CPU seconds of a run.
    pub(crate) seconds: f64,
    /// Repetitions.
    pub(crate) repetitions: u32,
    /// Seed of the random order.
    pub(crate) seed: u64,
    /// Templates that the compiler instantiates in a round.
    pub(crate) templates: u32,
}

/// Runs `tools` on `workloads`, and passes the rows so far to `keep` after each repetition.
/// A tool that fails is run again in the next repetition. Failures are printed.
///
/// # Errors
/// The errors of `keep`.
pub(crate) fn run(
    toolbox: &Toolbox,
    workloads: &[Workload],
    tools: &[Tool],
    plan: Plan,
    scratch: &Scratch,
    keep: impl Fn(&[Row]) -> Result<()>,
) -> Result<Vec<Row>> {
    let cell =
        |tool: &Tool| Cell { tool: *tool, runs: Vec::new(), problem: toolbox.missing(*tool) };
    let row =
        |workload: &Workload| Row { workload: *workload, cells: tools.iter().map(cell).collect() };
    let mut rows: Vec<Row> = workloads.iter().map(row).collect();
    let mut random = Rng::with_seed(plan.seed);
    let runs = plan.repetitions as usize * rows.iter().map(|row| row.cells.len()).sum::<usize>();
    let progress = Progress::of("slowdown", runs);
    for _ in 0..plan.repetitions {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        random.shuffle(&mut order);
        for index in order {
            let row = &mut rows[index];
            let mut order: Vec<usize> = (0..row.cells.len()).collect();
            random.shuffle(&mut order);
            for index in order {
                row.cells[index].measure(toolbox, row.workload, plan, scratch, &progress);
                progress.done();
            }
        }
        keep(&rows)?;
    }
    Ok(rows)
}

impl Cell {
    fn measure(
        &mut self,
        toolbox: &Toolbox,
        workload: Workload,
        plan: Plan,
        scratch: &Scratch,
        progress: &Progress,
    ) {
        if toolbox.missing(self.tool).is_some() {
            self.runs.push(None);
            return;
        }
        match run::measure(toolbox, workload, self.tool, plan, scratch) {
            Ok(run) => self.runs.push(Some(run)),
            Err(error) => {
                let error = format!("{error:#}");
                progress.say(format_args!("{} on {}: {error}", self.tool.title(), workload.name()));
                self.problem.get_or_insert(error);
                self.runs.push(None);
            }
        }
    }
}

impl Row {
    /// The runs of a tool; none if the tool is not measured.
    pub(crate) fn runs(&self, tool: Tool) -> &[Option<Run>] {
        self.cells.iter().find(|cell| cell.tool == tool).map_or(&[], |cell| &cell.runs)
    }
}
