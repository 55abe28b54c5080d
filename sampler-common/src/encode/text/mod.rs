//! The table that people read in a terminal.
//!
//! The table has four parts:
//!
//! - totals with their intervals;
//! - functions by their own and their total bytes;
//! - how the numbers were made and what limits them;
//! - the largest stacks, if they are asked for.
//!
//! `±` is the larger distance from the estimate to an end of its interval, in percent of the
//! estimate. A function's numbers are made from the summed rows of its stacks, never from their
//! bounds.

pub mod bars;
pub mod functions;
mod header;
pub mod layout;
pub mod lifetimes;
mod remarks;
pub mod short;
mod stacks;

use super::name::base_name;
use super::{Encode, name};
use crate::profile::{Frame, FunctionSum, Functions, Kind, Profile, summed};
use crate::units::{grouped, human_count};
use std::borrow::Cow;
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
    /// Default number of functions.
    pub const DEFAULT_ROWS: usize = 15;
    /// Default number of stacks.
    pub const DEFAULT_STACKS: usize = 5;
    const MIN_WIDTH: usize = 60;
}

impl Encode for Text {
    fn encode(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        let page = Page { width: self.width.max(Text::MIN_WIDTH), color: self.color };
        header::write(profile, page, out)?;
        let functions = match &profile.functions {
            _ if self.rows == 0 => Cow::Owned(Functions::default()),
            Some(functions) => Cow::Borrowed(functions),
            None => Cow::Owned(summed(profile, self.rows)),
        };
        let shown = &functions.rows[..self.rows.min(functions.rows.len())];
        if !shown.is_empty() {
            functions::write(profile, page, (shown, functions.total), out)?;
            writeln!(out)?;
        }
        remarks::write(profile, page, shown, out)?;
        if self.stacks > 0 {
            stacks::write(profile, page, self.stacks, out)?;
        }
        Ok(())
    }
}

/// Columns of the labels on the left.
const LABEL: usize = 10;

/// The page that the table is written on.
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

    /// Writes a label and its text, wrapped behind the label. Blanks at the front of the text are
    /// kept.
    fn paragraph(self, label: &str, text: &str, bold: bool, out: &mut dyn Write) -> io::Result<()> {
        let room = self.width - LABEL;
        let lines = if layout::columns(text) <= room {
            vec![text.to_owned()]
        } else {
            layout::wrapped(text, room)
        };
        for (index, line) in lines.iter().enumerate() {
            let label = layout::left(if index == 0 { label } else { "" }, LABEL);
            let line = if bold { self.bold(line) } else { line.clone() };
            writeln!(out, "{}{line}", self.dim(&label))?;
        }
        Ok(())
    }

    fn styled(self, code: &str, text: &str) -> String {
        if self.color && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

impl FunctionSum {
    /// The frame that shows the function.
    fn frame(&self) -> Frame<'_> {
        Frame { line: &self.line, module: &self.module }
    }
}

impl<'a> Frame<'a> {
    /// The function's name. A path in front of an offset loses its directories.
    pub fn name(self) -> Cow<'a, str> {
        let function = &self.line.function;
        if !self.is_offset() {
            return name::shown(function);
        }
        let start = function.rfind('/').map_or(0, |slash| slash + 1);
        name::shown(&function[start..])
    }

    /// `file.c:12` without directories; the module if the source is unknown and the name does not
    /// contain the module already.
    pub fn place(self) -> String {
        let place = match (self.line.file.as_str(), self.line.line) {
            ("", _) if self.is_offset() || self.line.function == self.module => {
                return String::new();
            }
            ("", _) => base_name(self.module).to_owned(),
            (file, 0) => base_name(file).to_owned(),
            (file, line) => format!("{}:{line}", base_name(file)),
        };
        if place.is_empty() { place } else { name::shown(&place).into_owned() }
    }

    /// Whether no symbol covers the frame: the name is `file+0xoffset`, or `path+0xoffset`.
    fn is_offset(self) -> bool {
        let function = &self.line.function;
        let rest = function.strip_prefix(self.module);
        let rest = rest.or_else(|| function.strip_prefix(base_name(self.module)));
        rest.is_some_and(|rest| rest.starts_with("+0x"))
    }
}

/// A count in seven columns: a whole number while it fits.
pub fn samples(count: u64) -> String {
    if count < 1_000_000 { grouped(count) } else { human_count(count as f64) }
}

/// `sample` for one, `samples` for any other number.
fn plural(count: u64, noun: &str) -> String {
    if count == 1 { noun.to_owned() } else { format!("{noun}s") }
}

/// Word for the bytes of a kind, in a sentence.
fn bytes_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Alloc => "allocated",
        Kind::Live | Kind::Peak | Kind::Mapped => "held",
    }
}

#[cfg(test)]
mod tests;
