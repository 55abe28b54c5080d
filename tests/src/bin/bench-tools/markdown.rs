//! The figures as Markdown, for docs/benchmarks.md.

use crate::accuracy::{Accuracy, INTERVALS};
use crate::goals::Goal;
use crate::growth::Point;
use crate::kind::Kind;
use crate::ratios::figures;
use crate::repetitions::{Cell, Plan, Row};
use crate::table::reason;
use crate::tool::Tool;
use crate::{goals, pooled};
use sampler_common::units::exact_bytes;
use sampler_tests::spread::Spread;
use std::fmt::Write as _;

// Writing to a String cannot fail.
macro_rules! line {
    ($out:expr, $($format:tt)*) => {{ let _ = writeln!($out, $($format)*); }};
}

/// Slowdowns: a row for each tool, a column for each workload. Reasons why tools did not run
/// follow.
pub(crate) fn slowdowns(plan: &Plan, rows: &[Row]) -> String {
    let mut out = String::new();
    line!(
        out,
        "CPU time of the program by that of the same work without the profiler; median of {} repetitions [quartiles], each \
         of at least {} s of CPU time where the machine allows. Profilers that bring an allocator are compared with that allocator.\n",
        plan.repetitions,
        plan.seconds
    );
    let names: Vec<&str> = rows.iter().map(|row| row.workload.name()).collect();
    head(&mut out, "", &names);
    let Some(first) = rows.first() else { return out };
    let mut notes: Vec<String> = Vec::new();
    for (index, cell) in first.cells.iter().enumerate().filter(|(_, of)| of.tool != Tool::None) {
        let cells: Vec<String> = rows.iter().map(|row| slowdown(row, &row.cells[index])).collect();
        line!(out, "| {} | {} |", cell.tool.title(), cells.join(" | "));
        for row in rows {
            let cell = &row.cells[index];
            if figures(row, cell.tool).is_none() {
                let note = format!("- {}: {}", cell.tool.title(), why(cell));
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
    }
    line!(out, "");
    for note in notes {
        line!(out, "{note}");
    }
    out
}

fn head(out: &mut String, first: &str, names: &[&str]) {
    line!(out, "| {first} | {} |", names.join(" | "));
    line!(out, "| --- |{}", " ---: |".repeat(names.len()));
}

fn slowdown(row: &Row, cell: &Cell) -> String {
    let Some(figures) = figures(row, cell.tool) else { return "not run".to_owned() };
    let Spread { low, median, high, .. } = figures.slowdown();
    let digits = if median < 10.0 { 2 } else { 0 };
    format!("**×{median:.digits$}** [{low:.digits$}–{high:.digits$}]")
}

fn why(cell: &Cell) -> String {
    cell.problem.clone().unwrap_or_else(|| reason(cell)).replace('\n', " ")
}

/// CPU time of samplerd itself, and its samples per second.
pub(crate) fn own(rows: &[Row]) -> String {
    let names: Vec<&str> = rows.iter().map(|row| row.workload.name()).collect();
    let mut out = String::new();
    line!(
        out,
        "Samples for each second of CPU time of the program alone; CPU time of the profiler's own processes, percent of the program's alone.\n"
    );
    head(&mut out, "", &names);
    let tools = rows.first().map_or(Vec::new(), |row| row.cells.iter().map(|of| of.tool).collect());
    for tool in tools {
        let outside =
            matches!(tool, Tool::Ours(_) | Tool::Memleak | Tool::Bpftrace | Tool::Heaptrack);
        if !outside || rows.iter().all(|row| figures(row, tool).is_none()) {
            continue;
        }
        let cell = |row: &Row| match figures(row, tool) {
            None => "not run".to_owned(),
            Some(figures) => {
                let own = 100.0 * Spread::of(figures.tool.iter().copied()).median;
                match tool {
                    Tool::Ours(_) => format!("{:.0}/s, {own:.1} %", figures.samples_per_second),
                    _ => format!("{own:.1} %"),
                }
            }
        };
        let cells: Vec<String> = rows.iter().map(cell).collect();
        line!(out, "| {} | {} |", tool.title(), cells.join(" | "));
    }
    out
}

/// Goals of the default mode.
pub(crate) fn goals(rows: &[Row]) -> String {
    let mut out = String::new();
    let heads = [
        "memleak adds / samplerd adds",
        "samplerd adds / empty programs add",
        "beyond ×1.10, for each sample",
    ];
    head(&mut out, "", &heads);
    for row in rows {
        let mut cells = [const { String::new() }; 3];
        for goal in goals::of(row) {
            let verdict = if goal.is_met() { "met" } else { "missed" };
            let text = |Spread { low, median, high, .. }: &Spread| {
                format!("**×{median:.2}** [{low:.2}–{high:.2}] {verdict}")
            };
            match &goal {
                Goal::Memleak(ratio) => cells[0] = text(ratio),
                Goal::Empty(ratio, each) => {
                    cells[1] = text(ratio);
                    cells[2] =
                        each.map_or_else(String::new, |Spread { low, median, high, .. }| {
                            format!("{median:.1} [{low:.1} to {high:.1}] µs")
                        });
                }
            }
        }
        line!(out, "| {} | {} |", row.workload.name(), cells.join(" | "));
    }
    out
}

/// Errors by workload and interval.
pub(crate) fn accuracy(all: &[Accuracy]) -> String {
    let mut out = String::new();
    let name = |(_, bytes): &(&str, u64)| exact_bytes(*bytes);
    let names: Vec<String> = INTERVALS.iter().map(name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    head(&mut out, "", &names);
    for summary in pooled::summaries(all) {
        let cells: Vec<String> = summary.by_interval.iter().map(|of| of.text()).collect();
        line!(out, "| {} | {} |", summary.workload.name(), cells.join(" | "));
    }
    out
}

/// Growth: a table for each kind.
pub(crate) fn growth(points: &[Point]) -> String {
    let mut out = String::new();
    for kind in Kind::ALL {
        let points: Vec<&Point> = points.iter().filter(|point| point.kind == kind).collect();
        let Some(first) = points.first() else { continue };
        let names: Vec<String> = points.iter().map(|point| point.at.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        line!(out, "");
        head(&mut out, kind.name(), &names);
        let row = |title: &str, of: &dyn Fn(&Point) -> String| {
            let cells: Vec<String> = points.iter().map(|point| of(point)).collect();
            format!("| {title} | {} |", cells.join(" | "))
        };
        let spread =
            |Spread { low, median, high, .. }: Spread| format!("×{median:.2} [{low:.2}–{high:.2}]");
        line!(out, "{}", row("added to a pair", &|point| spread(point.added(first))));
        line!(out, "{}", row("slowdown", &|point| spread(point.slowdown())));
        if points.iter().any(|point| point.own_per_sample(first).is_some()) {
            let own = |point: &Point| {
                let ratio = point.own_per_sample(first);
                ratio.map_or_else(|| "unknown".to_owned(), |ratio| format!("×{ratio:.2}"))
            };
            line!(out, "{}", row("samplerd's CPU time for a sample", &own));
        }
    }
    out
}
