//! The figures as tables, and as JSON.

use crate::rounds::{Block, Measured, Setting, per_second};
use sampler_common::units::{exact_bytes, human_bytes, human_count};
use sampler_tests::machine::Machine;
use sampler_tests::spread::Spread;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Spread of a figure over all rounds.
pub(crate) fn spread(blocks: &[Block], figure: impl Fn(&Block) -> f64) -> Spread {
    Spread::of(blocks.iter().map(figure))
}

/// Share of the samples whose record found no room.
fn lost(blocks: &[Block]) -> f64 {
    let sum = |figure: fn(&Block) -> f64| blocks.iter().map(figure).sum::<f64>();
    sum(|block| block.lost) / sum(|block| block.samples).max(1.0)
}

fn rate(per_second: f64) -> String {
    if per_second < 100.0 { format!("{per_second:.2}") } else { human_count(per_second) }
}

/// Everything as a table.
pub(crate) fn text(machine: &Machine, measured: &Measured) -> String {
    let Measured { settings, drift, unprobed_s } = measured;
    let mut out = format!(
        "{}\nCPU time of the program by that without probes ({:.0} ms a block; the blocks after a round by those before it: ×{:.3} [{:.3} … {:.3}])\n",
        machine.line(),
        1000.0 * unprobed_s.median,
        drift.median,
        drift.low,
        drift.high,
    );
    let heads = ["interval", "min", "p25", "median", "p75", "samples/s", "lost"];
    let mut last = None;
    for (setting, blocks) in settings {
        if last != Some(setting.strategy) {
            last = Some(setting.strategy);
            let heads = heads.map(|head| format!("{head:>11}"));
            // Writing to a String cannot fail.
            let _ = writeln!(out, "\n{:<12}{}", setting.strategy.name(), heads.concat());
        }
        let slowdown = spread(blocks, |block| block.slowdown);
        let figures = [
            exact_bytes(setting.interval_bytes),
            format!("×{:.3}", slowdown.min),
            format!("×{:.3}", slowdown.low),
            format!("×{:.3}", slowdown.median),
            format!("×{:.3}", slowdown.high),
            rate(per_second(blocks, |block| block.samples)),
            format!("{:.1} %", 100.0 * lost(blocks)),
        ];
        let _ = writeln!(out, "{:<12}{}", "", figures.map(|of| format!("{of:>11}")).concat());
    }
    let largest = settings.iter().max_by_key(|(setting, _)| setting.interval_bytes);
    if let Some((_, blocks)) = largest {
        let _ = writeln!(
            out,
            "\nat the largest interval {} allocations and {} a second",
            human_count(per_second(blocks, |block| block.objects)),
            human_bytes(per_second(blocks, |block| block.bytes)),
        );
    }
    out
}

/// Everything as JSON.
pub(crate) fn json(machine: &Machine, measured: &Measured) -> Value {
    let setting = |(setting, blocks): &(Setting, Vec<Block>)| {
        json!({
            "strategy": setting.strategy.name(),
            "interval_bytes": setting.interval_bytes,
            "slowdown": spread(blocks, |block| block.slowdown).json(),
            "samples_per_second": per_second(blocks, |block| block.samples),
            "samples": blocks.iter().map(|block| block.samples).sum::<f64>(),
            "lost": lost(blocks),
            "allocations_per_second": per_second(blocks, |block| block.objects),
            "bytes_per_second": per_second(blocks, |block| block.bytes),
            "slowdowns": blocks.iter().map(|block| block.slowdown).collect::<Vec<_>>(),
        })
    };
    json!({
        "machine": {
            "processor": machine.processor, "cpus": machine.cpus, "virtual": machine.is_virtual,
            "kernel": machine.kernel, "load": machine.load,
        },
        "unprobed_s": measured.unprobed_s.json(),
        "drift": measured.drift.json(),
        "settings": measured.settings.iter().map(setting).collect::<Vec<_>>(),
    })
}
