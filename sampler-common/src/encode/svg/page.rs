//! The page that a flame graph is drawn on, whatever its frames stand for.

use super::super::xml::escaped;
use std::io::{self, Write};

/// Maximum length of a name in a title, characters.
pub(super) const NAME: usize = 2000;
/// Maximum length of a name in a frame, since no screen is wider.
pub(super) const LABEL: usize = 200;
/// Height of a frame, and of a line of text.
pub(super) const ROW: usize = 16;
/// Columns of the text above the graph: at 7.2 units a column they fit into 1200 units.
pub(super) const COLUMNS: usize = 120;
/// Number of colors for modules. Class number `COLORS` is for names that are no functions.
pub(super) const COLORS: usize = 8;
/// Classes of the style sheet.
pub(super) const CLASSES: [&str; COLORS + 1] =
    ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"];

/// One frame with its layout; label and title are escaped.
pub(super) struct Drawn<'a> {
    pub(super) depth: usize,
    pub(super) start: f64,
    pub(super) width: f64,
    /// Ends of the interval, if the width is an estimate.
    pub(super) ends: [f64; 2],
    pub(super) label: &'a str,
    pub(super) title: &'a str,
    pub(super) class: &'a str,
}

/// The area that frames are drawn in.
pub(super) struct Page {
    /// Value of the whole width.
    pub(super) width: f64,
    /// Vertical position of the lowest frame.
    pub(super) base: usize,
}

impl Page {
    pub(super) fn draw(&self, drawn: &Drawn, out: &mut dyn Write) -> io::Result<()> {
        let Drawn { depth, start, width, ends: [low, high], label, title, class } = *drawn;
        let y = self.base.saturating_sub(depth * ROW);
        let focus = if depth == 0 { 0 } else { -1 };
        writeln!(
            out,
            "<svg class=\"f\" x=\"{:.4}%\" y=\"{y}\" width=\"{:.4}%\" height=\"{ROW}\" \
             data-v=\"{start:.0} {width:.0} {low:.0} {high:.0}\" data-d=\"{depth}\" \
             tabindex=\"{focus}\"><title>{title}</title>\
             <rect class=\"{class}\" width=\"100%\" height=\"{ROW}\"/>\
             <text x=\"3\" y=\"12\">{label}</text></svg>",
            self.percent(start),
            if depth == 0 { 100.0 } else { self.percent(width) },
        )
    }

    /// A part of the width in percent; 0 if the width is 0.
    pub(super) fn percent(&self, part: f64) -> f64 {
        let share = 100.0 * part / self.width;
        if share.is_finite() { share } else { 0.0 }
    }
}

/// The color of a name, the same in every graph (FNV-1a).
pub(super) fn color(name: &str) -> &'static str {
    let hash = name
        .bytes()
        .fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    CLASSES[hash as usize % COLORS]
}

/// Begins the picture: the unit of its numbers, its height, lines of text above the graph.
pub(super) fn open(
    unit: &str,
    height: usize,
    head: &[String],
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        out,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"1200\" height=\"{height}\" \
         viewBox=\"0 0 1200 {height}\" data-unit=\"{unit}\">\n\
         <style><![CDATA[\n{}]]></style>\n\
         <rect id=\"page\" width=\"100%\" height=\"100%\"/>\n<g class=\"head\">",
        include_str!("style.css"),
    )?;
    for (index, line) in head.iter().enumerate() {
        let y = (index + 1) * ROW;
        writeln!(out, "<text x=\"3\" y=\"{y}\" xml:space=\"preserve\">{}</text>", escaped(line))?;
    }
    writeln!(out, "</g>")
}

/// Ends the picture with the controls, from `y` on.
pub(super) fn close(y: usize, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "<text id=\"say\" x=\"3\" y=\"{y}\" xml:space=\"preserve\">\
         click or Enter: zoom; Esc: back; arrow keys: walk; /: search</text>\n\
         <g class=\"button\"><text id=\"search\" x=\"3\" y=\"{0}\">search</text>\
         <text id=\"reset\" x=\"63\" y=\"{0}\">all</text></g>\n\
         <script><![CDATA[\n{1}]]></script>\n</svg>",
        y + ROW,
        include_str!("script.js"),
    )
}
