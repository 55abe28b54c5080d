//! The figures as tables, and as JSON.

use super::attach::Attach;
use super::hits::{Hits, SETUPS};
use super::rest::Rest;
use sampler_tests::machine::Machine;
use sampler_tests::spread::Spread;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Longest time to attach to all processes, milliseconds.
const ATTACH_GOAL_MS: f64 = 2000.0;
/// Longest time for each further process, milliseconds.
const MORE_GOAL_MS: f64 = 5.0;
/// Largest ratio of a hit's cost with all processes attached to that with one.
const HIT_GOAL: f64 = 1.1;
/// Largest slowdown of a process that allocates nothing.
const COMPUTE_GOAL: f64 = 1.02;
/// Largest share of a processor that an idle daemon may take, percent.
const REST_GOAL_PERCENT: f64 = 0.5;
/// Largest resident memory, MiB.
const MEMORY_GOAL_MIB: f64 = 100.0;

/// Everything as JSON; times of calls in nanoseconds.
pub(crate) fn json(
    machine: &Machine,
    processes: u32,
    attach: &Attach,
    hits: &Hits,
    rest: &[Rest],
) -> Value {
    let hit = |(index, setup): (usize, &super::Setup)| {
        json!({
            "setup": setup.name(),
            "pair_ns": Spread::of(hits.pairs[index].iter().copied()).json(),
            "cost_ns": Spread::of(hits.costs(index)).json(),
            "cost_to_one": hits.cost_ratio(index).json(),
            "without_allocations": hits.compute_ratio(index).json(),
        })
    };
    let at_rest = |of: &Rest| {
        json!({
            "setup": of.setup.name(), "cpu_percent": of.cpu_percent, "seconds": of.seconds,
            "resident_bytes": of.resident_bytes, "ring_bytes": of.ring_bytes,
        })
    };
    json!({
        "machine": {
            "processor": machine.processor, "cpus": machine.cpus, "virtual": machine.is_virtual,
            "kernel": machine.kernel, "load": machine.load,
        },
        "processes": processes,
        "attach_ms": {
            "one": attach.one_ms.json(), "given": attach.given_ms.json(),
            "all": attach.all_ms.json(), "each_more": attach.more_ms.json(),
        },
        "hits": SETUPS.iter().enumerate().map(hit).collect::<Vec<_>>(),
        "rest": rest.iter().map(at_rest).collect::<Vec<_>>(),
    })
}

// Writing to a String cannot fail.
macro_rules! line {
    ($out:expr, $($format:tt)*) => {{ let _ = writeln!($out, $($format)*); }};
}

/// Everything as tables.
pub(crate) fn text(
    machine: &Machine,
    processes: u32,
    attach: &Attach,
    hits: &Hits,
    rest: &[Rest],
) -> String {
    let mut out = format!("{}\n{processes} idle processes\n", machine.line());
    line!(out, "\n{}", row("from start to ready, ms", HEADS));
    let all = [attach.given_ms, attach.all_ms];
    line!(out, "{}", row("one --pid", numbers(attach.one_ms)));
    for (name, spread) in ["all given by --pid", "--all"].into_iter().zip(all) {
        let goal = verdict(ATTACH_GOAL_MS, spread.median);
        line!(out, "{}{goal}", row(name, numbers(spread)));
    }
    let goal = verdict(MORE_GOAL_MS, attach.more_ms.median);
    line!(out, "{}{goal}", row("each further --pid", numbers(attach.more_ms)));
    line!(out, "\n{}", row("malloc and free, ns", HEADS));
    for (setup, times) in SETUPS.iter().zip(&hits.pairs) {
        line!(out, "{}", row(setup.name(), numbers(Spread::of(times.iter().copied()))));
    }
    line!(out, "\n{}", row("cost by that of one --pid", HEADS));
    for index in [2, 3] {
        let ratio = hits.cost_ratio(index);
        let goal = verdict(HIT_GOAL, ratio.median);
        line!(out, "{}{goal}", row(SETUPS[index].name(), numbers(ratio)));
    }
    line!(out, "\n{}", row("nothing allocated, by no daemon", HEADS));
    for index in [1, 2, 3] {
        let ratio = hits.compute_ratio(index);
        let goal = verdict(COMPUTE_GOAL, ratio.median);
        line!(out, "{}{goal}", row(SETUPS[index].name(), numbers(ratio)));
    }
    for of in rest {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (cpu, memory) = (of.cpu_percent, mib(of.resident_bytes));
        line!(out, "\nat rest, {}", of.setup.name());
        line!(
            out,
            "  processor {cpu:.2} % of one, over {:.1} s{}",
            of.seconds,
            verdict(REST_GOAL_PERCENT, cpu)
        );
        line!(
            out,
            "  resident {memory:.1} MiB, {:.1} of it the ring{}",
            mib(of.ring_bytes),
            verdict(MEMORY_GOAL_MIB, memory)
        );
    }
    out
}

const HEADS: [&str; 5] = ["n", "min", "p25", "median", "p75"];

fn row<T: std::fmt::Display>(name: &str, columns: [T; 5]) -> String {
    let columns = columns.map(|of| format!("{of:>9}"));
    format!("{name:<32}{}", columns.concat())
}

fn numbers(of: Spread) -> [String; 5] {
    let number = |of: f64| if of < 10.0 { format!("{of:.3}") } else { format!("{of:.0}") };
    [of.n.to_string(), number(of.min), number(of.low), number(of.median), number(of.high)]
}

fn verdict(goal: f64, value: f64) -> String {
    format!("; ≤ {goal}: {}", if value <= goal { "met" } else { "MISSED" })
}
