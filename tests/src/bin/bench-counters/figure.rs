//! The figures as a plot.

use crate::accuracy::{Error, What};
use crate::cases::{EVENTS, Kind, several};
use crate::rounds::{Measured, find};
use sampler_common::counting::Switch;
use sampler_tests::machine::Machine;
use sampler_tests::plot::{Axis, Panel, Series, Style, svg};

/// The plot as SVG.
pub(crate) fn draw(machine: &Machine, measured: &[Measured], errors: &[Error]) -> String {
    let threads = several(machine.cpus);
    let panels = [
        counted(measured, threads),
        by_count(errors),
        by_switch(errors),
        cost(measured, threads),
        cost_by_switch(measured, threads),
    ];
    svg("Counters that CPUs share", &machine.line(), &panels)
}

fn percent(at: f64) -> String {
    format!("{at:.0} %")
}

fn signed(at: f64) -> String {
    if at == 0.0 { "0 %".into() } else { format!("{at:+.0} %") }
}

fn powers(label: &str, from: u32, to: u32, step: usize) -> Axis {
    let ticks: Vec<_> =
        (from..=to).step_by(step).map(|at| (2f64.powi(at as i32), superscript(at))).collect();
    Axis::logarithmic(label, 2f64.powi(from as i32), 2f64.powi(to as i32), &ticks)
}

/// 2 to the power of `exponent`, in superscript digits.
fn superscript(exponent: u32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let digits = exponent.to_string();
    let raised = digits.chars().filter_map(|digit| digit.to_digit(10)).map(|d| DIGITS[d as usize]);
    format!("2{}", raised.collect::<String>())
}

fn colour(kind: Kind) -> usize {
    match kind {
        Kind::Racing => 1,
        Kind::Interlocked => 0,
        Kind::Scalable(switch) if switch == Switch::DEFAULT => 2,
        Kind::Scalable(_) => 3,
        Kind::ExchangeFirst(_) => 5,
        Kind::Sharded => 4,
    }
}

/// A series against the number of events.
fn over_events(
    measured: &[Measured],
    threads: usize,
    kind: Kind,
    value: impl Fn(&Measured) -> [f64; 3],
) -> Series {
    let totals = (4..=20).step_by(2).map(|log2| 1u64 << log2);
    let points = totals.filter_map(|total| {
        find(measured, kind, threads, total / threads as u64).map(|of| (total as f64, value(of)))
    });
    Series {
        name: kind.name(),
        style: Style::Measured,
        colour: colour(kind),
        points: points.collect(),
    }
}

fn counted(measured: &[Measured], threads: usize) -> Panel {
    let kinds = [Kind::Racing, Kind::Interlocked, Kind::Scalable(Switch::DEFAULT), Kind::Sharded];
    let share = |of: &Measured| of.share().map(|share| 100.0 * share);
    Panel {
        title: format!("What is counted by {threads} threads (mean, band 5 % to 95 %)"),
        x: powers("events", 4, 20, 2),
        y: Axis::linear("share of the events", 0.0, 110.0, 20.0, percent),
        series: kinds.map(|kind| over_events(measured, threads, kind, share)).into(),
    }
}

/// Two dashed lines around 0.
fn formula(points: Vec<(f64, f64)>) -> [Series; 2] {
    [1.0, -1.0].map(|sign| Series {
        name: format!("{}1.645 s.d., formula", if sign > 0.0 { "+" } else { "−" }),
        style: Style::Formula,
        colour: 6,
        points: points.iter().map(|(x, y)| (*x, [sign * y; 3])).collect(),
    })
}

fn error_of(share: f64) -> f64 {
    100.0 * (share - 1.0)
}

