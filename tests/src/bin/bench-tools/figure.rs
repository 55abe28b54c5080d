//! The figures as plots.

use crate::growth::Point;
use crate::kind::Kind;
use crate::ratios::{Figures, figures};
use crate::repetitions::Row;
use crate::table::reason;
use crate::tool::{Ours, Tool};
use sampler_common::units::exact_bytes;
use sampler_tests::plot::{self, Axis, Panel, Series, Style};
use sampler_tests::strips::{self, Group, Strip};

/// Ticks of slowdowns.
const TICKS: [f64; 11] = [1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 300.0, 1000.0];

/// The slowdowns of every tool on every workload, each repetition a dot.
pub(crate) fn slowdowns(subtitle: &str, rows: &[Row]) -> String {
    let group = |row: &Row| {
        let cells = row.cells.iter().filter(|cell| cell.tool != Tool::None);
        let strips = cells.enumerate().map(|(index, cell)| Strip {
            name: cell.tool.title().to_owned(),
            colour: index,
            values: figures(row, cell.tool).map_or_else(Vec::new, |of| of.slowdowns),
            note: reason(cell),
        });
        Group { title: row.workload.name().to_owned(), strips: strips.collect() }
    };
    let groups: Vec<Group> = rows.iter().map(group).collect();
    let values = groups.iter().flat_map(|group| &group.strips).flat_map(|strip| &strip.values);
    let axis = ratio_axis("CPU time by that without the profiler", values.copied());
    strips::svg("What profilers cost programs", subtitle, &axis, &groups)
}

fn ratio_axis(label: &str, values: impl Iterator<Item = f64>) -> Axis {
    let (low, top) =
        values.fold((0.95, 2.0), |(low, top): (f64, f64), of| (low.min(of), top.max(of)));
    let (low, top) = (low * 0.95, top * 1.15);
    let fits = |at: &f64| *at <= top && (top < 30.0 || ![1.5, 3.0].contains(at));
    let ticks: Vec<_> = TICKS.into_iter().filter(fits).map(|at| (at, format!("×{at}"))).collect();
    Axis::logarithmic(label, low, top, &ticks)
}

/// Modes of samplerd that differ only in their interval, bytes.
const INTERVALS: [(Tool, u64); 3] = [
    (Tool::Ours(Ours::Interval64KiB), 64 << 10),
    (Tool::Ours(Ours::Default), 512 << 10),
    (Tool::Ours(Ours::Interval4MiB), 4 << 20),
];

/// Slowdown and samples per second of every workload against the interval.
pub(crate) fn intervals(subtitle: &str, rows: &[Row]) -> String {
    let series = |of: fn(&Figures) -> [f64; 3]| -> Vec<Series> {
        let one = |(colour, row): (usize, &Row)| Series {
            name: row.workload.name().to_owned(),
            style: Style::Measured,
            colour,
            points: INTERVALS
                .iter()
                .filter_map(|(tool, bytes)| Some((*bytes as f64, of(&figures(row, *tool)?))))
                .filter(|(_, [low, ..])| *low > 0.0)
                .collect(),
        };
        rows.iter().enumerate().map(one).filter(|series| !series.points.is_empty()).collect()
    };
    let slowdown = series(|of| {
        let spread = of.slowdown();
        [spread.low, spread.median, spread.high]
    });
    let samples = series(|of| [of.samples_per_second; 3]);
    let ticks: Vec<_> =
        INTERVALS.iter().map(|(_, bytes)| (*bytes as f64, exact_bytes(*bytes))).collect();
    let x = || Axis::logarithmic("interval", 50e3, 5.4e6, &ticks);
    let ends = |series: &[Series]| -> Vec<f64> {
        series.iter().flat_map(|of| &of.points).map(|(_, [_, _, high])| *high).collect()
    };
    let top = ends(&samples).into_iter().fold(100.0, f64::max) * 1.5;
    let tens = (-1..6).map(|power| 10f64.powi(power)).filter(|at| *at <= top);
    let tens: Vec<_> = tens.map(|at| (at, count(at))).collect();
    let panels = [
        Panel {
            title: "Slowdown under samplerd (median, band the quartiles)".to_owned(),
            x: x(),
            y: ratio_axis("CPU time by that without", ends(&slowdown).into_iter()),
            series: slowdown,
        },
        Panel {
            title: "Samples for each second of CPU time of the program alone".to_owned(),
            x: x(),
            y: Axis::logarithmic("samples per second", 0.1, top, &tens),
            series: samples,
        },
    ];
    plot::svg("samplerd by its interval", subtitle, &panels)
}

fn count(number: f64) -> String {
    if number < 1000.0 { format!("{number}") } else { format!("{}k", number / 1000.0) }
}

/// Cost against what grows, each relative to the first point of its kind.
pub(crate) fn growth(subtitle: &str, points: &[Point]) -> String {
    let panels: Vec<Panel> = Kind::ALL.into_iter().filter_map(|kind| panel(kind, points)).collect();
    plot::svg("How the cost of samplerd grows", subtitle, &panels)
}

fn panel(kind: Kind, points: &[Point]) -> Option<Panel> {
    let points: Vec<&Point> = points.iter().filter(|point| point.kind == kind).collect();
    let (first, last) = (points.first()?, points.last()?);
    let series = |name: &str, colour, of: &dyn Fn(&Point) -> [f64; 3]| Series {
        name: name.to_owned(),
        style: Style::Measured,
        colour,
        points: points
            .iter()
            .map(|point| (f64::from(point.at), of(point)))
            .filter(|(_, at)| at.iter().all(|of| of.is_finite() && *of > 0.0))
            .collect(),
    };
    let added = series("added to a pair", 0, &|point| {
        let spread = point.added(first);
        [spread.low, spread.median, spread.high]
    });
    let own = series("samplerd, a sample", 1, &|point| {
        [point.own_per_sample(first).unwrap_or(f64::NAN); 3]
    });
    let all: Vec<f64> =
        added.points.iter().chain(&own.points).flat_map(|(_, ends)| *ends).collect();
    let bottom = all.iter().copied().fold(0.5, f64::min) / 1.2;
    let top = all.iter().copied().fold(2.0, f64::max) * 1.2;
    let ticks: Vec<_> = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
        .into_iter()
        .filter(|at| (bottom..=top).contains(at))
        .map(|at| (at, format!("×{at}")))
        .collect();
    let counts: Vec<_> =
        points.iter().map(|point| (f64::from(point.at), count(f64::from(point.at)))).collect();
    let (from, to) = (f64::from(first.at), f64::from(last.at));
    Some(Panel {
        title: format!("CPU time by {}", kind.name()),
        x: Axis::logarithmic(kind.name(), from / 1.2, to * 1.2, &counts),
        y: Axis::logarithmic("by that at the first point", bottom, top, &ticks),
        series: [added, own].into_iter().filter(|series| !series.points.is_empty()).collect(),
    })
}
