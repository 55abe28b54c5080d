//! Cuts a profile to the stacks and frames that a reader asks for. A frame matches by its function,
//! its source file or its mapped file, as in pprof.
//!
//! Totals and the reference stay those of every stack, so that shares are of all bytes.

use super::{Line, Location, Mapping, Profile};
use crate::estimate::Row;
use crate::note::{Focus, Note};

/// Name of a frame in place of a stack whose frames are all hidden.
const HIDDEN: &str = "[hidden]";

impl Profile {
    /// Keeps the stacks that have a frame with a name for which `matches` is true. A note says how
    /// many bytes these stacks have together; `pattern` stands in it.
    pub fn focus(&mut self, pattern: &str, matches: impl Fn(&str) -> bool) {
        let in_file: Vec<bool> = self.mappings.iter().map(|of| matches(&of.path)).collect();
        let is_focus = |of: &Location| {
            in_file[of.mapping as usize] || of.lines.iter().any(|line| is_match(line, &matches))
        };
        let focused: Vec<bool> = self.locations.iter().map(is_focus).collect();
        self.stacks.retain(|stack| stack.locations.iter().any(|at| focused[*at as usize]));
        let mut row = Row::default();
        self.stacks.iter().for_each(|stack| row.add(&stack.row));
        let note = Focus {
            pattern: pattern.to_owned(),
            stacks: self.stacks.len() as u64,
            stacks_total: self.stacks_total,
            bytes: self.quantities_of(&row).space(self.kind).estimate,
            total: self.totals.space(self.kind).estimate.value,
        };
        self.notes.insert(0, Note::Focus(note));
        self.stacks_total = self.stacks.len() as u64;
        self.changed();
    }

    /// Removes the frames that have a name for which `matches` is true. Their bytes are attributed
    /// to their callers.
    pub fn hide(&mut self, matches: impl Fn(&str) -> bool) {
        let in_file: Vec<bool> = self.mappings.iter().map(|of| matches(&of.path)).collect();
        for location in &mut self.locations {
            let hidden = in_file[location.mapping as usize];
            location.lines.retain(|line| !hidden && !is_match(line, &matches));
        }
        let has_lines: Vec<bool> = self.locations.iter().map(|of| !of.lines.is_empty()).collect();
        let mut hidden = None;
        for stack in &mut self.stacks {
            stack.locations.retain(|at| has_lines[*at as usize]);
            if stack.locations.is_empty() {
                stack.locations.push(*hidden.get_or_insert_with(|| {
                    self.mappings.push(Mapping::default());
                    let mapping = self.mappings.len() as u32 - 1;
                    let line = Line { function: HIDDEN.to_owned(), ..Line::default() };
                    self.locations.push(Location { mapping, address: 0, lines: vec![line] });
                    self.locations.len() as u32 - 1
                }));
            }
        }
        self.changed();
    }

    /// Keeps the `top` stacks with most bytes.
    pub fn keep_largest(&mut self, top: usize) {
        self.stacks.truncate(top);
        self.changed();
    }

    /// Drops what only the stacks before a change had: functions, and unused locations.
    fn changed(&mut self) {
        self.functions = None;
        let indices = self.stacks.iter_mut().flat_map(|stack| &mut stack.locations);
        self.locations = used(std::mem::take(&mut self.locations), indices);
    }
}

fn is_match(line: &Line, matches: impl Fn(&str) -> bool) -> bool {
    matches(&line.function) || (!line.file.is_empty() && matches(&line.file))
}

