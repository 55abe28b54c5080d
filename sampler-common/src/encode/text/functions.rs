//! Functions by the bytes they allocate themselves and by all that is allocated under them.
//!
//! *Self* of a stack is its first frame that is no allocator entry; *total* counts every function of
//! the stack once, however often it recurs. A function's numbers come from the summed row of its stacks,
//! never from their intervals.

use super::short::short;
use super::{Frame, Page, layout, own_frame, plural, samples, share};
use crate::estimate::{Row, plus_minus};
use crate::profile::{FunctionSum, Functions, Profile, Quantity};
use crate::units::{grouped, human_bytes};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};

/// Columns of `self self% total ± samples`, with the blanks between and after them.
const NUMBERS: usize = 8 + 1 + 5 + 1 + 8 + 1 + 5 + 1 + 7 + 2;
/// Narrower pages leave `file:line` out.
const PLACE_FROM: usize = 72;

/// A function with its stacks.
pub struct Function<'a> {
    /// Where most of its bytes are.
    pub(in crate::encode) frame: Frame<'a>,
    /// Sums of estimates: every estimator's values add. `own` is of the stacks that belong to it.
    own: Option<f64>,
    total: f64,
    /// Indices of its stacks, each once.
    pub(in crate::encode) stacks: Vec<usize>,
    /// Those that belong to it.
    pub(in crate::encode) own_stacks: Vec<usize>,
}

impl Function<'_> {
    /// Its name, fit for a terminal.
    pub fn name(&self) -> Cow<'_, str> {
        self.frame.name()
    }

    /// Where most is allocated in it, `file.c:12` or a module; fit for a terminal, empty if unknown.
    pub fn place(&self) -> String {
        self.frame.place()
    }

    /// Bytes of the profile's kind that it allocates itself; `None` where it only calls.
    pub fn own(&self) -> Option<f64> {
        self.own
    }

    /// Bytes of the profile's kind in it and under it.
    pub fn total(&self) -> f64 {
        self.total
    }

    /// Indices of its stacks in the profile, each once.
    pub fn stacks(&self) -> &[usize] {
        &self.stacks
    }

    /// Of these the ones that it allocates itself.
    pub fn own_stacks(&self) -> &[usize] {
        &self.own_stacks
    }

    /// The bytes of its stacks together.
    fn sum(&self, profile: &Profile) -> Quantity {
        let mut row = Row::default();
        self.stacks.iter().for_each(|index| row.add(&profile.stacks[*index].row));
        *profile.quantities_of(&row).space(profile.kind)
    }
}

/// The `rows` functions with most, over all stacks that the profile has.
pub fn summed(profile: &Profile, rows: usize) -> Functions {
    let functions = functions(profile);
    let shown = &functions[..rows.min(functions.len())];
    let mut sums: Vec<FunctionSum> = Vec::with_capacity(shown.len());
    for of in shown {
        // `main` and what calls it have the same stacks, all of them: they are summed once.
        let same = shown.iter().zip(&sums).find(|(before, _)| before.stacks == of.stacks);
        let total = same.map_or_else(|| of.sum(profile), |(_, sum)| sum.total);
        let (line, module) = (of.frame.line.clone(), of.frame.module.to_owned());
        sums.push(FunctionSum { line, module, own: of.own, total });
    }
    let pids: BTreeSet<u32> =
        profile.stacks.iter().map(|stack| stack.pid).filter(|pid| *pid != 0).collect();
    Functions { rows: sums, total: functions.len() as u64, pids: pids.into_iter().collect() }
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

/// Every function with bytes of the profile's kind, by falling self, then total.
pub fn functions(profile: &Profile) -> Vec<Function<'_>> {
    let (mut functions, at) = known_functions(profile);
    for (stack_index, stack) in profile.stacks.iter().enumerate() {
        let estimate = &stack.quantities.space(profile.kind).estimate;
        if estimate.samples == 0 && estimate.value <= 0.0 {
            continue;
        }
        let own = own_frame(profile, stack);
        let ids = stack.locations.iter().flat_map(|index| {
            let location = *index as usize;
            at[location].iter().enumerate().map(move |(line, id)| (location, line, *id))
        });
        for (position, (location, line, id)) in ids.enumerate().skip(own) {
            let function = &mut functions[id];
            if function.stacks.is_empty() {
                // Stacks come by falling bytes: the line shown is the one with most of them.
                function.frame.line = &profile.locations[location].lines[line];
            }
            if position == own {
                *function.own.get_or_insert(0.0) += estimate.value;
                function.own_stacks.push(stack_index);
            }
            if function.stacks.last() != Some(&stack_index) {
                function.stacks.push(stack_index);
                function.total += estimate.value;
            }
        }
    }
    functions.retain(|function| !function.stacks.is_empty());
    functions.sort_by(|a, b| {
        let own = |of: &Function| of.own.unwrap_or(0.0);
        let falling = own(b).total_cmp(&own(a)).then(b.total.total_cmp(&a.total));
        falling.then_with(|| a.frame.line.function.cmp(&b.frame.line.function))
    });
    functions
}

/// The distinct functions, and for each location the indices of its lines' functions. Functions of one
/// name in different files (or modules, where files are unknown) stay apart.
fn known_functions(profile: &Profile) -> (Vec<Function<'_>>, Vec<Vec<usize>>) {
    let mut functions = Vec::new();
    let mut indices = HashMap::new();
    let at = profile
        .locations
        .iter()
        .map(|location| {
            let module = profile.mappings[location.mapping as usize].path.as_str();
            let ids = location.lines.iter().map(|line| {
                let place = if line.file.is_empty() { module } else { &line.file };
                *indices.entry((line.function.as_str(), place)).or_insert_with(|| {
                    functions.push(Function {
                        frame: Frame { line, module },
                        own: None,
                        total: 0.0,
                        stacks: Vec::new(),
                        own_stacks: Vec::new(),
                    });
                    functions.len() - 1
                })
            });
            ids.collect()
        })
        .collect();
    (functions, at)
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
