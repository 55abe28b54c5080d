//! The figures as tables, and as JSON.

use crate::draw_methods::DrawMethod;
use crate::mixes::Mix;
use crate::{Drawn, Measured};
use sampler_tests::machine::Machine;
use sampler_tests::spread::Spread;
use serde_json::{Value, json};
use std::fmt::Write as _;

// Writing to a String cannot fail.
macro_rules! line {
    ($out:expr, $($format:tt)*) => {{ let _ = writeln!($out, $($format)*); }};
}

fn spread(times: &[f64]) -> Spread {
    Spread::of(times.iter().copied())
}

/// Expected samples of one run.
fn expected(way: DrawMethod, mix: &Mix, interval: u64) -> f64 {
    mix.sizes.iter().map(|size| way.inclusion(*size, interval)).sum()
}

/// Difference of the samples of all rounds from their expectation, in standard deviations.
fn deviations(of: &Measured, mix: &Mix, interval: u64) -> f64 {
    let rounds = of.times_ns.len() as f64;
    let inclusion = |size: &u64| of.way.inclusion(*size, interval);
    let variance: f64 = mix.sizes.iter().map(inclusion).map(|p| p * (1.0 - p)).sum();
    (of.samples as f64 - rounds * expected(of.way, mix, interval)) / (rounds * variance).sqrt()
}

/// Everything as tables.
pub(crate) fn text(
    machine: &Machine,
    interval: u64,
    mixes: &[Mix],
    cases: &[Measured],
    draws: &[Drawn],
) -> String {
    let mut out = format!(
        "{}\ninterval {interval} B; ns of CPU time; ratio to our geometric one, by round\n",
        machine.line()
    );
    for (index, mix) in mixes.iter().enumerate() {
        line!(
            out,
            "\n{:<36}{:>8}{:>8}{:>8}{:>8}{:>9}{:>9}{:>7}",
            mix.name,
            "min",
            "p25",
            "median",
            "p75",
            "ratio",
            "samples",
            "off by"
        );
        let of_mix = || cases.iter().filter(|of| of.mix == index);
        let base = of_mix().find(|of| of.way == DrawMethod::Integer);
        for of in of_mix() {
            let time = spread(&of.times_ns);
            let ratio = base.map(|base| {
                Spread::of(of.times_ns.iter().zip(&base.times_ns).map(|(own, base)| own / base))
            });
            let samples = of.samples as f64 / of.times_ns.len() as f64;
            line!(
                out,
                "  {:<34}{:>8.2}{:>8.2}{:>8.2}{:>8.2}{:>9}{samples:>9.0}{:>5.1}sd",
                of.way.name(),
                time.min,
                time.low,
                time.median,
                time.high,
                ratio.map_or(String::new(), |ratio| format!("×{:.2}", ratio.median)),
                deviations(of, mix, interval),
            );
        }
    }
    line!(out, "\n{:<36}{:>8}{:>8}{:>8}{:>8}", "one draw", "min", "p25", "median", "p75");
    for of in draws
        .iter()
        .filter(|of| !matches!(of.way, DrawMethod::IntegerAtomic | DrawMethod::IntegerPoisson))
    {
        let time = spread(&of.times_ns);
        line!(
            out,
            "  {:<34}{:>8.2}{:>8.2}{:>8.2}{:>8.2}",
            of.way.name(),
            time.min,
            time.low,
            time.median,
            time.high
        );
    }
    out
}

/// Everything as JSON.
pub(crate) fn json(
    machine: &Machine,
    interval: u64,
    mixes: &[Mix],
    cases: &[Measured],
    draws: &[Drawn],
) -> Value {
    let case = |of: &Measured| {
        let mix = &mixes[of.mix];
        json!({
            "mix": mix.name, "way": of.way.name(), "time_ns": spread(&of.times_ns).json(), "times_ns": of.times_ns,
            "allocations": mix.sizes.len() * of.times_ns.len(), "samples": of.samples,
            "expected_samples": expected(of.way, mix, interval) * of.times_ns.len() as f64,
        })
    };
    let draw = |of: &Drawn| json!({ "way": of.way.name(), "time_ns": spread(&of.times_ns).json() });
    json!({
        "machine": {
            "processor": machine.processor, "cpus": machine.cpus, "virtual": machine.is_virtual,
            "kernel": machine.kernel, "load": machine.load,
        },
        "interval_bytes": interval,
        "cases": cases.iter().map(case).collect::<Vec<_>>(),
        "draws": draws.iter().map(draw).collect::<Vec<_>>(),
    })
}
