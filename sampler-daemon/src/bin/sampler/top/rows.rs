//! Functions and stacks of a profile as lines of a list.

use super::data::Detail;
use sampler_common::encode::text::layout::columns;
use sampler_common::estimate::{Estimate, Row};
use sampler_common::profile::{self, Profile, functions, leaf_first, own_frame};

/// Maximum number of callers in the line of a stack. A line has no room for more.
const MAX_CALLERS: usize = 16;

/// A function, or a stack by its frames: pairs of name and place.
pub(super) type Key = Vec<(String, String)>;

/// A function.
#[derive(Clone, Debug)]
pub(super) struct Function {
    /// The name. Name and place are made safe for terminals.
    pub(super) name: String,
    /// File and line at which the function allocates most.
    pub(super) place: String,
    /// What the function itself allocates.
    pub(super) own: f64,
    /// What the function and all its callees allocate.
    pub(super) total: f64,
    /// Indices of the stacks that contain the function.
    pub(super) stacks: Vec<usize>,
    /// Indices of the stacks in which the function itself allocates.
    own_stacks: Vec<usize>,
}

/// All functions of a profile.
#[derive(Clone, Debug, Default)]
pub(super) struct Functions(pub(super) Vec<Function>);

impl Functions {
    pub(super) fn of(profile: &Profile) -> Functions {
        let function = |of: profile::Function| Function {
            name: of.name().into_owned(),
            place: of.place(),
            own: of.own().unwrap_or(0.0),
            total: of.total(),
            stacks: of.stacks().to_vec(),
            own_stacks: of.own_stacks().to_vec(),
        };
        Functions(functions(profile).into_iter().map(function).collect())
    }
}

impl Function {
    pub(super) fn key(&self) -> Key {
        vec![(self.name.clone(), self.place.clone())]
    }

    /// Whether `key` is the function's key.
    pub(super) fn is(&self, key: &Key) -> bool {
        matches!(&key[..], [(name, place)] if *name == self.name && *place == self.place)
    }

    /// Returns what the function itself allocates, with its interval; `None` if the function only
    /// calls others.
    pub(super) fn own_of(&self, detail: &Detail) -> Option<Estimate> {
        (!self.own_stacks.is_empty()).then(|| sum(detail, &self.own_stacks))
    }

    /// Returns what the function and its callees allocate, with its interval.
    pub(super) fn total_of(&self, detail: &Detail) -> Estimate {
        sum(detail, &self.stacks)
    }
}

/// The moments are summed first; then the interval is made of the sums.
fn sum(detail: &Detail, stacks: &[usize]) -> Estimate {
    let mut row = Row::default();
    stacks.iter().for_each(|index| row.add(&detail.profile.stacks[*index].row));
    let quantities = detail.profile.quantities_of(&row);
    detail.shown(quantities.space(detail.profile.kind).estimate)
}

/// Returns name and place of each frame of a stack, leaf first, safe for terminals.
pub(super) fn frames(profile: &Profile, stack: usize) -> Key {
    named(profile, stack).collect()
}

fn named(profile: &Profile, stack: usize) -> impl Iterator<Item = (String, String)> {
    let frames = leaf_first(profile, &profile.stacks[stack]);
    frames.map(|frame| (frame.name().into_owned(), frame.place()))
}

/// Returns the index of the stack with these frames. An open stack is so found in the next profile.
pub(super) fn find(profile: &Profile, frames: &Key) -> Option<usize> {
    (0..profile.stacks.len()).find(|stack| is_of(profile, *stack, frames))
}

/// Whether a stack has these frames.
pub(super) fn is_of(profile: &Profile, stack: usize, frames: &Key) -> bool {
    named(profile, stack).eq(frames.iter().cloned())
}

/// Returns a stack as one line: the allocating function, then its callers.
pub(super) fn title(profile: &Profile, index: usize) -> String {
    let stack = &profile.stacks[index];
    let frames = leaf_first(profile, stack).skip(own_frame(profile, stack)).take(MAX_CALLERS);
    let mut names: Vec<String> = frames.map(|frame| frame.name().into_owned()).collect();
    // A function that is recursive, or inlined into itself, is shown once.
    names.dedup();
    if names.is_empty() { "[no stack]".to_owned() } else { names.join(" ← ") }
}

/// Returns the frames of a stack as lines of `width` columns. Long names continue on further lines.
pub(super) fn frame_lines(frames: &Key, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, (name, place)) in frames.iter().enumerate() {
        let text = if place.is_empty() { name.clone() } else { format!("{name}  {place}") };
        let mut line = format!("{number:>4} ");
        for c in text.chars() {
            if columns(&line) + columns(c.encode_utf8(&mut [0; 4])) > width {
                lines.push(std::mem::replace(&mut line, " ".repeat(7)));
            }
            line.push(c);
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_shown_whole() {
        let frames = vec![("malloc".into(), String::new()), ("x".repeat(30), "a.c:1".into())];
        let lines = frame_lines(&frames, 24);
        assert_eq!(lines[0], "   0 malloc");
        assert_eq!(lines[1], format!("   1 {}", "x".repeat(19)));
        assert_eq!(lines[2], format!("       {}  a.c:", "x".repeat(11)));
        assert!(frame_lines(&vec![("漢".repeat(30), String::new())], 24).len() > 3);
        assert!(frame_lines(&Vec::new(), 24).is_empty());
    }
}
