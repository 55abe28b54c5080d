//! The flame graph: one SVG that needs nothing else.
//!
//! A picture for whoever only shows pictures; in a browser it zooms (click, Enter), searches (/) and is walked with the arrow keys, in
//! light and dark. The title of every frame has its number with its interval, made of summed moments. The text and the numbers
//! are in elements and attributes only: the script is the same in every file.

use super::functions::Function;
use super::text::Text;
use super::text::short::short;
use super::tree::{Frame, Measure, Tree};
use super::xml::escaped;
use super::{Encode, interval, name};
use crate::estimate::Estimate;
use crate::profile::{Kind, Profile};
use crate::units::grouped;
use std::io::{self, Write};

/// Frames drawn; those with least are left out, and counted.
pub const MAX_FRAMES: usize = 5000;
/// Longest name in a title, characters.
const NAME: usize = 2000;
/// Longest name in a frame: no screen is wider.
const LABEL: usize = 200;
/// Height of a frame, and of a line of text.
const ROW: usize = 16;
/// Columns of the text above: at 7.2 units a column it fits 1200.
const COLUMNS: usize = 120;
/// Colors for modules; the next one is for what is no function.
const COLORS: u32 = 8;

/// Writes the flame graph: callers below, siblings by name, as wide as what was allocated under them.
pub struct FlameGraph {
    /// What the width stands for.
    pub measure: Measure,
}

impl Encode for FlameGraph {
    fn encode(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        let tree = Tree::of(profile, self.measure, MAX_FRAMES);
        let head = self.head(profile, &tree)?;
        let deepest = tree.frames.iter().map(|frame| frame.depth + 1).max().unwrap_or(0);
        let top = (head.len() + 1) * ROW;
        let base = top + deepest * ROW;
        let unit = match self.measure {
            Measure::Space => "bytes",
            Measure::Objects => "objects",
        };
        open(unit, base + 4 * ROW, &head, out)?;
        let picture = Picture { tree: &tree, measure: self.measure, kind: profile.kind, base };
        picture.whole(out)?;
        for frame in &tree.frames {
            picture.frame(frame, out)?;
        }
        close(base + 2 * ROW, out)
    }
}

impl FlameGraph {
    /// What the profile is about, as the table for people has it, and what is not drawn.
    fn head(&self, profile: &Profile, tree: &Tree) -> io::Result<Vec<String>> {
        let mut text = Vec::new();
        Text { width: COLUMNS, color: false, rows: 0, stacks: 0 }.encode(profile, &mut text)?;
        let mut lines: Vec<String> =
            String::from_utf8_lossy(&text).lines().map(str::to_owned).collect();
        let drawn = tree.frames.len() as u64;
        lines.push(match (self.measure, tree.left_out) {
            (Measure::Space, 0) => "width     bytes".to_owned(),
            (Measure::Objects, 0) => "width     objects".to_owned(),
            (measure, rest) => format!(
                "width     {}; {} frames drawn, {} with less are not",
                if measure == Measure::Space { "bytes" } else { "objects" },
                grouped(drawn),
                grouped(rest as u64),
            ),
        });
        Ok(lines)
    }
}

/// Where frames are drawn.
struct Picture<'a> {
    tree: &'a Tree<'a>,
    measure: Measure,
    kind: Kind,
    /// Below everything.
    base: usize,
}

/// One frame, laid out.
struct Drawn<'a> {
    depth: usize,
    start: f64,
    estimate: Estimate,
    label: &'a str,
    title: &'a str,
    color: u32,
}

impl Picture<'_> {
    /// What everything is in.
    fn whole(&self, out: &mut dyn Write) -> io::Result<()> {
        let total = self.tree.total;
        let title = format!("all\n{}", self.numbers(&total));
        let estimate = Estimate { value: self.tree.width, ..total };
        self.draw(
            Drawn { depth: 0, start: 0.0, estimate, label: "all", title: &title, color: COLORS },
            out,
        )
    }

    fn frame(&self, frame: &Frame, out: &mut dyn Write) -> io::Result<()> {
        let function = self.tree.functions[frame.function];
        let full = name::shown(function.name);
        let label = short(&full, LABEL);
        let cut = short(&full, NAME);
        let title =
            format!("{}\n{}\n{}", escaped(&cut), place(function), self.numbers(&frame.estimate));
        self.draw(
            Drawn {
                depth: frame.depth + 1,
                start: frame.start,
                estimate: frame.estimate,
                label: &escaped(&label),
                title: &title,
                color: color(function),
            },
            out,
        )
    }

    /// `607 MiB ±6% (572 MiB … 642 MiB) allocated, 45.6%, 1,210 samples`.
    fn numbers(&self, estimate: &Estimate) -> String {
        let what = if self.kind == Kind::Alloc { "allocated" } else { "held" };
        let value = match self.measure {
            Measure::Space => format!("{} {what}", interval::bytes(estimate)),
            Measure::Objects => format!("{} objects {what}", interval::objects(estimate)),
        };
        let share = 100.0 * estimate.value / self.tree.width;
        let share = if share.is_finite() { share } else { 0.0 };
        let (samples, noun) = match estimate.samples {
            1 => ("1".to_owned(), "sample"),
            n => (grouped(n), "samples"),
        };
        format!("{value}, {share:.1}%, {samples} {noun}")
    }

    fn draw(&self, drawn: Drawn, out: &mut dyn Write) -> io::Result<()> {
        let Drawn { depth, start, estimate, label, title, color } = drawn;
        let percent = |part: f64| {
            let share = 100.0 * part / self.tree.width;
            if share.is_finite() { share } else { 0.0 }
        };
        let y = self.base.saturating_sub(depth * ROW);
        let focus = if depth == 0 { 0 } else { -1 };
        let Estimate { value, low, high, .. } = estimate;
        writeln!(
            out,
            "<svg class=\"f\" x=\"{:.4}%\" y=\"{y}\" width=\"{:.4}%\" height=\"{ROW}\" \
             data-v=\"{start:.0} {value:.0} {low:.0} {high:.0}\" data-d=\"{depth}\" \
             tabindex=\"{focus}\"><title>{title}</title>\
             <rect class=\"c{color}\" width=\"100%\" height=\"{ROW}\"/>\
             <text x=\"3\" y=\"12\">{label}</text></svg>",
            percent(start),
            if depth == 0 { 100.0 } else { percent(value) },
        )
    }
}

/// Source line and module, as far as they are known.
fn place(function: Function) -> String {
    let module = escaped(function.module).into_owned();
    match (function.file, function.line) {
        ("", _) => module,
        (file, 0) => format!("{} in {module}", escaped(file)),
        (file, line) => format!("{}:{line} in {module}", escaped(file)),
    }
}

/// By module, the same in every graph (FNV-1a); what is in brackets is no code.
fn color(function: Function) -> u32 {
    if function.name.starts_with('[') {
        return COLORS;
    }
    let bytes = function.module.bytes();
    bytes.fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
        % COLORS
}

fn open(unit: &str, height: usize, head: &[String], out: &mut dyn Write) -> io::Result<()> {
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

fn close(y: usize, out: &mut dyn Write) -> io::Result<()> {
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

#[cfg(test)]
mod tests;
