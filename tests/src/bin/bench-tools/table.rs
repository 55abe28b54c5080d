//! The figures as tables for the terminal: one for each workload.

use crate::goals;
use crate::ratios::{Figures, figures};
use crate::repetitions::{Cell, Plan, Row};
use crate::tool::Tool;
use sampler_common::units::human_count;
use sampler_tests::machine::Machine;
use sampler_tests::spread::Spread;
use std::fmt::Write as _;

// Writing to a String cannot fail.
macro_rules! line {
    ($out:expr, $($format:tt)*) => {{ let _ = writeln!($out, $($format)*); }};
}

/// Everything as tables.
pub(crate) fn text(machine: &Machine, plan: &Plan, rows: &[Row]) -> String {
    let mut out = format!(
        "{}\n\
         {} repetitions of {} s of CPU time; times are those of a round of work by those\n\
         of the same round without the profiler (profilers with an allocator of their\n\
         own: with that allocator), of the same repetition; median [quartiles]\n",
        machine.line(),
        plan.repetitions,
        plan.seconds
    );
    for row in rows {
        let heads = ["CPU time", "wall", "own", "samples/s"];
        line!(
            out,
            "\n{:<28}{:>24} {:>7} {:>8} {:>9}",
            row.workload.name(),
            heads[0],
            heads[1],
            heads[2],
            heads[3]
        );
        for cell in row.cells.iter().filter(|cell| cell.tool != Tool::None) {
            line!(out, "  {}", self::line(row, cell));
        }
        for goal in goals::of(row) {
            line!(out, "  {}", goal.text());
        }
    }
    out
}

fn line(row: &Row, cell: &Cell) -> String {
    let title = cell.tool.title();
    match figures(row, cell.tool) {
        None => format!("{title:<26} {}", reason(cell)),
        Some(figures) => {
            let median = |values: &[f64]| Spread::of(values.iter().copied()).median;
            let samples = rate(cell, &figures);
            format!(
                "{title:<26}{:>24} {:>7} {:>8} {samples:>9}",
                ratio(&figures.slowdown()),
                format!("×{:.2}", median(&figures.wall)),
                own(cell, median(&figures.tool)),
            )
        }
    }
}

/// Why there are no figures, short enough for one line.
pub(crate) fn reason(cell: &Cell) -> String {
    let reason = cell.problem.clone().unwrap_or_else(|| "its baseline was not measured".to_owned());
    let mut short: String = reason.chars().take(50).collect();
    if short.len() < reason.len() {
        short.push('…');
    }
    format!("not run: {short}")
}

/// A median with its quartiles.
pub(crate) fn ratio(spread: &Spread) -> String {
    let digits = if spread.median < 10.0 { 3 } else { 1 };
    let Spread { low, median, high, .. } = spread;
    format!("×{median:.digits$} [{low:.digits$} … {high:.digits$}]")
}

/// CPU time of a profiler's own processes. A profiler inside the program has none.
fn own(cell: &Cell, share: f64) -> String {
    match cell.tool {
        Tool::Ours(_) | Tool::Memleak | Tool::Bpftrace | Tool::Heaptrack => {
            format!("{:.1} %", 100.0 * share)
        }
        _ => String::new(),
    }
}

fn rate(cell: &Cell, figures: &Figures) -> String {
    match cell.tool {
        Tool::Ours(_) if figures.samples_per_second < 100.0 => {
            format!("{:.1}", figures.samples_per_second)
        }
        Tool::Ours(_) => human_count(figures.samples_per_second),
        _ => String::new(),
    }
}
