//! Merges stacks that show the same path, of whichever process and whichever call of the same line.
//! A program that runs a thousand times, or a server of many processes, shows such a stack once.

use super::{Location, Profile, Quantities, Stack};
use crate::estimate::Row;
use std::collections::{BTreeSet, HashMap};

impl Profile {
    /// Sums the rows of stacks that show the same files, functions and lines, and makes their
    /// numbers from the sum by `quantities`.
    ///
    /// The pid is 0 where processes differ. The order is by falling estimated bytes as before.
    pub fn merge_paths(&mut self, quantities: impl Fn(&Profile, &Row) -> Quantities) {
        let first = first_alike(&self.locations, &self.stacks);
        if (0..).zip(&first).all(|(at, first)| at == *first) {
            return; // No stack is merged: a hundred thousand stacks stay in place.
        }
        let mut merged: Vec<Option<Stack>> = Vec::with_capacity(self.stacks.len());
        let mut sums = BTreeSet::new();
        for (stack, first) in std::mem::take(&mut self.stacks).into_iter().zip(first) {
            let Some(Some(of)) = merged.get_mut(first) else {
                merged.push(Some(stack));
                continue;
            };
            of.row.add(&stack.row);
            of.pid = if of.pid == stack.pid { of.pid } else { 0 };
            sums.insert(first);
            merged.push(None);
        }
        for at in sums {
            if let Some(stack) = &mut merged[at] {
                stack.quantities = quantities(self, &stack.row);
            }
        }
        let before = merged.len();
        self.stacks = merged.into_iter().flatten().collect();
        self.stacks_total = self.stacks_total.saturating_sub((before - self.stacks.len()) as u64);
        let value = |stack: &Stack| stack.quantities.space(self.kind).estimate.value;
        // The sort is stable: the order of stacks with equal bytes is fixed already.
        self.stacks.sort_by(|a, b| value(b).total_cmp(&value(a)));
    }
}

/// For each stack the index of the first stack that shows the same path.
fn first_alike(locations: &[Location], stacks: &[Stack]) -> Vec<usize> {
    let mut places = HashMap::with_capacity(locations.len());
    let each = (0..).zip(locations);
    let alike: Vec<u32> =
        each.map(|(at, of)| *places.entry((of.mapping, &of.lines)).or_insert(at)).collect();
    let mut paths: HashMap<Vec<u32>, usize> = HashMap::with_capacity(stacks.len());
    let path = |of: &Stack| of.locations.iter().map(|at| alike[*at as usize]).collect();
    stacks.iter().enumerate().map(|(at, of)| *paths.entry(path(of)).or_insert(at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        crate::encode::json::read(include_str!("../encode/golden/alloc.json")).expect("a profile")
    }

    #[test]
    fn merging_one_process_changes_nothing() {
        let whole = profile();
        let mut merged = whole.clone();
        merged.merge_paths(Profile::quantities_of);
        assert_eq!(merged, whole);
    }

    #[test]
    fn calls_of_one_line_are_merged_into_one_path() {
        let mut whole = profile();
        let mut other = whole.stacks[1].clone();
        let at = other.locations.last_mut().expect("a frame");
        let mut location = whole.locations[*at as usize].clone();
        location.address += 5;
        *at = whole.locations.len() as u32;
        whole.locations.push(location);
        whole.stacks.push(other);
        whole.stacks_total += 1;
        let (pid, mut merged) = (whole.stacks[1].pid, whole.clone());
        merged.merge_paths(Profile::quantities_of);
        assert_eq!(merged.stacks_total, whole.stacks_total - 1);
        let sum = merged.stacks.iter().find(|of| of.locations == whole.stacks[1].locations);
        assert_eq!(sum.expect("the stack").pid, pid);
    }

    #[test]
    fn equal_paths_of_two_processes_are_summed() {
        let mut whole = profile();
        let mut other = whole.stacks[1].clone();
        other.pid = 77;
        whole.stacks.push(other);
        whole.stacks_total += 1;
        let mut merged = whole.clone();
        merged.merge_paths(Profile::quantities_of);
        assert_eq!(merged.stacks_total, whole.stacks_total - 1);
        let sum = merged.stacks.iter().find(|of| of.locations == whole.stacks[1].locations);
        let (sum, alone) = (sum.expect("the stack"), &whole.stacks[1]);
        assert_eq!(sum.pid, 0);
        let samples = |of: &Stack| of.quantities.alloc_space.estimate.samples;
        assert_eq!(samples(sum), 2 * samples(alone));
        assert_eq!(sum.quantities, whole.quantities_of(&sum.row));
        let value = |of: &Stack| of.quantities.space(whole.kind).estimate.value;
        assert!(merged.stacks.windows(2).all(|pair| value(&pair[0]) >= value(&pair[1])));
    }
}
