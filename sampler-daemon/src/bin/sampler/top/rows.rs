//! Functions and stacks of a profile as lines of a list.

use super::data::Detail;
use sampler_common::encode::text::layout::columns;
use sampler_common::estimate::{Estimate, Row};
use sampler_common::profile::{self, Profile, functions, leaf_first, own_frame};

/// Callers in the line of a stack; a line has no room for more.
const MAX_CALLERS: usize = 16;

/// A function, or a stack by the frames of it.
pub(super) type Key = Vec<(String, String)>;

/// A function.
#[derive(Clone, Debug)]
pub(super) struct Function {
    /// Fit for a terminal, as is its place.
    pub(super) name: String,
    /// File and line of where most is allocated in it.
    pub(super) place: String,
    /// What is allocated by itself.
    pub(super) own: f64,
    /// And by all that it calls.
    pub(super) total: f64,
    /// Stacks that it is in.
    pub(super) stacks: Vec<usize>,
    /// Those of them that it allocates itself.
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

    /// Whether it is the function of this key.
    pub(super) fn is(&self, key: &Key) -> bool {
        matches!(&key[..], [(name, place)] if *name == self.name && *place == self.place)
    }

    /// What is allocated by itself, with its interval; `None` where it only calls.
    pub(super) fn own_of(&self, detail: &Detail) -> Option<Estimate> {
        (!self.own_stacks.is_empty()).then(|| sum(detail, &self.own_stacks))
    }

    /// All of it, with its interval.
    pub(super) fn total_of(&self, detail: &Detail) -> Estimate {
        sum(detail, &self.stacks)
    }
}

/// Moments are summed first; the interval is made of the sums.
fn sum(detail: &Detail, stacks: &[usize]) -> Estimate {
    let mut row = Row::default();
    stacks.iter().for_each(|index| row.add(&detail.profile.stacks[*index].row));
    let quantities = detail.profile.quantities_of(&row);
    detail.shown(quantities.space(detail.profile.kind).estimate)
}

/// Name and place of each frame of a stack, leaf first, fit for a terminal.
pub(super) fn frames(profile: &Profile, stack: usize) -> Key {
    named(profile, stack).collect()
}

fn named(profile: &Profile, stack: usize) -> impl Iterator<Item = (String, String)> {
    let frames = leaf_first(profile, &profile.stacks[stack]);
    frames.map(|frame| (frame.name().into_owned(), frame.place()))
}

/// Where the stack of these frames is: what was opened is found again in the next profile.
pub(super) fn find(profile: &Profile, frames: &Key) -> Option<usize> {
    (0..profile.stacks.len()).find(|stack| is_of(profile, *stack, frames))
}

/// Whether a stack is of these frames.
pub(super) fn is_of(profile: &Profile, stack: usize, frames: &Key) -> bool {
    named(profile, stack).eq(frames.iter().cloned())
}

/// What is shown of a stack in one line: where it allocates, and who called that.
pub(super) fn title(profile: &Profile, index: usize) -> String {
    let stack = &profile.stacks[index];
    let frames = leaf_first(profile, stack).skip(own_frame(profile, stack)).take(MAX_CALLERS);
    let mut names: Vec<String> = frames.map(|frame| frame.name().into_owned()).collect();
    // Inlined into itself, or recursive: once is enough here.
    names.dedup();
    if names.is_empty() { "[no stack]".to_owned() } else { names.join(" ← ") }
}

/// The frames of a stack in lines of `width` columns: names whole, over as many lines as they take.
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
