//! The figures as Markdown, for docs/benchmarks.md.

use crate::case::{Case, Measured};
use crate::query::Queries;
use crate::report::{CPU_GOAL_US, QUERY_GOAL_MS, lost, spread};
use sampler_common::units::grouped;
use sampler_tests::spread::Spread;
use std::fmt::Write as _;

// Writing to a String cannot fail.
macro_rules! line {
    ($out:expr, $($format:tt)*) => {{ let _ = writeln!($out, $($format)*); }};
}

/// A table of the cases, and one of the questions.
pub(crate) fn tables(cases: &[(Case, Vec<Measured>)], queries: &Queries) -> String {
    let mut out = String::new();
    line!(
        out,
        "| stack copied | asked for, 1/s | samples, 1/s | lost | CPU time for a sample | of one CPU | memory | goal |"
    );
    line!(out, "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |");
    for (case, of) in cases {
        let requested = if case.rate == 0 { "storm".to_owned() } else { grouped(case.rate.into()) };
        let cpu = spread(of, |one| one.cpu_us);
        line!(
            out,
            "| {} | {requested} | {} | {} | {:.1} µs [{:.1}–{:.1}] | {:.1} % | {:.0} MiB | {} |",
            case.snapshot,
            grouped(spread(of, |one| one.samples).median.round() as u64),
            grouped(lost(of)),
            cpu.median,
            cpu.low,
            cpu.high,
            spread(of, |one| one.cpu_percent).median,
            spread(of, |one| one.resident_bytes as f64).median / f64::from(1 << 20),
            verdict(case.has_goal(), CPU_GOAL_US, cpu.median),
        );
    }
    let first = queries.first_profile_ms;
    line!(
        out,
        "\nFrom the start of samplerd to its first profile: {:.0} ms [{:.0}–{:.0}].\n",
        first.median,
        first.low,
        first.high
    );
    line!(out, "| {} stacks | ms | goal |", grouped(queries.stacks));
    line!(out, "| --- | ---: | --- |");
    for of in &queries.questions {
        let Spread { median, low, high, .. } = of.ms;
        let goal = verdict(of.has_goal(), QUERY_GOAL_MS, median);
        line!(out, "| `sampler {}` | {median:.0} [{low:.0}–{high:.0}] | {goal} |", of.arguments);
    }
    out
}

fn verdict(has_goal: bool, goal: f64, value: f64) -> &'static str {
    match has_goal {
        true if value <= goal => "met",
        true => "missed",
        false => "",
    }
}
