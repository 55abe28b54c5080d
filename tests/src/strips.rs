//! Plots of distributions as SVG. Every measured item has one row of dots with its median marked.
//! Groups of rows are below one another on one axis.

use crate::plot::{Axis, COLOURS, HEAD, WIDTH, escaped, line, page};
use crate::spread::Spread;
use std::fmt::Write as _;

const LEFT: f64 = 210.0;
const RIGHT: f64 = 24.0;
const ROW: f64 = 16.0;
/// Margins above and below the rows of a group.
const TOP: f64 = 26.0;
const BOTTOM: f64 = 48.0;

/// A row of dots.
#[derive(Clone, Debug)]
pub struct Strip {
    /// Name to the left of the row.
    pub name: String,
    /// Index of the colour.
    pub colour: usize,
    /// The dots. `note` is printed if there are none.
    pub values: Vec<f64>,
    /// Why the row has no dots.
    pub note: String,
}

/// Rows with a title.
#[derive(Clone, Debug)]
pub struct Group {
    /// Title of the group.
    pub title: String,
    /// The rows from top to bottom.
    pub strips: Vec<Strip>,
}

/// The groups under a title and a line about the measurement, all on `axis`.
pub fn svg(title: &str, subtitle: &str, axis: &Axis, groups: &[Group]) -> String {
    let tall = |group: &Group| TOP + BOTTOM + ROW * group.strips.len() as f64;
    let height = HEAD + groups.iter().map(tall).sum::<f64>();
    page(title, subtitle, height, |out| {
        let mut above = HEAD;
        for group in groups {
            line!(out, r#"<g transform="translate({LEFT} {})">"#, above + TOP);
            draw(out, axis, group);
            line!(out, "</g>");
            above += tall(group);
        }
    })
}

fn draw(out: &mut String, axis: &Axis, group: &Group) {
    let (wide, tall) = (WIDTH - LEFT - RIGHT, ROW * group.strips.len() as f64);
    line!(out, r#"<text x="0" y="-9" font-size="14">{}</text>"#, escaped(&group.title));
    for (at, text) in &axis.ticks {
        let x = (at - axis.low) / (axis.high - axis.low) * wide;
        line!(out, r##"<path d="M{x:.1} 0V{tall}" stroke="#ddd"/>"##);
        let y = tall + 15.0;
        line!(out, r#"<text x="{x:.1}" y="{y}" text-anchor="middle">{}</text>"#, escaped(text));
    }
    line!(out, r##"<path d="M0 0V{tall}H{wide}" fill="none" stroke="#666"/>"##);
    let (middle, below) = (wide / 2.0, tall + 32.0);
    let label = escaped(&axis.label);
    line!(out, r#"<text x="{middle}" y="{below}" text-anchor="middle">{label}</text>"#);
    for (index, strip) in group.strips.iter().enumerate() {
        let y = ROW * (index as f64 + 0.5);
        let baseline = y + 4.0;
        let name = escaped(&strip.name);
        line!(out, r#"<text x="-8" y="{baseline}" text-anchor="end">{name}</text>"#);
        let place = |value: f64| axis.place(value).clamp(0.0, 1.0) * wide;
        row(out, strip, y, place);
    }
}

fn row(out: &mut String, strip: &Strip, y: f64, place: impl Fn(f64) -> f64) {
    let colour = COLOURS[strip.colour % COLOURS.len()];
    if strip.values.is_empty() {
        let baseline = y + 4.0;
        let note = escaped(&strip.note);
        line!(out, r##"<text x="8" y="{baseline}" font-size="10" fill="#888">{note}</text>"##);
        return;
    }
    let spread = Spread::of(strip.values.iter().copied());
    let (low, high) = (place(spread.low), place(spread.high));
    line!(
        out,
        r#"<path d="M{low:.1} {y}H{high:.1}" stroke="{colour}" stroke-width="6" stroke-opacity="0.25"/>"#
    );
    for value in &strip.values {
        let x = place(*value);
        line!(out, r#"<circle cx="{x:.1}" cy="{y}" r="2.6" fill="{colour}" fill-opacity="0.6"/>"#);
    }
    let (median, up, down) = (place(spread.median), y - 6.0, y + 6.0);
    line!(out, r#"<path d="M{median:.1} {up}V{down}" stroke="{colour}" stroke-width="2"/>"#);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_lie_where_their_values_are() {
        let axis = Axis::logarithmic("slower", 1.0, 16.0, &[(4.0, "×4".to_owned())]);
        let strip = |values: &[f64], note: &str| Strip {
            name: "a & b".to_owned(),
            colour: 0,
            values: values.to_vec(),
            note: note.to_owned(),
        };
        let strips = vec![strip(&[4.0, 1.0, 100.0], ""), strip(&[], "not <there>")];
        let out = svg("t", "s", &axis, &[Group { title: "g".to_owned(), strips }]);
        let wide = WIDTH - LEFT - RIGHT;
        // The middle of the axis, its beginning, and a value beyond its end.
        for x in [wide / 2.0, 0.0, wide] {
            assert!(out.contains(&format!(r#"<circle cx="{x:.1}""#)), "{x}: {out}");
        }
        assert!(out.contains("not &lt;there&gt;") && out.contains("a &amp; b"));
        assert_eq!(out.matches("<g").count(), out.matches("</g>").count());
    }
}
