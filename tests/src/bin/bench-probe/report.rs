//! The figures as tables, and as JSON.

use super::cases::{Comparison, Goal, Setup};
use super::daemon::Costs;
use super::rounds::Measured;
use sampler_tests::machine::Machine;
use sampler_tests::spread::Spread;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Largest share of a processor, percent, that samplerd may take.
const CPU_GOAL_PERCENT: f64 = 2.0;
/// Longest time to the first profile, milliseconds.
const PROFILE_GOAL_MS: f64 = 1000.0;
/// Largest resident memory besides the ring, MiB.
const MEMORY_GOAL_MIB: f64 = 64.0;

/// Everything as JSON: `{"machine", "cases": [{"name", "setups", "comparisons"}], "samplerd"}`.
/// Times are in nanoseconds per call.
pub(crate) fn json(machine: &Machine, cases: &[Measured], costs: Option<&Costs>) -> Value {
    json!({
        "machine": {
            "processor": machine.processor, "cpus": machine.cpus, "virtual": machine.is_virtual,
            "kernel": machine.kernel, "load": machine.load,
        },
        "cases": cases.iter().map(case_json).collect::<Vec<_>>(),
        "samplerd": costs.map(costs_json),
    })
}

fn case_json(measured: &Measured) -> Value {
    let setup = |setup: &Setup| {
        let times = measured.times(*setup);
        json!({
            "name": setup.name(),
            "time_ns": Spread::of(times.iter().copied()).json(),
            "cost_ns": Spread::of(measured.costs(*setup)).json(),
            "times_ns": times,
        })
    };
    let comparison = |Comparison { above, below, goal }: &Comparison| {
        let ratio = measured.cost_ratio(*above, *below);
        let (at_most, at_least) = match goal {
            Goal::AtMost(bound) => (Some(bound), None),
            Goal::AtLeast(bound) => (None, Some(bound)),
            Goal::Open => (None, None),
        };
        json!({
            "above": above.name(), "below": below.name(),
            "cost_ratio": ratio.json(),
            "time_ratio": measured.time_ratio(*above, *below).json(),
            "at_most": at_most, "at_least": at_least, "met": goal.is_met(ratio.median),
        })
    };
    json!({
        "name": measured.case.name,
        "setups": measured.case.setups.iter().map(setup).collect::<Vec<_>>(),
        "comparisons": measured.case.comparisons.iter().map(comparison).collect::<Vec<_>>(),
    })
}

fn costs_json(costs: &Costs) -> Value {
    json!({
        "interval_bytes": costs.interval_bytes,
        "samples_per_second": costs.samples_per_second,
        "allocations_per_second": costs.allocations_per_second,
        "seconds": costs.seconds,
        "cpu_percent": costs.cpu_percent,
        "complete_stacks_percent": costs.complete_percent,
        "first_profile_ms": costs.first_profile_ms.json(),
        "resident_bytes": costs.resident_bytes,
        "ring_bytes": costs.ring_bytes,
    })
}

/// Everything as tables.
pub(crate) fn text(machine: &Machine, cases: &[Measured], costs: Option<&Costs>) -> String {
    let mut out = format!(
        "{}\n\
         ns of thread CPU time per call; cost = time − time without a probe, of the same round;\n\
         goals are judged by the median of the costs' ratio, taken round by round\n",
        machine.line()
    );
    for measured in cases {
        case_text(&mut out, measured);
    }
    if let Some(costs) = costs {
        costs_text(&mut out, costs);
    }
    out
}

// Writing to a String cannot fail.
macro_rules! line {
    ($out:expr, $($format:tt)*) => {{ let _ = writeln!($out, $($format)*); }};
}

fn case_text(out: &mut String, measured: &Measured) {
    let name = measured.case.name;
    let head = ["n", "min", "p25", "median", "p75", "cost"].map(|head| format!("{head:>9}"));
    line!(out, "\n{name:<52}{}", head.concat());
    for setup in measured.case.setups {
        let times = Spread::of(measured.times(*setup).iter().copied());
        let cost = match setup {
            Setup::Nothing => String::new(),
            _ => format!("{:>9.1}", Spread::of(measured.costs(*setup)).median),
        };
        line!(
            out,
            "  {:<50}{:>9}{:>9.1}{:>9.1}{:>9.1}{:>9.1}{cost}",
            setup.name(),
            times.n,
            times.min,
            times.low,
            times.median,
            times.high,
        );
    }
    for Comparison { above, below, goal } in measured.case.comparisons {
        let of = format!("{} / {}", above.name(), below.name());
        let ratio = measured.cost_ratio(*above, *below);
        let whole = measured.time_ratio(*above, *below).median;
        line!(
            out,
            "  {of:<58} cost ×{:.3} [{:.3} … {:.3}], time ×{whole:.3}{}",
            ratio.median,
            ratio.low,
            ratio.high,
            verdict(*goal, ratio.median),
        );
    }
}

fn verdict(goal: Goal, value: f64) -> String {
    let verdict = if goal.is_met(value) == Some(true) { "met" } else { "MISSED" };
    match goal {
        Goal::AtMost(bound) => format!("; goal ≤ {bound}: {verdict}"),
        Goal::AtLeast(bound) => format!("; goal ≥ {bound}: {verdict}"),
        Goal::Open => String::new(),
    }
}

fn costs_text(out: &mut String, costs: &Costs) {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let rest = mib(costs.resident_bytes - costs.ring_bytes);
    let first = costs.first_profile_ms;
    line!(
        out,
        "\nsamplerd on python3 (PYTHONMALLOC=malloc), one sample per {} B",
        costs.interval_bytes
    );
    line!(
        out,
        "  {:.0} samples/s of {:.0} allocations/s, {:.1} % of the stacks to their root",
        costs.samples_per_second,
        costs.allocations_per_second,
        costs.complete_percent,
    );
    line!(
        out,
        "  processor: {:.2} % of one, over {:.1} s{}",
        costs.cpu_percent,
        costs.seconds,
        verdict(Goal::AtMost(CPU_GOAL_PERCENT), costs.cpu_percent),
    );
    line!(
        out,
        "  first profile after `ready`: {:.0} … {:.0} ms, median {:.0} of {}{}",
        first.min,
        first.max,
        first.median,
        first.n,
        verdict(Goal::AtMost(PROFILE_GOAL_MS), first.max),
    );
    line!(
        out,
        "  resident: {:.1} MiB, {:.1} besides the ring's double mapping{}",
        mib(costs.resident_bytes),
        rest,
        verdict(Goal::AtMost(MEMORY_GOAL_MIB), rest),
    );
}
