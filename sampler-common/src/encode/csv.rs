//! Comma-separated values (RFC 4180), for spreadsheets and data frames: a header line, then one
//! line for each row.
//!
//! The column `row` has the kind of a line. `total`, `exact`, `lost`, `note` and `cost` come first,
//! then a `stack` for each stack. So one filter selects the stacks. Every number stands with the
//! ends of its interval. No cell is a formula.

use super::{Encode, NO_STACK, name};
use crate::estimate::Estimate;
use crate::profile::{Location, Profile, Quantities, Quantity};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Quantities in the order of their columns.
const QUANTITIES: [&str; 4] = ["alloc_space", "alloc_objects", "inuse_space", "inuse_objects"];
/// Number of columns of one quantity.
const PER_QUANTITY: usize = 5;

/// Writes the table.
pub struct Csv;

impl Encode for Csv {
    fn encode(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        header(out)?;
        row("total", "", quantities(&profile.totals), "", out)?;
        if let Some(exact) = profile.exact {
            let cells = [exact.alloc_space, exact.alloc_objects].map(counted);
            row("exact", "", format!("{}{}{}", cells[0], cells[1], blank(2)), "", out)?;
        }
        for lost in &profile.lost {
            let of = |of: &Option<Quantity>| of.as_ref().map_or(blank(1), quantity);
            let cells = format!("{}{}{}", of(&lost.alloc_space), of(&lost.alloc_objects), blank(2));
            row("lost", "", cells, &format!("{}: {} samples", lost.outcome, lost.samples), out)?;
        }
        if let Some(cost) = &profile.cost {
            row("cost", "", blank(4), &cost.text(), out)?;
        }
        for note in &profile.notes {
            row("note", "", blank(4), &note.to_string(), out)?;
        }
        let at: Vec<String> = profile.locations.iter().map(frames_of).collect();
        let mut frames = String::new();
        for stack in &profile.stacks {
            frames.clear();
            for index in stack.locations.iter().rev() {
                if !frames.is_empty() {
                    frames.push(';');
                }
                frames.push_str(&at[*index as usize]);
            }
            if frames.is_empty() {
                frames.push_str(NO_STACK);
            }
            let pid = if stack.pid == 0 { String::new() } else { stack.pid.to_string() };
            write!(out, "stack,{pid}{},", quantities(&stack.quantities))?;
            out.write_all(quoted(&frames).as_bytes())?;
            write!(out, ",{}\r\n", cell(profile.comm(stack.pid).unwrap_or_default()))?;
        }
        Ok(())
    }
}

fn header(out: &mut dyn Write) -> io::Result<()> {
    write!(out, "row,pid")?;
    for name in QUANTITIES {
        write!(out, ",{name},{name}_low,{name}_high,{name}_samples,{name}_method")?;
    }
    out.write_all(b",stack,comm\r\n")
}

fn row(kind: &str, pid: &str, cells: String, text: &str, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{kind},{pid}{cells},{},\r\n", cell(text))
}

fn quantities(of: &Quantities) -> String {
    let Quantities { alloc_objects, alloc_space, inuse_objects, inuse_space } = of;
    let mut cells = String::with_capacity(400);
    for of in [alloc_space, alloc_objects, inuse_space, inuse_objects] {
        append(of, &mut cells);
    }
    cells
}

fn quantity(of: &Quantity) -> String {
    let mut cells = String::new();
    append(of, &mut cells);
    cells
}

/// `,value,low,high,samples,method`; an infinite end is empty.
fn append(of: &Quantity, cells: &mut String) {
    let Estimate { value, low, high, samples, method, .. } = of.estimate;
    // Writing to a string cannot fail.
    let _ = write!(cells, ",{value},{low},");
    if high.is_finite() {
        let _ = write!(cells, "{high}");
    }
    let _ = write!(cells, ",{samples},{}", method.name());
}

/// A counted number, which is its own interval.
fn counted(number: u64) -> String {
    format!(",{number},{number},{number},,exact")
}

fn blank(quantities: usize) -> String {
    ",".repeat(PER_QUANTITY * quantities)
}

/// The functions of a location, outermost first, on one line.
fn frames_of(location: &Location) -> String {
    let names = location.lines.iter().rev().map(|line| name::folded(&line.function));
    let names = names.map(|name| name::shown(&name).into_owned());
    names.collect::<Vec<_>>().join(";")
}

/// A cell of text on one line.
fn cell(text: &str) -> String {
    if text.is_empty() { String::new() } else { quoted(&name::shown(text)).into_owned() }
}

/// A cell of text without line breaks.
///
/// Semicolons are quoted, because they separate cells where the decimal separator is a comma. A
/// spreadsheet runs text that begins with one of `= + - @` as a formula. An apostrophe before the
/// text prevents that.
fn quoted(text: &str) -> Cow<'_, str> {
    let formula = text.trim_start().starts_with(['=', '+', '-', '@']);
    if !formula && !text.bytes().any(|byte| matches!(byte, b'"' | b',' | b';')) {
        return Cow::Borrowed(text);
    }
    let apostrophe = if formula { "'" } else { "" };
    Cow::Owned(format!("\"{apostrophe}{}\"", text.replace('"', "\"\"")))
}

#[cfg(test)]
mod tests;
