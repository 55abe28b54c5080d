//! The figures.

use crate::Measured;
use crate::setup::Setup;
use sampler_tests::machine::Machine;
use sampler_tests::spread::Spread;
use serde_json::{Value, json};

/// Largest cost of a pair over forwarding, nanoseconds.
const GOAL_NS: f64 = 1.5;

/// Whether a setup on this many threads reaches the goal; `None` if the setup has no goal.
fn is_met(of: &Measured, over: Option<&Spread>) -> Option<bool> {
    let samples = matches!(of.way, Setup::NotAttached | Setup::Attached);
    over.filter(|_| samples).map(|over| over.median <= GOAL_NS)
}

/// Time of each round less that of the forwarding library in the same round.
fn over_forwarding(all: &[Measured], of: &Measured) -> Option<Spread> {
    let base = all.iter().find(|it| it.way == Setup::Forwarded && it.threads == of.threads)?;
    if of.way == Setup::Forwarded {
        return None;
    }
    Some(Spread::of(of.times_ns.iter().zip(&base.times_ns).map(|(ours, base)| ours - base)))
}

pub(crate) fn print(machine: &Machine, all: &[Measured], as_json: bool) {
    if as_json {
        let rows: Vec<Value> = all.iter().map(|of| row(all, of)).collect();
        println!("{}", json!({ "machine": machine.line(), "goal_ns": GOAL_NS, "rows": rows }));
        return;
    }
    println!("{}\n", machine.line());
    println!("                                           over forwarding, ns");
    println!("threads  way                            ns  median   p25 … p75");
    for of in all {
        let time = Spread::of(of.times_ns.iter().copied()).median;
        let over = over_forwarding(all, of).map_or(String::new(), |over| {
            let verdict =
                is_met(of, Some(&over)).map_or("", |is_met| if is_met { "met" } else { "MISSED" });
            format!("{:+6.2}  {:+.2} … {:+.2}  {verdict}", over.median, over.low, over.high)
        });
        println!("{:>7}  {:28} {time:>5.2}  {}", of.threads, of.way.name(), over.trim_end());
    }
    println!("\ngoal: at most {GOAL_NS} ns over forwarding");
}

fn row(all: &[Measured], of: &Measured) -> Value {
    json!({
        "threads": of.threads,
        "way": of.way.name(),
        "pair_ns": Spread::of(of.times_ns.iter().copied()).json(),
        "over_forwarding_ns": over_forwarding(all, of).map(|of| of.json()),
        "met": is_met(of, over_forwarding(all, of).as_ref()),
    })
}
