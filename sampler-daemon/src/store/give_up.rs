//! Selection of the stacks that exited processes discard, if their stacks together fill too much of
//! the table.
//!
//! Plainly: the processes with most stacks discard first, and discard the stacks with fewest bytes.
//! The counts of discarded stacks are summed without a stack.

use super::{Moves, ProcessId, Rows, StackId};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// Selects the stacks to discard, so that the processes for which `gives_up` holds keep at most
/// `room` stacks. Returns how many stacks are discarded, too. A stack that another process needs
/// stays in the table, and yet its samples of a discarding process have no stack any more.
pub fn give_up<'a>(
    tables: impl Iterator<Item = &'a Rows>,
    gives_up: impl Fn(ProcessId) -> bool,
    room: usize,
) -> (Moves, u64) {
    let mut bytes: FxHashMap<ProcessId, FxHashMap<StackId, f64>> = FxHashMap::default();
    for (key, row) in tables.flat_map(Rows::iter).filter(|(key, _)| gives_up(key.process)) {
        let stacks = bytes.entry(key.process).or_default();
        *stacks.entry(key.stack).or_default() += row.alloc_space.sum;
    }
    let (mut moves, mut discarded) = (Moves::default(), 0);
    let most = level(bytes.values().map(FxHashMap::len).collect(), room);
    for (process, stacks) in bytes.into_iter().filter(|(_, stacks)| stacks.len() > most) {
        let mut stacks: Vec<(StackId, f64)> = stacks.into_iter().collect();
        stacks.sort_unstable_by(|(_, a), (_, b)| b.total_cmp(a));
        discarded += stacks[most..].iter().filter(|(stack, _)| stack.has_frames()).count() as u64;
        moves.keep(process, stacks.into_iter().take(most).map(|(stack, _)| stack).collect());
    }
    (moves, discarded)
}

/// The largest L with Σ min(count, L) ≤ room.
fn level(mut counts: Vec<usize>, mut room: usize) -> usize {
    counts.sort_unstable_by_key(|count| Reverse(*count));
    while let Some(least) = counts.pop() {
        let each = room / (counts.len() + 1);
        if least > each {
            return each;
        }
        room -= least;
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::stacks::StackFrame;
    use crate::store::{Lifetimes, LiveSample, LiveSamples, Stacks, Windows};
    use crate::unwind::{Frame, ModuleId};
    use proptest::prelude::*;
    use sampler_common::estimate::Sample;
    use sampler_common::sampling::Rate;
    use sampler_common::share::Holder;
    use sampler_common::wire::Space;
    use std::collections::BTreeSet;

    #[test]
    fn the_stacks_with_most_bytes_stay_and_no_byte_is_lost() {
        let mut stacks = Stacks::default();
        let (mut rows, mut windows) = (Rows::default(), Windows::new(0));
        let (mut live, mut lifetimes) = (LiveSamples::default(), Lifetimes::default());
        let [many, few, running] = [1, 2, 3].map(ProcessId);
        let mut total = 0.0;
        for (process, count) in [(many, 100), (few, 4), (running, 50)] {
            for offset in 0..count {
                let frame = StackFrame::Code(Frame { module: ModuleId(1), offset });
                let stack =
                    stacks.intern(Holder { user: 1, process }, std::iter::once(frame)).unwrap();
                let sample = Sample::geometric(100 + offset, Rate::ALWAYS);
                let space = Space { slot: 0, generation: 0 };
                let held = LiveSample { process, space, stack, sample, time_ns: 0 };
                assert!(
                    rows.add(Holder { user: 1, process }, stack, &sample)
                        && windows.add(process, stack, &sample, 0)
                );
                assert!(lifetimes.ended(&held, 1, 5));
                live.leave_behind(vec![held], Holder::of_unknown_user);
                total += sample.bytes();
            }
        }
        let (moves, discarded) = give_up([&rows].into_iter(), |process| process != running, 34);
        assert_eq!(discarded, 70);
        rows.fold(&moves, Holder::of_unknown_user);
        windows.fold(&moves);
        live.fold(&moves, Holder::of_unknown_user);
        lifetimes.fold(&moves, Holder::of_unknown_user);
        let of = |process, stacks: &mut dyn Iterator<Item = (ProcessId, StackId)>| {
            let own = stacks.filter(|(of, _)| *of == process).map(|(_, stack)| stack);
            own.collect::<BTreeSet<_>>()
        };
        for (process, kept, is_cut) in [(many, 30, true), (few, 4, false), (running, 50, false)] {
            let stacks = of(process, &mut rows.stacks());
            assert_eq!(stacks.contains(&StackId::TABLE_FULL), is_cut);
            assert_eq!(stacks.len(), kept + usize::from(is_cut));
            assert_eq!(of(process, &mut windows.stacks()), stacks);
            assert_eq!(of(process, &mut live.stacks()), stacks);
            assert_eq!(of(process, &mut lifetimes.stacks()), stacks);
        }
        let sum = |rows: &mut dyn Iterator<Item = f64>| rows.sum::<f64>();
        assert_eq!(sum(&mut rows.iter().map(|(_, row)| row.alloc_space.sum)), total);
        assert_eq!(sum(&mut live.left_behind().map(|live| live.sample.bytes())), total);
        let smallest = rows.iter().filter(|(key, _)| key.process == many);
        let smallest = smallest.filter(|(key, _)| key.stack != StackId::TABLE_FULL);
        assert!(smallest.map(|(_, row)| row.alloc_space.sum).all(|bytes| bytes >= 170.0));
    }

    proptest! {
        #[test]
        fn the_level_fills_the_room(
            counts in prop::collection::vec(0usize..50, 0..20),
            room in 0usize..500,
        ) {
            let kept = |level: usize| counts.iter().map(|count| level.min(*count)).sum::<usize>();
            let level = level(counts.clone(), room);
            prop_assert!(kept(level) <= room);
            prop_assert!(level == usize::MAX || kept(level + 1) > room);
        }
    }
}
