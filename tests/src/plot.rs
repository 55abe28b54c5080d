//! Plots of benchmarks as SVG: panels below one another, lines and bands on given axes.
//!
//! The module supports only what the benchmarks draw. Numbers come in as they were measured. The
//! caller chooses where an axis begins and ends; points outside the axis are cut off.

use std::fmt::Write as _;

/// Width of every picture, height of a panel, and height of the title above the first panel.
pub(crate) const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 320.0;
pub(crate) const HEAD: f64 = 64.0;
/// Margins around the plotted area of a panel. The key is to the right of the area.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 52.0;

/// The colours of Okabe and Ito, which all eyes tell apart.
pub(crate) const COLOURS: [&str; 9] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#444444", "#8c564b",
    "#8a8a00",
];

/// An axis with its ticks.
#[derive(Clone, Debug)]
pub struct Axis {
    pub(crate) label: String,
    /// Ends of the axis in the terms of its scale: logarithms on a logarithmic axis.
    pub(crate) low: f64,
    pub(crate) high: f64,
    logarithmic: bool,
    pub(crate) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis of equal steps. Every multiple of `step` from `low` to `high` has a tick, written by
    /// `text`.
    pub fn linear(label: &str, low: f64, high: f64, step: f64, text: fn(f64) -> String) -> Axis {
        let count = ((high - low) / step + 1e-9) as u32;
        let ticks = (0..=count).map(|i| low + f64::from(i) * step).map(|at| (at, text(at)));
        Axis { label: label.to_owned(), low, high, logarithmic: false, ticks: ticks.collect() }
    }

    /// An axis of equal ratios from `low` to `high`, with these ticks.
    pub fn logarithmic(label: &str, low: f64, high: f64, ticks: &[(f64, String)]) -> Axis {
        let ticks = ticks.iter().map(|(at, text)| (at.log2(), text.clone())).collect();
        Axis {
            label: label.to_owned(),
            low: low.log2(),
            high: high.log2(),
            logarithmic: true,
            ticks,
        }
    }

    /// Position of `value` on the axis, 0 … 1.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.log2() } else { value };
        (value - self.low) / (self.high - self.low)
    }
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Measured: a line with its points.
    Measured,
    /// Computed: a dashed line.
    Formula,
}

/// A line with a name.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name in the key.
    pub name: String,
    /// How the series is drawn.
    pub style: Style,
    /// Index of the colour; series that belong together share one.
    pub colour: usize,
    /// x, with low, middle and high of y. A band is drawn where the three differ.
    pub points: Vec<(f64, [f64; 3])>,
}

/// A plot on axes of its own.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Title of the panel.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The series, the first at the bottom.
    pub series: Vec<Series>,
}

// Writing to a String cannot fail.
macro_rules! line {
    ($out:expr, $($format:tt)*) => {{ let _ = writeln!($out, $($format)*); }};
}

pub(crate) use line;

