//! The figures as a plot.

use crate::report::spread;
use crate::rounds::{Block, Measured, per_second};
use sampler_common::sampling::Strategy;
use sampler_common::units::exact_bytes;
use sampler_tests::machine::Machine;
use sampler_tests::plot::{Axis, Panel, Series, Style, svg};

/// The plot as SVG.
pub(crate) fn draw(machine: &Machine, measured: &Measured) -> String {
    let panels = [slowdown(measured), samples(measured)];
    svg("Overhead and samples by the sampling interval", &machine.line(), &panels)
}

fn intervals(measured: &Measured) -> Axis {
    let mut at: Vec<u64> = measured.settings.iter().map(|(of, _)| of.interval_bytes).collect();
    at.sort_unstable();
    at.dedup();
    let ticks: Vec<_> = at.iter().map(|bytes| (*bytes as f64, exact_bytes(*bytes))).collect();
    let (first, last) = (at.first().copied().unwrap_or(64), at.last().copied().unwrap_or(1 << 32));
    // The margins leave a little room, also with only one interval.
    Axis::logarithmic("interval", first as f64 / 1.3, last as f64 * 1.3, &ticks)
}

fn strategies(measured: &Measured) -> Vec<Strategy> {
    let mut all: Vec<Strategy> = measured.settings.iter().map(|(of, _)| of.strategy).collect();
    all.dedup();
    all
}

fn series(
    measured: &Measured,
    figure: impl Fn(&[Block]) -> [f64; 3] + Copy,
) -> impl Iterator<Item = Series> {
    strategies(measured).into_iter().enumerate().map(move |(colour, strategy)| {
        let of = measured.settings.iter().filter(|(of, _)| of.strategy == strategy);
        let points = of.map(|(of, blocks)| (of.interval_bytes as f64, figure(blocks)));
        let name = strategy.name().to_owned();
        Series { name, style: Style::Measured, colour, points: points.collect() }
    })
}

fn slowdown(measured: &Measured) -> Panel {
    let series: Vec<Series> = series(measured, |blocks| {
        let slowdown = spread(blocks, |block| block.slowdown);
        [slowdown.low, slowdown.median, slowdown.high]
    })
    .collect();
    let ticks = [1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0].map(|at| (at, format!("×{at}")));
    let highest = series.iter().flat_map(|of| &of.points).map(|(_, [_, _, high])| *high);
    let top = highest.fold(1.5, f64::max) * 1.1;
    // The tick ×1.5 is drawn only if there is room for it.
    let fits = |at: f64| at <= top && (at != 1.5 || top < 10.0);
    let ticks: Vec<_> = ticks.into_iter().filter(|(at, _)| fits(*at)).collect();
    Panel {
        title: "Slowdown of the program (median, band the quartiles)".into(),
        x: intervals(measured),
        y: Axis::logarithmic("CPU time by that without probes", 0.9, top, &ticks),
        series,
    }
}

fn samples(measured: &Measured) -> Panel {
    let mut all: Vec<Series> =
        series(measured, |blocks| [per_second(blocks, |block| block.samples); 3]).collect();
    let bytes: Vec<_> = measured
        .settings
        .iter()
        .filter(|(of, _)| Some(of.strategy) == strategies(measured).first().copied())
        .map(|(of, blocks)| {
            let expected = per_second(blocks, |block| block.bytes) / of.interval_bytes as f64;
            (of.interval_bytes as f64, [expected; 3])
        })
        .collect();
    let name = "bytes per second/interval".into();
    all.push(Series { name, style: Style::Formula, colour: 6, points: bytes });
    let ticks = [0.01, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6];
    let text = |at: f64| match at {
        small if small < 1e3 => format!("{small}"),
        thousands if thousands < 1e6 => format!("{:.0}k", thousands / 1e3),
        _ => format!("{:.0}M", at / 1e6),
    };
    let highest = all.iter().flat_map(|of| &of.points).map(|(_, [_, _, high])| *high);
    let top = (highest.fold(1e3, f64::max) * 1.2).min(2e6);
    let ticks: Vec<_> =
        ticks.into_iter().filter(|at| *at <= top).map(|at| (at, text(at))).collect();
    // A logarithmic axis has no place for 0 samples.
    for series in &mut all {
        series.points.retain(|(_, [_, middle, _])| *middle > 0.0);
    }
    Panel {
        title: "Samples per second of the program's CPU time".into(),
        x: intervals(measured),
        y: Axis::logarithmic("samples per second", 0.01, top, &ticks),
        series: all,
    }
}
