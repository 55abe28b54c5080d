//! The figures as tables, and as JSON.

use crate::case::{Case, Measured};
use crate::query::Queries;
use sampler_tests::machine::Machine;
use sampler_tests::spread::Spread;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Largest processor time for a sample of a case that [has a goal](Case::has_goal), microseconds.
pub(crate) const CPU_GOAL_US: f64 = 15.0;
/// Longest time of a query for the top stacks, milliseconds.
pub(crate) const QUERY_GOAL_MS: f64 = 200.0;

// Writing to a String cannot fail.
macro_rules! line {
    ($out:expr, $($format:tt)*) => {{ let _ = writeln!($out, $($format)*); }};
}

pub(crate) fn spread(of: &[Measured], value: fn(&Measured) -> f64) -> Spread {
    Spread::of(of.iter().map(value))
}

pub(crate) fn lost(of: &[Measured]) -> u64 {
    of.iter().map(|one| one.lost).sum()
}

pub(crate) fn json(machine: &Machine, cases: &[(Case, Vec<Measured>)], queries: &Queries) -> Value {
    let case = |(case, of): &(Case, Vec<Measured>)| {
        json!({
            "snapshot": case.snapshot,
            "rate": case.rate,
            "limited": case.limited,
            "allocations_per_second": spread(of, |one| one.made).json(),
            "samples_per_second": spread(of, |one| one.samples).json(),
            "lost": lost(of),
            "cpu_us_per_sample": spread(of, |one| one.cpu_us).json(),
            "cpu_percent": spread(of, |one| one.cpu_percent).json(),
            "resident_bytes": spread(of, |one| one.resident_bytes as f64).json(),
            "ring_factor": spread(of, |one| one.ring_factor).json(),
        })
    };
    let questions = queries.questions.iter();
    let questions: Vec<Value> =
        questions.map(|of| json!({ "arguments": of.arguments, "ms": of.ms.json() })).collect();
    json!({
        "machine": {
            "processor": machine.processor, "cpus": machine.cpus, "virtual": machine.is_virtual,
            "kernel": machine.kernel, "load": machine.load,
        },
        "cases": cases.iter().map(case).collect::<Vec<_>>(),
        "largest_rate_without_loss": without_loss(cases),
        "first_profile_ms": queries.first_profile_ms.json(),
        "stacks": queries.stacks,
        "questions": questions,
    })
}

/// Largest rate without a lost sample, for each size of snapshot.
fn without_loss(cases: &[(Case, Vec<Measured>)]) -> Value {
    let mut largest = serde_json::Map::new();
    for (case, of) in cases.iter().filter(|(case, of)| !case.limited && lost(of) == 0) {
        let rate = spread(of, |one| one.samples).median.round();
        let entry = largest.entry(case.snapshot).or_insert(json!(0.0));
        if entry.as_f64() < Some(rate) {
            *entry = json!(rate);
        }
    }
    largest.into()
}

pub(crate) fn text(
    machine: &Machine,
    cases: &[(Case, Vec<Measured>)],
    queries: &Queries,
) -> String {
    let mut out = format!("{}\n\n", machine.line());
    line!(out, "snapshot  asked/s   samples/s    lost    µs a sample (quartiles)   % CPU   MiB");
    for (case, of) in cases {
        let cpu = spread(of, |one| one.cpu_us);
        let requested = if case.rate == 0 { "storm".to_owned() } else { case.rate.to_string() };
        let goal = match case.has_goal() {
            true => verdict(CPU_GOAL_US, cpu.median),
            false => String::new(),
        };
        line!(
            out,
            "{:<9} {requested:>7} {:>11.0} {:>7} {:>8.2} ({:.2}-{:.2}) {:>13.1} {:>5.0}{goal}",
            case.snapshot,
            spread(of, |one| one.samples).median,
            lost(of),
            cpu.median,
            cpu.low,
            cpu.high,
            spread(of, |one| one.cpu_percent).median,
            spread(of, |one| one.resident_bytes as f64).median / f64::from(1 << 20),
        );
    }
    line!(out, "\nlargest rate without loss: {}", without_loss(cases));
    let first = queries.first_profile_ms;
    line!(
        out,
        "from start to first profile: {:.0} ms ({:.0}-{:.0})",
        first.median,
        first.low,
        first.high
    );
    line!(out, "\n{} stacks, ms (quartiles)", queries.stacks);
    for of in &queries.questions {
        let goal = match of.has_goal() {
            true => verdict(QUERY_GOAL_MS, of.ms.median),
            false => String::new(),
        };
        let Spread { median, low, high, .. } = of.ms;
        line!(out, "{:<40} {median:>7.0} ({low:.0}-{high:.0}){goal}", of.arguments);
    }
    out
}

fn verdict(goal: f64, value: f64) -> String {
    format!("; ≤ {goal}: {}", if value <= goal { "met" } else { "MISSED" })
}
