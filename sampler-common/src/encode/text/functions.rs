//! Functions by the bytes that they allocate themselves and by all bytes allocated under them.

use super::short::{end_of_name, short, with_arguments};
use super::{Page, layout, plural, samples};
use crate::estimate::plus_minus;
use crate::profile::{Function, FunctionSum, Profile};
use crate::units::{grouped, human_bytes, share};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// Columns of `self self% total ±`, with the blanks between and after them.
const NUMBERS: usize = 8 + 1 + 5 + 1 + 8 + 1 + 5 + 2;
/// Columns of `samples`, with the blank before it.
const SAMPLES: usize = 1 + 7;
/// Narrower pages leave `samples` out, because names need the room.
const SAMPLES_FROM: usize = 100;
/// Narrower pages leave `file:line` out.
const PLACE_FROM: usize = 64;

impl Function<'_> {
    /// Name of the function, safe for a terminal.
    pub fn name(&self) -> Cow<'_, str> {
        self.frame.name()
    }

    /// Place in the function that allocates most, `file.c:12` or a module; safe for a terminal,
    /// empty if unknown.
    pub fn place(&self) -> String {
        self.frame.place()
    }
}

/// Writes the functions, and the number of functions that are not shown.
pub(super) fn write(
    profile: &Profile,
    page: Page,
    (shown, total): (&[FunctionSum], u64),
    out: &mut dyn Write,
) -> io::Result<()> {
    let whole = profile.totals.space(profile.kind).estimate.value;
    let widths = Widths::of(shown, page.width);
    writeln!(out)?;
    let heading = widths.line(["self", "self%", "total", "±", "samples"], "function", "file:line");
    writeln!(out, "{}", page.bold(heading.trim_end()))?;
    for (function, name) in shown.iter().zip(names(shown, &widths)) {
        let total = function.total.estimate;
        let (own, own_share) =
            function.own.map(|own| (human_bytes(own), share(own, whole))).unwrap_or_default();
        let (bytes, interval) = (human_bytes(total.value), plus_minus(&total));
        let numbers = [&own, &own_share, &bytes, &interval, &samples(total.samples)];
        let place = function.frame().place();
        let line = widths.line(numbers.map(String::as_str), &name, &place);
        writeln!(out, "{}", line.trim_end())?;
    }
    let rest = total.saturating_sub(shown.len() as u64);
    if rest > 0 {
        let functions = plural(rest, "function");
        let more = format!("… {} more {functions} (--top N shows N)", grouped(rest));
        let indent = widths.numbers.min(page.width.saturating_sub(layout::columns(&more)));
        writeln!(out, "{}{}", " ".repeat(indent), page.dim(&more))?;
    }
    Ok(())
}

/// The names of functions as the rows show them. Rows that would look the same keep more of the
/// part that differs.
fn names(functions: &[FunctionSum], widths: &Widths) -> Vec<String> {
    let full: Vec<Cow<str>> = functions.iter().map(|of| of.frame().name()).collect();
    let mut names: Vec<String> =
        full.iter().map(|name| short(name, widths.function).into_owned()).collect();
    let mut alike: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
    for (index, function) in functions.iter().enumerate() {
        let place = layout::end(&function.frame().place(), widths.place);
        alike.entry((names[index].clone(), place)).or_default().push(index);
    }
    for rows in alike.into_values().filter(|rows| rows.len() > 1) {
        for cut in [with_arguments, end_of_name, layout::end] {
            let longer: Vec<String> =
                rows.iter().map(|row| cut(&full[*row], widths.function)).collect();
            if longer.iter().collect::<BTreeSet<_>>().len() == rows.len() {
                rows.iter().zip(longer).for_each(|(row, name)| names[*row] = name);
                break;
            }
        }
    }
    names
}

/// Columns of the numbers and of the two text fields.
struct Widths {
    numbers: usize,
    function: usize,
    place: usize,
}

impl Widths {
    /// The place gets the columns that it needs, but at most two fifths of the room; the function
    /// gets the rest.
    fn of(functions: &[FunctionSum], width: usize) -> Widths {
        let numbers = if width < SAMPLES_FROM { NUMBERS } else { NUMBERS + SAMPLES };
        let room = width - numbers;
        if width < PLACE_FROM {
            return Widths { numbers, function: room, place: 0 };
        }
        let longest = |text: &dyn Fn(&FunctionSum) -> usize| functions.iter().map(text).max();
        let place = longest(&|function| layout::columns(&function.frame().place()));
        let place = place.unwrap_or(0).max("file:line".len()).min(room * 2 / 5);
        let name = longest(&|function| layout::columns(&function.frame().name()));
        let name = name.unwrap_or(0).max("function".len());
        Widths { numbers, function: name.min(room - place - 2), place }
    }

    fn line(&self, numbers: [&str; 5], function: &str, place: &str) -> String {
        let [own, percent, total, interval, samples] = numbers;
        let mut line = [
            layout::right(own, 8),
            layout::right(percent, 5),
            layout::right(total, 8),
            layout::right(interval, 5),
        ]
        .join(" ");
        if self.numbers > NUMBERS {
            line.push_str(&layout::right(samples, SAMPLES));
        }
        line.push_str("  ");
        line.push_str(&layout::left(function, self.function));
        if self.place > 0 {
            line.push_str("  ");
            line.push_str(&layout::end(place, self.place));
        }
        line
    }
}
