//! The figures as tables, and as JSON.

use crate::accuracy::{Error, What};
use crate::cases::{EVENTS, Kind, several};
use crate::rounds::{Measured, find, parallel};
use sampler_common::counting::Switch;
use sampler_tests::machine::Machine;
use serde_json::{Value, json};
use std::fmt::Write as _;

// Writing to a String cannot fail.
macro_rules! line {
    ($out:expr, $($format:tt)*) => {{ let _ = writeln!($out, $($format)*); }};
}

/// Everything as tables.
pub(crate) fn text(machine: &Machine, measured: &[Measured], errors: &[Error]) -> String {
    let (parallel, all) = parallel(measured, machine.cpus);
    let mut out = format!(
        "{}\n{parallel} of {all} runs with all their threads at work from beginning to end\n",
        machine.line()
    );
    let several = several(machine.cpus);
    for threads in [1, several, 2 * several] {
        cost(&mut out, measured, threads);
    }
    shares(&mut out, measured, several);
    sweep(&mut out, measured, errors, several);
    let count = |error: &&Error| error.what == What::Count;
    line!(
        out,
        "\nscalable 2^13 by the count: 5 %, mean, 95 % of the truth; extremes; ±1.645 s.d. by formula"
    );
    for error in errors.iter().filter(count) {
        line!(out, "  {:>9}  {}", error.truth, error_text(error));
    }
    out
}

fn cost(out: &mut String, measured: &[Measured], threads: usize) {
    let Some(base) = find(measured, Kind::Interlocked, threads, EVENTS) else { return };
    line!(
        out,
        "\n{threads} thread(s), {EVENTS} events each: CPU time of an event, ns, and ratio to interlocked"
    );
    line!(
        out,
        "  {:<24}{:>8}{:>8}{:>8}{:>8}  {:<24}{}",
        "",
        "min",
        "p25",
        "median",
        "p75",
        "ratio [p25 … p75]",
        "counted"
    );
    for kind in Kind::ALL {
        let Some(of) = find(measured, kind, threads, EVENTS) else { continue };
        let (time, ratio, [low, mean, high]) = (of.time(), of.ratio(base), of.share());
        let ratios = format!("×{:.3} [{:.3} … {:.3}]", ratio.median, ratio.low, ratio.high);
        line!(
            out,
            "  {:<24}{:>8.2}{:>8.2}{:>8.2}{:>8.2}  {ratios:<24}{low:.4} {mean:.4} {high:.4}",
            kind.name(),
            time.min,
            time.low,
            time.median,
            time.high,
        );
    }
}

fn shares(out: &mut String, measured: &[Measured], threads: usize) {
    line!(out, "\nshare of the events that is counted (mean), {threads} threads, by their number");
    let totals: Vec<u64> = (4..=20).step_by(2).map(|log2| 1u64 << log2).collect();
    let heads: Vec<String> = totals.iter().map(|total| format!("{total:>9}")).collect();
    line!(out, "  {:<24}{}", "", heads.concat());
    for kind in Kind::ALL {
        let of = |total: &u64| find(measured, kind, threads, total / threads as u64);
        let means = totals.iter().filter_map(of).map(|of| format!("{:>9.4}", of.share()[1]));
        line!(out, "  {:<24}{}", kind.name(), means.collect::<String>());
    }
}

fn sweep(out: &mut String, measured: &[Measured], errors: &[Error], threads: usize) {
    line!(
        out,
        "\nscalable by the switch-over: 5 %, mean, 95 % of the truth; extremes; ±1.645 s.d. by formula; cost of an event, {threads} threads"
    );
    for (what, name) in [(What::Sweep, "events"), (What::Bytes, "bytes ")] {
        for error in errors.iter().filter(|error| error.what == what) {
            let kind = Kind::Scalable(error.switch);
            let cost = find(measured, kind, threads, EVENTS).filter(|_| what == What::Sweep);
            let base = find(measured, Kind::Interlocked, threads, EVENTS);
            let cost = cost.zip(base).map_or(String::new(), |(of, base)| {
                format!("{:>8.2} ns, ×{:.3}", of.time().median, of.ratio(base).median)
            });
            line!(out, "  {name} 2^{:<3}{}{cost}", error.switch.log2(), error_text(error));
        }
    }
}

fn error_text(error: &Error) -> String {
    let [low, mean, high] = error.share;
    let [least, largest] = error.extremes;
    let formula = 164.5 * error.formula;
    format!("{low:.4} {mean:.4} {high:.4}   {least:.4} … {largest:.4}   ±{formula:.2} %")
}

/// Everything as JSON: `{"machine", "cases", "errors"}`.
pub(crate) fn json(machine: &Machine, measured: &[Measured], errors: &[Error]) -> Value {
    let case = |of: &Measured| {
        json!({
            "counter": of.case.kind.name(), "threads": of.case.threads, "events": of.case.each * of.case.threads as u64,
            "time_ns": of.time().json(), "share": of.share(),
            "times_ns": of.runs.iter().map(|run| run.time_ns).collect::<Vec<_>>(),
        })
    };
    let error = |of: &Error| {
        json!({
            "of": match of.what { What::Bytes => "bytes", What::Sweep | What::Count => "events" },
            "switch_over": 1u64 << of.switch.log2(), "default": of.switch == Switch::DEFAULT, "truth": of.truth,
            "share": of.share, "extremes": of.extremes, "formula_relative_sd": of.formula,
        })
    };
    json!({
        "machine": {
            "processor": machine.processor, "cpus": machine.cpus, "virtual": machine.is_virtual,
            "kernel": machine.kernel, "load": machine.load,
        },
        "cases": measured.iter().map(case).collect::<Vec<_>>(),
        "errors": errors.iter().map(error).collect::<Vec<_>>(),
    })
}
