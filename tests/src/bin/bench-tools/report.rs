//! The figures as JSON.

use crate::goals::{self, Goal};
use crate::ratios::figures;
use crate::repetitions::{Cell, Plan, Row};
use crate::run::Run;
use sampler_tests::machine::Machine;
use sampler_tests::spread::Spread;
use serde_json::{Value, json};

/// `{"machine", "plan", "workloads": [{"name", "tools": [{"name", "baseline", "slowdown", …,
/// "runs"}], "goals"}]}`. Times are in seconds. A run that failed is null.
pub(crate) fn json(machine: &Machine, plan: &Plan, rows: &[Row]) -> Value {
    json!({
        "machine": self::machine(machine),
        "plan": { "seconds": plan.seconds, "repetitions": plan.repetitions, "seed": plan.seed },
        "workloads": rows.iter().map(row_json).collect::<Vec<_>>(),
    })
}

/// The machine.
pub(crate) fn machine(machine: &Machine) -> Value {
    json!({
        "processor": machine.processor, "cpus": machine.cpus, "virtual": machine.is_virtual,
        "kernel": machine.kernel, "load": machine.load,
    })
}

fn row_json(row: &Row) -> Value {
    json!({
        "name": row.workload.name(),
        "tools": row.cells.iter().map(|cell| cell_json(row, cell)).collect::<Vec<_>>(),
        "goals": goals::of(row).iter().map(goal_json).collect::<Vec<_>>(),
    })
}

fn cell_json(row: &Row, cell: &Cell) -> Value {
    let figures = figures(row, cell.tool);
    let of = figures.as_ref();
    let spread =
        |values: Option<&Vec<f64>>| values.map(|values| Spread::of(values.iter().copied()).json());
    json!({
        "name": cell.tool.name(), "title": cell.tool.title(),
        "baseline": cell.tool.baseline().name(),
        "problem": cell.problem,
        "slowdown": spread(of.map(|of| &of.slowdowns)),
        "wall": spread(of.map(|of| &of.wall)),
        "own_share": spread(of.map(|of| &of.tool)),
        "samples_per_second": of.map(|of| of.samples_per_second),
        "lost": of.map(|of| of.lost),
        "slowdowns": of.map(|of| &of.slowdowns),
        "runs": cell.runs.iter().map(|run| run.as_ref().map(run_json)).collect::<Vec<_>>(),
    })
}

fn run_json(run: &Run) -> Value {
    json!({
        "rounds": run.cost.rounds, "cpu_s": run.cost.cpu_s, "wall_s": run.cost.wall_s,
        "tool_s": run.tool_s, "samples": run.samples.taken, "lost": run.samples.lost,
    })
}

fn goal_json(goal: &Goal) -> Value {
    match goal {
        Goal::Memleak(ratio) => json!({
            "name": "memleak", "added_ratio": ratio.json(), "met": goal.is_met(),
        }),
        Goal::Empty(ratio, each) => json!({
            "name": "empty", "added_ratio": ratio.json(), "us_per_sample": each.map(|each| each.json()),
            "met": goal.is_met(),
        }),
    }
}
