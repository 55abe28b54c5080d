//! The table of a comparison for people, in a terminal.
//!
//! The table names the compared profiles and shows their totals. Each stack has two lines: its
//! numbers, and its functions, the allocating one first.

use crate::comparison::{About, ComparedStack, Comparison, FALSE_DISCOVERY_RATE, Relation};
use crate::encode::callers::callers;
use crate::encode::name;
use crate::encode::text::layout::{paragraph, right};
use crate::estimate::Difference;
use crate::profile::Kind;
use crate::units::{grouped, human_bytes, human_count, human_duration};
use std::time::Duration;

/// Width of the column of labels.
pub(in crate::encode) const LABEL: usize = 10;
/// Minimum width of the text, also in a narrower terminal.
const MIN_WIDTH: usize = 76;
/// Widths of the columns A, B, difference, interval and p.
const COLUMNS: [usize; 5] = [9, 9, 10, 23, 8];

/// The table, with at most `rows` stacks, in `width` columns.
pub fn text(of: &Comparison, width: usize, rows: usize) -> String {
    let width = width.max(MIN_WIDTH);
    let mut out = heading(of, width);
    let shown = &of.stacks[..rows.min(of.stacks.len())];
    if !shown.is_empty() {
        let rate = if of.per_second { "/s" } else { "" };
        let interval = format!("interval at {}%", percent(of.confidence.level()));
        let names = [
            format!("A{rate}"),
            format!("B{rate}"),
            "B − A".to_owned(),
            interval,
            "p adj".to_owned(),
        ];
        out += &format!("\n{}  samples\n", line(&names));
    }
    for stack in shown {
        out += &row(stack);
        let frames: Vec<&str> = stack.frames.iter().map(String::as_str).collect();
        out += &format!("    {}\n", callers(&frames, "", width - 4));
    }
    if of.stacks.len() > shown.len() {
        let rest = (of.stacks.len() - shown.len()) as u64;
        out += &format!("… {} more (--top N shows N)\n", grouped(rest));
    }
    out
}

fn heading(of: &Comparison, width: usize) -> String {
    let what = match of.kind {
        Kind::Alloc => "allocated",
        _ => "held",
    };
    let per = if of.per_second { " a second" } else { "" };
    let mut out = format!("Memory {what}{per}: B − A\n");
    for (label, side) in ["A", "B"].into_iter().zip(&of.sides) {
        out += &paragraph(label, &about(side), LABEL, width);
    }
    let totals = |of: &Difference, show: fn(f64) -> String| {
        let ends = [of.low, of.high].map(|end| signed(end, show));
        format!(
            "{} → {}, {} ({} … {})",
            show(of.a),
            show(of.b),
            signed(of.value, show),
            ends[0],
            ends[1]
        )
    };
    out += &paragraph("bytes", &totals(&of.space, human_bytes), LABEL, width);
    out += &paragraph("objects", &totals(&of.objects, human_count), LABEL, width);
    out += &paragraph("changes", &changes(of), LABEL, width);
    if of.relation == Relation::Shared {
        let note = "blocks that are in both count as independent: intervals are too wide, never too narrow";
        out += &paragraph("note", note, LABEL, width);
    }
    let [a, b] = of.sides.each_ref().map(|side| side.duration_ns().max(1) as f64);
    if of.kind == Kind::Alloc
        && !of.per_second
        && of.relation != Relation::Grown
        && (a / b - 1.0).abs() > 0.01
    {
        let note = "A and B differ in length, and totals are compared as they are (--per-second compares rates)";
        out += &paragraph("note", note, LABEL, width);
    }
    out
}

fn about(side: &About) -> String {
    let samples = if side.samples == 1 { "sample" } else { "samples" };
    format!(
        "{}: {}, {} {samples}, one per {}",
        name::shown(&side.name),
        human_duration(Duration::from_nanos(side.duration_ns())),
        grouped(side.samples),
        human_bytes(side.interval_bytes as f64),
    )
}

fn changes(of: &Comparison) -> String {
    if of.relation == Relation::Grown {
        return "A is the beginning of B: the difference is what was allocated in between"
            .to_owned();
    }
    format!(
        "{} of {} tested stacks (*), at most {}% of such by chance; intervals are pointwise",
        grouped(of.significant() as u64),
        grouped(of.tested as u64),
        percent(FALSE_DISCOVERY_RATE),
    )
}

fn row(stack: &ComparedStack) -> String {
    let of = &stack.space.difference;
    let interval = format!("{} … {}", signed(of.low, human_bytes), signed(of.high, human_bytes));
    let p = match stack.space.adjusted {
        None => "–".to_owned(),
        Some(p) if stack.space.is_significant() => format!("{}*", chance(p)),
        Some(p) => format!("{} ", chance(p)),
    };
    let numbers =
        [human_bytes(of.a), human_bytes(of.b), signed(of.value, human_bytes), interval, p];
    let [a, b] = stack.samples.map(grouped);
    format!("{}  {a} → {b}\n", line(&numbers))
}

fn line(fields: &[String; 5]) -> String {
    let padded = fields.iter().zip(COLUMNS).map(|(field, width)| right(field, width));
    padded.collect::<Vec<_>>().join(" ")
}

/// `+1.00 MiB`, `−3`, `0`; `∞` for an infinite end.
pub(in crate::encode) fn signed(value: f64, show: fn(f64) -> String) -> String {
    let size = if value.is_finite() { show(value.abs()) } else { "∞".to_owned() };
    match value {
        v if v < 0.0 => format!("−{size}"),
        v if v > 0.0 => format!("+{size}"),
        _ => size,
    }
}

/// A p-value in at most six columns.
fn chance(p: f64) -> String {
    match p {
        p if p <= 1e-9 => "<1e-9".to_owned(),
        p if p < 1e-3 => format!("{p:.0e}"),
        p => format!("{p:.3}"),
    }
}

/// `95`, `99.9`.
pub(in crate::encode) fn percent(level: f64) -> f64 {
    (level * 1e9).round() / 1e7
}
