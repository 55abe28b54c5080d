//! What may be a process's markers: calls that come as allocations do ([`super::sites`]), less usual functions of its allocators, and those that much of what it allocates comes through.

use super::ingest::Ingest;
use super::sites::{self, Site};
use crate::store::stacks::StackFrame;
use crate::store::{ProcessId, StackId};
use crate::target::allocator::Allocator;
use crate::target::spots::Spot;
use crate::unwind::Frame;
use rustc_hash::{FxHashMap, FxHashSet};

/// Stacks that are looked at: those with most objects.
const MOST_STACKS: usize = 256;
/// Of all objects that were seen so many come through a function, at least.
const LEAST_PART: f64 = 0.005;
/// Functions at most.
const MOST: usize = 64;

impl Ingest {
    /// Where they can be counted at little cost, the likeliest first; calls that come as allocations do have together no more than so much of these.
    pub(super) fn candidates(
        &mut self,
        id: ProcessId,
        allocators: &[Allocator],
        has_shadow_stack: bool,
        most_part: f64,
    ) -> Vec<Spot> {
        let mut spots = if has_shadow_stack { Vec::new() } else { self.calls_of(id, most_part) };
        spots.extend(allocators.iter().flat_map(Spot::of_allocator));
        for function in self.functions_of(id) {
            if spots.len() >= MOST {
                break;
            }
            let Some(spot) = self.modules.spot(function, has_shadow_stack) else { continue };
            if !spot.is_of(allocators) && !spots.iter().any(|of| of.is_same(&spot)) {
                spots.push(spot);
            }
        }
        spots
    }

    /// Calls that come as allocations do.
    fn calls_of(&mut self, id: ProcessId, most_part: f64) -> Vec<Spot> {
        let groups = self.clustered.groups(id).map_or(0, |groups| groups.iter().count());
        let mut all = vec![0.0; groups];
        let mut through: FxHashMap<Frame, Vec<f64>> = FxHashMap::default();
        for (_, stack, sums) in self.clustered.rows().filter(|(of, ..)| *of == id) {
            let frames = self.stacks.get(stack).iter().map(|number| self.stacks.frame(*number));
            let met: FxHashSet<Frame> = frames.filter_map(StackFrame::code).collect();
            for (group, [_, objects]) in sums {
                let Some(all) = all.get_mut(usize::from(*group)) else { continue };
                *all += objects;
                for frame in &met {
                    let of = through.entry(*frame).or_insert_with(|| vec![0.0; groups]);
                    of[usize::from(*group)] += objects;
                }
            }
        }
        let sites = through.into_iter().map(|(at, objects)| Site { at, objects }).collect();
        sites::following(sites, &all, most_part, |frame| self.modules.call_spot(frame))
    }

    /// Functions that allocations come through, by their first bytes.
    fn functions_of(&mut self, id: ProcessId) -> Vec<Frame> {
        let objects = |(of, stack, sums): (ProcessId, StackId, &Vec<(u16, [f64; 2])>)| {
            (of == id).then(|| (sums.iter().map(|(_, sum)| sum[1]).sum::<f64>(), stack))
        };
        let mut stacks: Vec<(f64, StackId)> = self.clustered.rows().filter_map(objects).collect();
        stacks.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        stacks.truncate(MOST_STACKS);
        let all: f64 = stacks.iter().map(|(objects, _)| objects).sum();
        let mut firsts = FxHashMap::default();
        let mut functions: FxHashMap<Frame, f64> = FxHashMap::default();
        for (objects, stack) in stacks {
            let mut met = FxHashSet::default();
            for number in self.stacks.get(stack) {
                let frame = self.stacks.frame(*number);
                let first = *firsts
                    .entry(*number)
                    .or_insert_with(|| frame.code().and_then(|frame| self.modules.first(frame)));
                if let Some(first) = first.filter(|first| met.insert(*first)) {
                    *functions.entry(first).or_default() += objects;
                }
            }
        }
        let mut sorted: Vec<(Frame, f64)> =
            functions.into_iter().filter(|(_, objects)| *objects >= LEAST_PART * all).collect();
        sorted.sort_by(|(a, of_a), (b, of_b)| of_b.total_cmp(of_a).then(a.cmp(b)));
        sorted.into_iter().map(|(of, _)| of).collect()
    }
}
