//! The flame graph: one SVG file without references to others.
//!
//! Every viewer of pictures shows the graph. In a browser it also zooms (click, Enter), searches
//! (/) and moves with the arrow keys, in light and dark mode. The title of every frame has its
//! number with its interval, made from summed moments. Text and numbers are in elements and
//! attributes only: the script is the same in every file.

mod difference;
mod page;
mod space_time;

pub use difference::difference;
pub use space_time::space_time;

use super::functions::Function;
use super::text::Text;
use super::text::short::short;
use super::tree::{Frame, Measure, Roots, Tree};
use super::xml::escaped;
use super::{Encode, interval, name};
use crate::estimate::Estimate;
use crate::profile::{Kind, Profile};
use crate::units::grouped;
use page::{CLASSES, COLORS, COLUMNS, Drawn, LABEL, NAME, Page, ROW, close, open};
use std::io::{self, Write};

/// Maximum number of drawn frames; the smallest others are left out, and counted.
pub const MAX_FRAMES: usize = 5000;
/// Writes the flame graph: callers below, siblings by name. The width of a frame is what was
/// allocated under it.
pub struct FlameGraph {
    /// The quantity that the width shows.
    pub measure: Measure,
}

impl Encode for FlameGraph {
    fn encode(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        let roots = Roots::of(profile);
        let tree = Tree::of(profile, &roots, self.measure, MAX_FRAMES);
        let head = self.head(profile, &tree)?;
        let deepest = tree.frames.iter().map(|frame| frame.depth + 1).max().unwrap_or(0);
        let top = (head.len() + 1) * ROW;
        let base = top + deepest * ROW;
        let unit = match self.measure {
            Measure::Space => "bytes",
            Measure::Objects => "objects",
        };
        open(unit, base + 4 * ROW, &head, out)?;
        let page = Page { width: tree.width, base };
        let picture = Picture { tree: &tree, measure: self.measure, kind: profile.kind, page };
        picture.whole(out)?;
        for frame in &tree.frames {
            picture.frame(frame, out)?;
        }
        close(base + 2 * ROW, out)
    }
}

impl FlameGraph {
    /// The description of the profile, as the text table has it, and what is not drawn.
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

/// The picture that frames are drawn in.
struct Picture<'a> {
    tree: &'a Tree<'a>,
    measure: Measure,
    kind: Kind,
    page: Page,
}

impl Picture<'_> {
    /// Draws the frame that contains all others.
    fn whole(&self, out: &mut dyn Write) -> io::Result<()> {
        let total = self.tree.total;
        let title = format!("all\n{}", self.numbers(&total));
        let ends = [total.low, total.high];
        let width = self.tree.width;
        let class = CLASSES[COLORS];
        let drawn = Drawn { depth: 0, start: 0.0, width, ends, label: "all", title: &title, class };
        self.page.draw(&drawn, out)
    }

    fn frame(&self, frame: &Frame, out: &mut dyn Write) -> io::Result<()> {
        let function = self.tree.functions[frame.function];
        let full = name::shown(function.name);
        let label = short(&full, LABEL);
        let cut = short(&full, NAME);
        let title =
            format!("{}\n{}\n{}", escaped(&cut), place(function), self.numbers(&frame.estimate));
        let Estimate { value, low, high, .. } = frame.estimate;
        let drawn = Drawn {
            depth: frame.depth + 1,
            start: frame.start,
            width: value,
            ends: [low, high],
            label: &escaped(&label),
            title: &title,
            class: color(function),
        };
        self.page.draw(&drawn, out)
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
}

/// Source line and module, if known.
fn place(function: Function) -> String {
    let module = escaped(function.module).into_owned();
    match (function.file, function.line) {
        ("", _) => module,
        (file, 0) => format!("{} in {module}", escaped(file)),
        (file, line) => format!("{}:{line} in {module}", escaped(file)),
    }
}

/// The color of a function's module, the same in every graph. Names in brackets are no code and
/// have a color of their own.
fn color(function: Function) -> &'static str {
    if function.name.starts_with('[') { CLASSES[COLORS] } else { page::color(function.module) }
}

#[cfg(test)]
mod tests;
