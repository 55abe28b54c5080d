//! A call tree of function names in which every frame has the sum of its stacks. A sum is
//! [`Moments`], or one [`Moments`] for each side of a comparison.
//!
//! [`super::tree`] makes such a tree of a profile. Here stacks are lists of names.

use super::functions::Function;
use super::tree::{ROOT, keep_largest, layout, weighed};
use super::trie::Trie;
use crate::estimate::Moments;
use std::collections::HashMap;

/// A value that can be added.
pub(super) trait Sum: Clone + Default {
    /// Adds the value of other stacks.
    fn add(&mut self, other: &Self);
}

impl Sum for Moments {
    fn add(&mut self, other: &Moments) {
        Moments::add(self, other);
    }
}

impl Sum for [Moments; 2] {
    fn add(&mut self, other: &[Moments; 2]) {
        self.iter_mut().zip(other).for_each(|(to, from)| to.add(from));
    }
}

/// A frame.
pub(super) struct Frame<'a, S> {
    pub(super) name: &'a str,
    /// Number of callers above the frame.
    pub(super) depth: usize,
    /// Sum of the widths left of the frame.
    pub(super) start: f64,
    /// Width of all stacks through the frame.
    pub(super) width: f64,
    pub(super) sum: S,
}

/// The widest frames.
pub(super) struct WidestFrames<'a, S> {
    /// Each frame before the frames that it calls, siblings by name.
    pub(super) frames: Vec<Frame<'a, S>>,
    /// Sum of all stacks.
    pub(super) total: S,
    pub(super) width: f64,
    /// Number of narrower frames that were left out.
    pub(super) left_out: usize,
}

impl<'a, S: Sum> WidestFrames<'a, S> {
    /// Makes the tree of the frames with the largest `width`, at most `frames` of them. The names
    /// of a stack are root first.
    pub(super) fn of(
        stacks: &'a [(Vec<String>, S)],
        width: impl Fn(&S) -> f64,
        frames: usize,
    ) -> WidestFrames<'a, S> {
        let (functions, ids) = interned(stacks);
        let trie = Trie::of(ids.iter().map(|ids| ids.iter().copied()));
        let (mut nodes, leaves) = weighed(trie, stacks.iter().map(|(_, sum)| width(sum)));
        let all = 1 + nodes[1..].iter().filter(|node| node.value > 0.0).count();
        let kept_ancestors = keep_largest(&mut nodes, frames);
        let mut sums = vec![S::default(); nodes.len()];
        for ((_, sum), leaf) in stacks.iter().zip(leaves) {
            sums[kept_ancestors[leaf]].add(sum);
        }
        for node in (1..nodes.len()).rev() {
            let sum = sums[node].clone();
            sums[nodes[node].parent].add(&sum);
        }
        let frames = layout(&functions, &nodes, |node, depth, start| Frame {
            name: functions[nodes[node].function].name,
            depth,
            start,
            width: nodes[node].value,
            sum: sums[node].clone(),
        });
        let (total, width) = (sums[ROOT].clone(), nodes[ROOT].value);
        WidestFrames { frames, total, width, left_out: all - nodes.len() }
    }

    /// Number of levels of the tree.
    pub(super) fn depth(&self) -> usize {
        self.frames.iter().map(|frame| frame.depth + 1).max().unwrap_or(0)
    }
}

/// Each name once, and the indices of the names of each stack.
fn interned<S>(stacks: &[(Vec<String>, S)]) -> (Vec<Function<'_>>, Vec<Vec<u32>>) {
    let mut functions: Vec<Function> = Vec::new();
    let mut known: HashMap<&str, u32> = HashMap::new();
    let mut id = |name| {
        *known.entry(name).or_insert_with(|| {
            functions.push(Function { name, file: "", line: 0, module: "" });
            functions.len() as u32 - 1
        })
    };
    let ids = stacks.iter().map(|(names, _)| names.iter().map(|name| id(name.as_str())).collect());
    let ids = ids.collect();
    (functions, ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_has_the_sum_of_its_stacks() {
        let stack = |names: &[&str], own: f64| {
            let mut moments = Moments::default();
            moments.add_sample(own, 0.5);
            (names.iter().map(|name| (*name).to_owned()).collect(), moments)
        };
        let stacks = [
            stack(&["main", "b", "malloc"], 3.0),
            stack(&["main", "a", "malloc"], 1.0),
            stack(&["main", "b"], 4.0),
            stack(&["main", "b", "malloc"], 2.0),
        ];
        let tree = WidestFrames::of(&stacks, |of| of.sum, 100);
        let frames: Vec<_> =
            tree.frames.iter().map(|of| (of.name, of.depth, of.start, of.width)).collect();
        assert_eq!(
            frames,
            [
                ("main", 0, 0.0, 20.0),
                ("a", 1, 0.0, 2.0),
                ("malloc", 2, 0.0, 2.0),
                ("b", 1, 2.0, 18.0),
                ("malloc", 2, 2.0, 10.0),
            ]
        );
        assert!(tree.frames.iter().all(|of| of.sum.sum == of.width));
        assert_eq!((tree.total.samples, tree.depth(), tree.left_out), (4, 3, 0));
        let few = WidestFrames::of(&stacks, |of| of.sum, 2);
        assert_eq!((few.frames.len(), few.left_out, few.frames[1].sum), (2, 3, tree.frames[3].sum));
    }
}