/// A picture with a title and a line about the measurement. `body` draws below [`HEAD`]. All
/// pictures have one width.
pub(crate) fn page(
    title: &str,
    subtitle: &str,
    height: f64,
    body: impl FnOnce(&mut String),
) -> String {
    let mut out = String::new();
    line!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12" fill="#222">"##
    );
    line!(out, r#"<rect width="{WIDTH}" height="{height}" fill="white"/>"#);
    line!(out, r#"<text x="16" y="28" font-size="17">{}</text>"#, escaped(title));
    line!(out, r##"<text x="16" y="48" font-size="11" fill="#666">{}</text>"##, escaped(subtitle));
    body(&mut out);
    line!(out, "</svg>");
    out
}

/// The panels under a title and a line about the measurement.
pub fn svg(title: &str, subtitle: &str, panels: &[Panel]) -> String {
    page(title, subtitle, HEAD + HEIGHT * panels.len() as f64, |out| {
        for (index, panel) in panels.iter().enumerate() {
            line!(out, r#"<g transform="translate(0 {})">"#, HEAD + HEIGHT * index as f64);
            draw(out, index, panel);
            line!(out, "</g>");
        }
    })
}

fn draw(out: &mut String, index: usize, panel: &Panel) {
    let (wide, tall) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    line!(out, r#"<text x="{LEFT}" y="20" font-size="14">{}</text>"#, escaped(&panel.title));
    line!(out, r#"<g transform="translate({LEFT} {TOP})">"#);
    line!(out, r#"<clipPath id="area{index}"><rect width="{wide}" height="{tall}"/></clipPath>"#);
    for (at, text) in &panel.x.ticks {
        let x = (at - panel.x.low) / (panel.x.high - panel.x.low) * wide;
        line!(out, r##"<path d="M{x:.1} 0V{tall}" stroke="#eee"/>"##);
        let y = tall + 17.0;
        line!(out, r#"<text x="{x:.1}" y="{y}" text-anchor="middle">{}</text>"#, escaped(text));
    }
    for (at, text) in &panel.y.ticks {
        let y = tall - (at - panel.y.low) / (panel.y.high - panel.y.low) * tall;
        line!(out, r##"<path d="M0 {y:.1}H{wide}" stroke="#ddd"/>"##);
        let baseline = y + 4.0;
        line!(out, r#"<text x="-7" y="{baseline:.1}" text-anchor="end">{}</text>"#, escaped(text));
    }
    line!(out, r##"<path d="M0 0V{tall}H{wide}" fill="none" stroke="#666"/>"##);
    let (middle, below) = (wide / 2.0, tall + 38.0);
    let (x_label, y_label) = (escaped(&panel.x.label), escaped(&panel.y.label));
    line!(out, r#"<text x="{middle}" y="{below}" text-anchor="middle">{x_label}</text>"#);
    let (up, aside) = (-tall / 2.0, 14.0 - LEFT);
    line!(
        out,
        r#"<text transform="rotate(-90)" x="{up}" y="{aside}" text-anchor="middle">{y_label}</text>"#
    );
    for (row, series) in panel.series.iter().enumerate() {
        let place = |x: f64, y: f64| (panel.x.place(x) * wide, tall - panel.y.place(y) * tall);
        let colour = COLOURS[series.colour % COLOURS.len()];
        line!(out, r#"<g clip-path="url(#area{index})">"#);
        curve(out, series, colour, place);
        line!(out, "</g>");
        key(out, series, colour, wide + 14.0, 8.0 + 19.0 * row as f64);
    }
    line!(out, "</g>");
}

fn curve(out: &mut String, series: &Series, colour: &str, place: impl Fn(f64, f64) -> (f64, f64)) {
    let at = |x: f64, y: f64| {
        let (x, y) = place(x, y);
        format!("{x:.1} {y:.1}")
    };
    let points = &series.points;
    if points.iter().any(|(_, [low, _, high])| low < high) {
        let upper = points.iter().map(|(x, [_, _, high])| at(*x, *high));
        let lower = points.iter().rev().map(|(x, [low, _, _])| at(*x, *low));
        let around: Vec<String> = upper.chain(lower).collect();
        line!(out, r#"<path d="M{}Z" fill="{colour}" fill-opacity="0.16"/>"#, around.join("L"));
    }
    let middle: Vec<String> = points.iter().map(|(x, [_, y, _])| at(*x, *y)).collect();
    let dashes = if series.style == Style::Formula { r#" stroke-dasharray="5 4""# } else { "" };
    line!(
        out,
        r#"<path d="M{}" fill="none" stroke="{colour}" stroke-width="1.6"{dashes}/>"#,
        middle.join("L")
    );
    if series.style == Style::Measured {
        for (x, [_, y, _]) in points {
            let (x, y) = place(*x, *y);
            line!(out, r#"<circle cx="{x:.1}" cy="{y:.1}" r="2.4" fill="{colour}"/>"#);
        }
    }
}

fn key(out: &mut String, series: &Series, colour: &str, x: f64, y: f64) {
    let dashes = if series.style == Style::Formula { r#" stroke-dasharray="5 4""# } else { "" };
    line!(out, r#"<path d="M{x} {y}h20" stroke="{colour}" stroke-width="2.4"{dashes}/>"#);
    let (text_x, text_y) = (x + 26.0, y + 4.0);
    line!(out, r#"<text x="{text_x}" y="{text_y}">{}</text>"#, escaped(&series.name));
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_place_values() {
        let linear = Axis::linear("y", 0.0, 4.0, 1.0, |at| at.to_string());
        assert_eq!(linear.ticks.len(), 5);
        assert_eq!((linear.place(0.0), linear.place(1.0), linear.place(4.0)), (0.0, 0.25, 1.0));
        let ratio = Axis::logarithmic("x", 16.0, 256.0, &[(64.0, "64".to_owned())]);
        assert_eq!((ratio.place(16.0), ratio.place(64.0), ratio.place(256.0)), (0.0, 0.5, 1.0));
    }

    #[test]
    fn text_cannot_break_the_document() {
        let axis = Axis::linear("<y>", 0.0, 1.0, 1.0, |at| at.to_string());
        let series = Series {
            name: "a & b".into(),
            style: Style::Measured,
            colour: 9,
            points: vec![(0.0, [0.0, 0.5, 1.0]), (1.0, [0.2, 0.5, 0.7])],
        };
        let panel = Panel { title: "t".into(), x: axis.clone(), y: axis, series: vec![series] };
        let out = svg("1 < 2", "", &[panel]);
        assert!(out.contains("a &amp; b") && out.contains("&lt;y&gt;") && out.contains("1 &lt; 2"));
        assert_eq!(out.matches("<g").count(), out.matches("</g>").count());
    }
}
