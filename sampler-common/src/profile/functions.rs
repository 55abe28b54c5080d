//! Functions with their sums over every stack, whether the stacks themselves are shown or not.
//!
//! *Self* is a stack's first frame that is no allocator entry. *Total* counts every function of the
//! stack once, however often it recurs. A function's numbers come from the summed row of its
//! stacks, never from their intervals.

use super::runtime::Runtimes;
use super::standard_library::is_of_standard_library;
use super::startup::is_startup;
use super::{Frame, Line, Profile, Quantity, own_frame};
use crate::estimate::Row;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};

/// The functions of a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Functions {
    /// The functions asked for: by falling own bytes, then by falling total bytes.
    pub rows: Vec<FunctionSum>,
    /// Number of all functions.
    pub total: u64,
    /// Pid of each process that has a stack, in rising order.
    pub pids: Vec<u32>,
}

/// A function, with sums over all its stacks.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionSum {
    /// Name of the function, with the file and line in which most is allocated.
    pub line: Line,
    /// Path of the mapped file that contains the function.
    pub module: String,
    /// Estimated bytes of the profile's kind that the function allocates itself; `None` if it only
    /// calls.
    pub own: Option<f64>,
    /// Bytes of the profile's kind in the function and in what it calls, made from the summed rows
    /// of its stacks.
    pub total: Quantity,
}

/// What a function that only calls is for. The order is that of the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    /// The program's own work, or not known.
    Work,
    /// A runtime's work for the code of its language ([`Runtimes`]), or a standard library's.
    Runtime,
    /// The start of a program or a thread, or a note in the place of missing frames.
    Startup,
}

/// A function with its stacks.
pub struct Function<'a> {
    /// Frame of the line with most of the function's bytes.
    pub(crate) frame: Frame<'a>,
    /// Sums of estimates, since the values of every estimator add. `own` sums the stacks in
    /// `own_stacks`.
    own: Option<f64>,
    total: f64,
    /// Distance in frames from the frame that allocates, in the stack with most bytes.
    depth: usize,
    purpose: Purpose,
    /// Indices of the function's stacks, each once.
    pub(crate) stacks: Vec<usize>,
    /// Indices of the stacks that are attributed to the function.
    pub(crate) own_stacks: Vec<usize>,
}

impl Function<'_> {
    /// Bytes of the profile's kind that the function allocates itself; `None` if it only calls.
    pub fn own(&self) -> Option<f64> {
        self.own
    }

    /// Bytes of the profile's kind in the function and in what it calls.
    pub fn total(&self) -> f64 {
        self.total
    }

    /// Indices of the function's stacks in the profile, each once.
    pub fn stacks(&self) -> &[usize] {
        &self.stacks
    }

    /// Indices of the stacks in which the function allocates itself.
    pub fn own_stacks(&self) -> &[usize] {
        &self.own_stacks
    }

    fn purpose(&self, profile: &Profile, runtimes: &Runtimes<'_>) -> Purpose {
        let Frame { line, module } = self.frame;
        match () {
            () if self.own.is_some() => Purpose::Work,
            // A note has the name of its mapping.
            () if is_startup(&line.function) || line.function == module => Purpose::Startup,
            () if is_of_standard_library(&line.file) => Purpose::Runtime,
            () if runtimes.has(profile, module, &self.stacks) => Purpose::Runtime,
            () => Purpose::Work,
        }
    }

    /// The bytes of the function's stacks together.
    fn sum(&self, profile: &Profile) -> Quantity {
        let mut row = Row::default();
        self.stacks.iter().for_each(|index| row.add(&profile.stacks[*index].row));
        *profile.quantities_of(&row).space(profile.kind)
    }
}

/// The `rows` functions with most bytes, over all stacks of the profile.
pub fn summed(profile: &Profile, rows: usize) -> Functions {
    let functions = functions(profile);
    let shown = &functions[..rows.min(functions.len())];
    let mut sums: Vec<FunctionSum> = Vec::with_capacity(shown.len());
    for of in shown {
        // `main` and its callers have exactly the same stacks, whose sum is made once.
        let same = shown.iter().zip(&sums).find(|(before, _)| before.stacks == of.stacks);
        let total = same.map_or_else(|| of.sum(profile), |(_, sum)| sum.total);
        let (line, module) = (of.frame.line.clone(), of.frame.module.to_owned());
        sums.push(FunctionSum { line, module, own: of.own, total });
    }
    let pids: BTreeSet<u32> =
        profile.stacks.iter().map(|stack| stack.pid).filter(|pid| *pid != 0).collect();
    Functions { rows: sums, total: functions.len() as u64, pids: pids.into_iter().collect() }
}

/// Every function with bytes of the profile's kind, by falling self, then falling total, then from
/// the allocating frame to its callers. Functions of a runtime come later, and functions that only
/// start a program or a thread come last, because everything is under them.
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
                // Stacks come by falling bytes: the first line of a function is the line with most
                // bytes.
                function.frame.line = &profile.locations[location].lines[line];
                function.depth = position - own;
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
    let runtimes = Runtimes::of(profile);
    for function in &mut functions {
        function.purpose = function.purpose(profile, &runtimes);
    }
    functions.sort_by(order);
    functions
}

/// The order of the table.
fn order(a: &Function, b: &Function) -> Ordering {
    let own = |of: &Function| of.own.unwrap_or(0.0);
    let falling = own(b).total_cmp(&own(a)).then(a.purpose.cmp(&b.purpose));
    let falling = falling.then(b.total.total_cmp(&a.total)).then(a.depth.cmp(&b.depth));
    falling.then_with(|| a.frame.line.function.cmp(&b.frame.line.function))
}

/// The distinct functions, and for each location the indices of its lines' functions. Functions of
/// the same name in different files (or modules, if files are unknown) stay apart.
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
                        depth: 0,
                        purpose: Purpose::Work,
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