/// The used entries of a table, in the order of the indices into it. The indices are changed to
/// point into the result.
pub fn used<'a, T>(table: Vec<T>, indices: impl Iterator<Item = &'a mut u32>) -> Vec<T> {
    let mut numbers: Vec<Option<u32>> = vec![None; table.len()];
    let mut table: Vec<Option<T>> = table.into_iter().map(Some).collect();
    let mut kept = Vec::new();
    for index in indices {
        let old = *index as usize;
        *index = *numbers[old].get_or_insert_with(|| {
            kept.extend(table[old].take());
            kept.len() as u32 - 1
        });
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::fixture;
    use crate::profile::{Kind, Stack};

    fn whole() -> Profile {
        fixture::profile(Kind::Alloc)
    }

    /// Names of a stack's frames that can match, each line of its own.
    fn names<'a>(of: &'a Profile, stack: &'a Stack) -> Vec<&'a str> {
        of.frames(stack).map(|line| line.function.as_str()).collect()
    }

    /// A function of some stacks, not of all.
    fn function(of: &Profile) -> String {
        let each = of.stacks.iter().flat_map(|stack| of.frames(stack));
        let has = |stack: &Stack, name: &str| of.frames(stack).any(|line| line.function == name);
        let some = |line: &&Line| of.stacks.iter().any(|stack| !has(stack, &line.function));
        each.into_iter().find(some).expect("a function of some stacks").function.clone()
    }

    #[test]
    fn focused_stacks_are_those_with_the_function() {
        let (whole, mut focused) = (whole(), whole());
        let name = function(&whole);
        focused.focus(&name, |of| of == name);
        let with = |stack: &&Stack| names(&whole, stack).contains(&name.as_str());
        let expected: Vec<&Stack> = whole.stacks.iter().filter(with).collect();
        assert!(!expected.is_empty() && expected.len() < whole.stacks.len());
        let frames = |of: &Profile, stacks: &[&Stack]| -> Vec<Vec<String>> {
            stacks
                .iter()
                .map(|of_stack| names(of, of_stack).iter().map(|of| (*of).to_owned()).collect())
                .collect()
        };
        let kept: Vec<&Stack> = focused.stacks.iter().collect();
        assert_eq!(frames(&focused, &kept), frames(&whole, &expected));
        let Some(Note::Focus(note)) = focused.notes.first() else { panic!("no note") };
        let bytes: f64 = expected.iter().map(|of| of.quantities.alloc_space.estimate.value).sum();
        assert!((note.bytes.value - bytes).abs() <= 1e-6 * bytes, "{note:?}");
        assert!(note.bytes.low < note.bytes.value && note.bytes.value < note.bytes.high);
        assert_eq!(note.total, whole.totals.alloc_space.estimate.value);
        assert_eq!((note.stacks, note.stacks_total), (expected.len() as u64, whole.stacks_total));
        assert_eq!(focused.totals, whole.totals);
    }

    #[test]
    fn hidden_functions_are_in_no_stack_and_no_bytes_are_lost() {
        let (whole, mut hidden) = (whole(), whole());
        let name = function(&whole);
        hidden.hide(|of| of == name);
        assert_eq!(hidden.stacks.len(), whole.stacks.len());
        for (before, after) in whole.stacks.iter().zip(&hidden.stacks) {
            let mut expected = names(&whole, before);
            expected.retain(|of| *of != name);
            assert_eq!(names(&hidden, after), expected);
            assert_eq!(before.quantities, after.quantities);
        }
    }

    #[test]
    fn a_stack_without_a_shown_frame_is_one_hidden_frame() {
        let mut hidden = whole();
        hidden.hide(|_| true);
        assert!(hidden.stacks.iter().all(|stack| names(&hidden, stack) == [HIDDEN]));
        assert_eq!(hidden.locations.len(), 1);
    }

    #[test]
    fn a_mapped_file_matches_all_of_its_frames() {
        let (whole, mut hidden) = (whole(), whole());
        let path = whole.mappings[whole.locations[0].mapping as usize].path.clone();
        hidden.hide(|of| of == path);
        let left =
            hidden.locations.iter().any(|of| hidden.mappings[of.mapping as usize].path == path);
        assert!(!left, "{path}");
    }

    #[test]
    fn the_largest_stacks_stay_with_their_locations() {
        let (whole, mut cut) = (whole(), whole());
        cut.keep_largest(1);
        assert_eq!(names(&cut, &cut.stacks[0]), names(&whole, &whole.stacks[0]));
        assert_eq!(cut.locations.len(), {
            let mut at = whole.stacks[0].locations.clone();
            at.sort_unstable();
            at.dedup();
            at.len()
        });
    }
}
