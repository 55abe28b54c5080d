//! Stacks as a tree: stacks with the same callers share their nodes.
//!
//! The tree is made by sorting: a stack shares the nodes of the frames that it has in common with
//! its predecessor. Profiles have millions of nodes, and a table of callers would need a look-up
//! for each. No code recurses.

use std::ops::Range;

/// A frame below its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// The node of the caller, which comes before; `None` for an outermost frame.
    pub(super) caller: Option<u32>,
    /// The node's frame, as it was given.
    pub(super) frame: u32,
}

/// The nodes of all stacks.
pub(super) struct Trie {
    /// Nodes in the order of the sorted stacks; the frames that a frame calls follow it.
    pub(super) nodes: Vec<Node>,
    /// The innermost node of each stack, in the given order of stacks; `None` for a stack without
    /// frames.
    pub(super) leaves: Vec<Option<u32>>,
}

impl Trie {
    /// The tree of stacks whose frames come outermost first.
    pub(super) fn of<Frames: Iterator<Item = u32>>(stacks: impl Iterator<Item = Frames>) -> Trie {
        let mut frames: Vec<u32> = Vec::new();
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for stack in stacks {
            let start = frames.len();
            frames.extend(stack);
            ranges.push(start..frames.len());
        }
        let stack = |index: usize| &frames[ranges[index].clone()];
        let mut order: Vec<usize> = (0..ranges.len()).collect();
        order.sort_unstable_by(|a, b| stack(*a).cmp(stack(*b)).then(a.cmp(b)));
        let mut trie = Trie { nodes: Vec::new(), leaves: vec![None; ranges.len()] };
        let (mut before, mut path): (&[u32], Vec<u32>) = (&[], Vec::new());
        for index in order {
            let stack = stack(index);
            let common = before.iter().zip(stack).take_while(|(a, b)| a == b).count();
            path.truncate(common);
            for frame in &stack[common..] {
                trie.nodes.push(Node { caller: path.last().copied(), frame: *frame });
                path.push(trie.nodes.len() as u32 - 1);
            }
            trie.leaves[index] = path.last().copied();
            before = stack;
        }
        trie
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn every_stack_is_found_and_nodes_are_unique(
            stacks in prop::collection::vec(prop::collection::vec(0u32..4, 0..6), 0..40)
        ) {
            let trie = Trie::of(stacks.iter().map(|stack| stack.iter().copied()));
            for (stack, leaf) in stacks.iter().zip(&trie.leaves) {
                let (mut walked, mut next) = (Vec::new(), *leaf);
                while let Some(node) = next {
                    let node = trie.nodes[node as usize];
                    walked.push(node.frame);
                    next = node.caller;
                }
                walked.reverse();
                prop_assert_eq!(stack, &walked);
            }
            let mut seen = HashSet::new();
            for (index, node) in trie.nodes.iter().enumerate() {
                prop_assert!(node.caller.is_none_or(|caller| (caller as usize) < index));
                prop_assert!(seen.insert((node.caller, node.frame)));
            }
        }
    }
}
