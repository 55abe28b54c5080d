//! The table that people read in a terminal.
//!
//! Three parts: totals with their intervals; functions by their own and their total bytes; the largest
//! stacks. `±` is the larger distance from the estimate to an end of its interval, in percent of the
//! estimate. A function's numbers are made from the summed moments of its stacks, never from their bounds.

mod allocator;
mod functions;
mod header;
mod layout;
mod stacks;

use super::Encode;
use crate::estimate::Estimate;
use crate::profile::{Kind, Line, Profile, Stack};
use std::io::{self, Write};

/// Writes the table.
pub struct Text {
    /// Columns that the table may use; fewer than 60 count as 60.
    pub width: usize,
    /// Whether to emphasize with escape sequences.
    pub color: bool,
    /// Functions to show; 0 leaves the part out.
    pub rows: usize,
    /// Stacks to show; 0 leaves the part out.
    pub stacks: usize,
}

impl Text {
    /// Functions shown where nobody says how many.
    pub const DEFAULT_ROWS: usize = 20;
    /// Stacks shown where nobody says how many.
    pub const DEFAULT_STACKS: usize = 5;
    const MIN_WIDTH: usize = 60;
}

impl Encode for Text {
    fn encode(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        let page = Page { width: self.width.max(Text::MIN_WIDTH), color: self.color };
        header::write(profile, page, out)?;
        if self.rows > 0 {
            functions::write(profile, page, self.rows, out)?;
        }
        if self.stacks > 0 {
            stacks::write(profile, page, self.stacks, out)?;
        }
        Ok(())
    }
}

/// What is written on.
#[derive(Clone, Copy)]
struct Page {
    width: usize,
    color: bool,
}

impl Page {
    fn bold(self, text: &str) -> String {
        self.styled("1", text)
    }

    fn dim(self, text: &str) -> String {
        self.styled("2", text)
    }

    fn styled(self, code: &str, text: &str) -> String {
        if self.color && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// A frame with the file that it lies in.
#[derive(Clone, Copy)]
struct Frame<'a> {
    line: &'a Line,
    module: &'a str,
}

impl Frame<'_> {
    /// `file.c:12` without directories; the module where the source is unknown.
    fn place(self) -> String {
        match (self.line.file.as_str(), self.line.line) {
            ("", _) => base_name(self.module).to_owned(),
            (file, 0) => base_name(file).to_owned(),
            (file, line) => format!("{}:{line}", base_name(file)),
        }
    }
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

/// Frames of a stack, leaf first, inlined ones included.
fn leaf_first<'a>(profile: &'a Profile, stack: &'a Stack) -> impl Iterator<Item = Frame<'a>> {
    stack.locations.iter().flat_map(|index| {
        let location = &profile.locations[*index as usize];
        let module = profile.mappings[location.mapping as usize].path.as_str();
        location.lines.iter().map(move |line| Frame { line, module })
    })
}

/// `±12%`: the larger distance to an end of the interval. Beyond 999 % the number says nothing more.
fn plus_minus(estimate: &Estimate) -> String {
    let half = (estimate.high - estimate.value).max(estimate.value - estimate.low);
    let percent = 100.0 * half / estimate.value;
    match percent {
        _ if estimate.value <= 0.0 => String::new(),
        p if p < 0.95 => format!("±{p:.1}%"),
        p if p <= 999.0 => format!("±{p:.0}%"),
        _ => ">999%".to_owned(),
    }
}

/// Share of a total, at most five columns.
fn share(part: f64, whole: f64) -> String {
    match 100.0 * part / whole {
        _ if whole <= 0.0 => "0%".to_owned(),
        p if p >= 99.95 => "100%".to_owned(),
        p => format!("{p:.1}%"),
    }
}

/// What the bytes of a kind are called in a sentence.
fn bytes_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Alloc => "allocated",
        Kind::Live => "held",
    }
}

#[cfg(test)]
mod tests;
