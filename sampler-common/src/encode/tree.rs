//! The call tree of a profile, which flame graphs draw.
//!
//! If a profile has several processes, each process has an outermost frame of its own. Frames of the
//! same function with the same callers are merged to one frame, also if their addresses differ. Their
//! values are added. A frame's interval is made from the summed rows of its stacks, never from their
//! bounds. No code here recurses, since stacks may be deep.

use super::functions::{Function, functions};
use super::trie::Trie;
use crate::estimate::{Estimate, Row};
use crate::profile::{Kind, Profile, Quantities, Quantity, Stack};
use std::collections::{BTreeMap, BTreeSet};

/// The weight of stacks in a flame graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes of the profile's kind.
    Space,
    /// Objects of the profile's kind.
    Objects,
}

impl Measure {
    /// `space` or `objects`.
    pub const fn name(self) -> &'static str {
        match self {
            Measure::Space => "space",
            Measure::Objects => "objects",
        }
    }

    /// The quantity of `kind`.
    pub fn of(self, quantities: &Quantities, kind: Kind) -> &Quantity {
        match self {
            Measure::Space => quantities.space(kind),
            Measure::Objects => quantities.objects(kind),
        }
    }
}

/// A frame of the tree.
pub(super) struct Frame {
    /// Index into [`Tree::functions`].
    pub(super) function: usize,
    /// Number of callers above the frame.
    pub(super) depth: usize,
    /// Sum of the values left of the frame.
    pub(super) start: f64,
    /// Estimate of all stacks through the frame.
    pub(super) estimate: Estimate,
}

/// The largest frames of a profile.
pub(super) struct Tree<'a> {
    pub(super) functions: Vec<Function<'a>>,
    /// Each frame before the frames that it calls, siblings by name.
    pub(super) frames: Vec<Frame>,
    /// Total of all stacks, before any cut to the top stacks.
    pub(super) total: Estimate,
    /// Value of the whole width: the total, or the sum of the stacks if that is slightly larger.
    pub(super) width: f64,
    /// Number of smaller frames that were left out; frames of value 0 do not count.
    pub(super) left_out: usize,
}

/// A node of the tree; a parent comes before its children.
pub(super) struct Node {
    pub(super) parent: usize,
    pub(super) function: usize,
    pub(super) value: f64,
}

/// Node 0, the caller of the outermost functions.
pub(super) const ROOT: usize = 0;

/// The outermost frames of processes: the label of each process with a stack, by its pid. It is
/// empty if there is only one process.
pub(super) struct Roots(BTreeMap<u32, String>);

impl Roots {
    pub(super) fn of(profile: &Profile) -> Roots {
        let pids: BTreeSet<u32> = profile.stacks.iter().map(|stack| stack.pid).collect();
        let labels = pids.iter().filter(|pid| **pid != 0 && pids.len() > 1);
        Roots(labels.map(|pid| (*pid, profile.process_label(*pid))).collect())
    }

    /// The outermost frames as functions.
    fn functions<'a>(&'a self, profile: &'a Profile) -> impl Iterator<Item = Function<'a>> {
        self.0.iter().map(|(pid, label)| {
            let module = profile.process_names.get(pid).map_or("", |name| name.exe.as_str());
            Function { name: label, file: "", line: 0, module }
        })
    }
}

impl<'a> Tree<'a> {
    /// Makes the tree of the frames with the largest `measure`, at most `frames` of them.
    pub(super) fn of(
        profile: &'a Profile,
        roots: &'a Roots,
        measure: Measure,
        frames: usize,
    ) -> Tree<'a> {
        let (mut functions, at) = functions(profile);
        let (mut nodes, leaves) = nodes(profile, roots, measure, (&at, functions.len()));
        functions.extend(roots.functions(profile));
        let all = 1 + nodes[1..].iter().filter(|node| node.value > 0.0).count();
        let kept_ancestors = keep_largest(&mut nodes, frames);
        let left_out = all - nodes.len();
        let mut rows = vec![Row::default(); nodes.len()];
        for (stack, leaf) in profile.stacks.iter().zip(leaves) {
            rows[kept_ancestors[leaf]].add(&stack.row);
        }
        for node in (1..nodes.len()).rev() {
            let row = std::mem::take(&mut rows[node]);
            rows[nodes[node].parent].add(&row);
            rows[node] = row;
        }
        let total = measure.of(&profile.totals, profile.kind).estimate;
        let width = total.value.max(nodes[ROOT].value);
        let estimate = |node: usize| {
            let quantities = profile.quantities_of(&rows[node]);
            // The value as summed over the nodes: frames lie within their callers to the last bit.
            let of_row = measure.of(&quantities, profile.kind).estimate;
            Estimate { value: nodes[node].value, ..of_row }
        };
        let frames = layout(&functions, &nodes, |node, depth, start| Frame {
            function: nodes[node].function,
            depth,
            start,
            estimate: estimate(node),
        });
        Tree { functions, frames, total, width, left_out }
    }
}

