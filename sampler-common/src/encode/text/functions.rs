//! Functions by the bytes they allocate themselves and by all that is allocated under them.

use super::short::short;
use super::{Page, layout, plural, samples, share};
use crate::estimate::plus_minus;
use crate::profile::{Frame, Function, FunctionSum, Profile, summed};
use crate::units::{grouped, human_bytes};
use std::borrow::Cow;
use std::io::{self, Write};

/// Columns of `self self% total ± samples`, with the blanks between and after them.
const NUMBERS: usize = 8 + 1 + 5 + 1 + 8 + 1 + 5 + 1 + 7 + 2;
/// Narrower pages leave `file:line` out.
const PLACE_FROM: usize = 72;

impl Function<'_> {
    /// Its name, fit for a terminal.
    pub fn name(&self) -> Cow<'_, str> {
        self.frame.name()
    }

    /// Where most is allocated in it, `file.c:12` or a module; fit for a terminal, empty if unknown.
    pub fn place(&self) -> String {
        self.frame.place()
    }
}

pub(super) fn write(
    profile: &Profile,
    page: Page,
    rows: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let functions = match &profile.functions {
        Some(functions) => Cow::Borrowed(functions),
        None => Cow::Owned(summed(profile, rows)),
    };
    if functions.rows.is_empty() {
        return Ok(());
    }
    let whole = profile.totals.space(profile.kind).estimate.value;
    let shown = &functions.rows[..rows.min(functions.rows.len())];
    let widths = Widths::of(shown, page.width);
    writeln!(out)?;
    let heading = widths.line(["self", "self%", "total", "±", "samples"], "function", "file:line");
    writeln!(out, "{}", page.bold(heading.trim_end()))?;
    for function in shown {
        let total = function.total.estimate;
        let (own, own_share) =
            function.own.map(|own| (human_bytes(own), share(own, whole))).unwrap_or_default();
        let (bytes, interval) = (human_bytes(total.value), plus_minus(&total));
        let numbers = [&own, &own_share, &bytes, &interval, &samples(total.samples)];
        let frame = frame(function);
        let (name, place) = (frame.name(), frame.place());
        let line = widths.line(numbers.map(String::as_str), &name, &place);
        writeln!(out, "{}", line.trim_end())?;
    }
    let rest = functions.total.saturating_sub(shown.len() as u64);
    if rest > 0 {
        let functions = plural(rest, "function");
        let more = format!("… {} more {functions} (--top N shows N)", grouped(rest));
        let indent = NUMBERS.min(page.width.saturating_sub(layout::columns(&more)));
        writeln!(out, "{}{}", " ".repeat(indent), page.dim(&more))?;
    }
    Ok(())
}

fn frame(of: &FunctionSum) -> Frame<'_> {
    Frame { line: &of.line, module: &of.module }
}

/// Columns of the two text fields.
struct Widths {
    function: usize,
    place: usize,
}

impl Widths {
    /// The place gets what it needs, but at most two fifths of the room; the function gets the rest.
    fn of(functions: &[FunctionSum], width: usize) -> Widths {
        let room = width - NUMBERS;
        if width < PLACE_FROM {
            return Widths { function: room, place: 0 };
        }
        let longest = |text: &dyn Fn(&FunctionSum) -> usize| functions.iter().map(text).max();
        let place = longest(&|function| layout::columns(&frame(function).place()));
        let place = place.unwrap_or(0).max("file:line".len()).min(room * 2 / 5);
        let name = longest(&|function| layout::columns(&frame(function).name()));
        let name = name.unwrap_or(0).max("function".len());
        Widths { function: name.min(room - place - 2), place }
    }

    fn line(&self, numbers: [&str; 5], function: &str, place: &str) -> String {
        let [own, percent, total, interval, samples] = numbers;
        let mut line = [
            layout::right(own, 8),
            layout::right(percent, 5),
            layout::right(total, 8),
            layout::right(interval, 5),
            layout::right(samples, 7),
        ]
        .join(" ");
        line.push_str("  ");
        line.push_str(&layout::left(&short(function, self.function), self.function));
        if self.place > 0 {
            line.push_str("  ");
            line.push_str(&layout::end(place, self.place));
        }
        line
    }
}