fn by_count(errors: &[Error]) -> Panel {
    let of: Vec<&Error> = errors.iter().filter(|error| error.what == What::Count).collect();
    let band = Series {
        name: "5 %, mean, 95 %".into(),
        style: Style::Measured,
        colour: 2,
        points: of.iter().map(|error| (error.truth, error.share.map(error_of))).collect(),
    };
    let extremes = |name: &str, index: usize| Series {
        name: name.into(),
        style: Style::Measured,
        colour: 5,
        points: of.iter().map(|e| (e.truth, [error_of(e.extremes[index]); 3])).collect(),
    };
    // The formula is drawn between the measured counts too: its dents are sharp.
    let fine = (36 * 8..=54 * 8).map(|part| 2f64.powf(f64::from(part) / 24.0));
    let sd = |events: f64| Switch::DEFAULT.variance(events as u64).sqrt() / events;
    let lines = formula(fine.map(|events| (events, 164.5 * sd(events))).collect());
    let mut series = vec![band, extremes("largest", 1), extremes("least", 0)];
    series.extend(lines);
    Panel {
        title: "Error of the scalable counter, switch-over 2¹³".into(),
        x: powers("events", 12, 18, 1),
        y: Axis::linear("error", -4.0, 4.0, 1.0, signed),
        series,
    }
}

fn by_switch(errors: &[Error]) -> Panel {
    let place = |error: &Error| 2f64.powi(error.switch.log2() as i32);
    let of = |what: What| errors.iter().filter(move |error| error.what == what);
    let band = |what, name: &str, colour| Series {
        name: name.into(),
        style: Style::Measured,
        colour,
        points: of(what).map(|error| (place(error), error.share.map(error_of))).collect(),
    };
    let lines = formula(of(What::Sweep).map(|e| (place(e), 164.5 * e.formula)).collect());
    let mut series =
        vec![band(What::Sweep, "events", 2), band(What::Bytes, "bytes, seven sizes", 3)];
    series.extend(lines);
    Panel {
        title: "Error of the scalable counter by its switch-over (mean, band 5 % to 95 %)".into(),
        x: powers("switch-over", 8, 16, 1),
        y: Axis::linear("error", -10.0, 10.0, 5.0, signed),
        series,
    }
}

/// An axis from 0 to the highest median that is drawn.
fn nanoseconds(series: &[Series]) -> Axis {
    let medians = series.iter().flat_map(|of| &of.points).map(|(_, [_, median, _])| *median);
    let highest = medians.fold(1.0, f64::max) * 1.05;
    let step = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
    let step = step.into_iter().find(|step| highest / step <= 7.0).unwrap_or(200.0);
    let high = (highest / step).ceil() * step;
    Axis::linear("CPU time of an event, ns", 0.0, high, step, |at| format!("{at:.0}"))
}

fn quartiles(of: &Measured) -> [f64; 3] {
    let time = of.time();
    [time.low, time.median, time.high]
}

fn cost(measured: &[Measured], threads: usize) -> Panel {
    let mut series: Vec<Series> =
        Kind::ALL.map(|kind| over_events(measured, threads, kind, quartiles)).into();
    // With fewer events the threads have hardly begun.
    series.iter_mut().for_each(|of| of.points.retain(|(events, _)| *events >= 1024.0));
    Panel {
        title: format!("What an event costs {threads} threads (median, band the quartiles)"),
        x: powers("events", 10, 20, 2),
        y: nanoseconds(&series),
        series,
    }
}

fn cost_by_switch(measured: &[Measured], threads: usize) -> Panel {
    let log2s = Switch::MIN_LOG2..=Switch::MAX_LOG2;
    let scalable = log2s.clone().filter_map(|log2| {
        let kind = Kind::Scalable(Switch::at(log2)?);
        let of = find(measured, kind, threads, EVENTS)?;
        Some((2f64.powi(log2 as i32), quartiles(of)))
    });
    let mut series = vec![Series {
        name: "scalable".into(),
        style: Style::Measured,
        colour: 2,
        points: scalable.collect(),
    }];
    for kind in [Kind::Racing, Kind::Interlocked, Kind::Sharded] {
        let Some(of) = find(measured, kind, threads, EVENTS) else { continue };
        let ends = [*log2s.start(), *log2s.end()].map(|at| (2f64.powi(at as i32), quartiles(of)));
        let style = Style::Formula;
        series.push(Series { name: kind.name(), style, colour: colour(kind), points: ends.into() });
    }
    Panel {
        title: format!(
            "What an event costs {threads} threads, {} events in all",
            EVENTS * threads as u64
        ),
        x: powers("switch-over", 8, 16, 1),
        y: nanoseconds(&series),
        series,
    }
}