/// The nodes with their values, and for each stack its innermost node. The functions of processes
/// follow `functions` others.
fn nodes(
    profile: &Profile,
    roots: &Roots,
    measure: Measure,
    (at, functions): (&[Vec<usize>], usize),
) -> (Vec<Node>, Vec<usize>) {
    let root: BTreeMap<u32, u32> =
        roots.0.keys().zip(functions..).map(|(pid, index)| (*pid, index as u32)).collect();
    let trie = Trie::of(profile.stacks.iter().map(|stack| {
        let locations = stack.locations.iter().rev();
        let frames = locations.flat_map(|index| &at[*index as usize]);
        let root = root.get(&stack.pid).copied();
        root.into_iter().chain(frames.map(|function| *function as u32))
    }));
    let value = |of: &Stack| measure.of(&of.quantities, profile.kind).estimate.value;
    weighed(trie, profile.stacks.iter().map(value))
}

/// The nodes of a trie with their values, from the values of its stacks; and for each stack its
/// innermost node.
pub(super) fn weighed(trie: Trie, values: impl Iterator<Item = f64>) -> (Vec<Node>, Vec<usize>) {
    // The root comes first, so the other nodes move up by one.
    let up = |node: Option<u32>| node.map_or(ROOT, |node| node as usize + 1);
    let root = Node { parent: ROOT, function: 0, value: 0.0 };
    let below = trie.nodes.iter().map(|node| Node {
        parent: up(node.caller),
        function: node.frame as usize,
        value: 0.0,
    });
    let mut nodes: Vec<Node> = std::iter::once(root).chain(below).collect();
    let leaves: Vec<usize> = trie.leaves.into_iter().map(up).collect();
    for (value, leaf) in values.zip(&leaves) {
        nodes[*leaf].value += value;
    }
    for node in (1..nodes.len()).rev() {
        let Node { parent, value, .. } = nodes[node];
        nodes[parent].value += value;
    }
    (nodes, leaves)
}

/// Keeps the root and the nodes with the largest values.
///
/// Returns for each old node its new index, or the index of its nearest caller that was kept. A
/// child has no more than its parent and comes later, so the kept nodes form a tree.
pub(super) fn keep_largest(nodes: &mut Vec<Node>, frames: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (1..nodes.len()).filter(|node| nodes[*node].value > 0.0).collect();
    if order.len() > frames {
        let by_value =
            |a: &usize, b: &usize| nodes[*b].value.total_cmp(&nodes[*a].value).then(a.cmp(b));
        order.select_nth_unstable_by(frames, by_value);
        order.truncate(frames);
    }
    order.push(ROOT);
    order.sort_unstable();
    let mut kept_ancestors = vec![usize::MAX; nodes.len()];
    for (new, old) in order.iter().enumerate() {
        kept_ancestors[*old] = new;
    }
    let mut kept = Vec::with_capacity(order.len());
    for (old, node) in std::mem::take(nodes).into_iter().enumerate() {
        let parent = kept_ancestors[node.parent];
        if kept_ancestors[old] == usize::MAX {
            kept_ancestors[old] = parent;
        } else {
            kept.push(Node { parent, ..node });
        }
    }
    *nodes = kept;
    kept_ancestors
}

/// The nodes below the root, callers first, siblings by name. `frame` makes a frame from its node,
/// its number of callers, and its start.
pub(super) fn layout<F>(
    functions: &[Function],
    nodes: &[Node],
    frame: impl Fn(usize, usize, f64) -> F,
) -> Vec<F> {
    let mut children = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate().skip(1) {
        children[node.parent].push(index);
    }
    let name = |node: &usize| {
        let function = &functions[nodes[*node].function];
        (function.name, function.file, function.module)
    };
    for siblings in &mut children {
        siblings.sort_by(|a, b| name(a).cmp(&name(b)));
    }
    let mut frames = Vec::with_capacity(nodes.len());
    // Work left to do: a node, its depth, its start. The last entry is next.
    let mut open = vec![(ROOT, 0, 0.0)];
    while let Some((node, depth, start)) = open.pop() {
        if node != ROOT {
            frames.push(frame(node, depth - 1, start));
        }
        let mut at = start;
        let first = open.len();
        for child in &children[node] {
            open.push((*child, depth + 1, at));
            at += nodes[*child].value;
        }
        open[first..].reverse();
    }
    frames
}

#[cfg(test)]
mod tests;
