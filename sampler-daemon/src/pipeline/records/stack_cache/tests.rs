//! Which stacks the kernel side learns, and how long their ids stay valid.

use super::*;
use crate::store::stacks::StackFrame;
use crate::store::{ProcessId, Stacks};
use crate::unwind::{Frame, ModuleId};
use sampler_common::share::Holder;

const SP: u64 = 0x7ffd_0000_1000;
const STACK_BYTES: u32 = 12 << 10;

fn stack(number: u64) -> StackId {
    let mut stacks = Stacks::default();
    let frame = |offset| StackFrame::Code(Frame { module: ModuleId(1), offset });
    let ids: Vec<_> = (0..=number)
        .map(|it| stacks.intern(Holder::of_unknown_user(ProcessId(0)), [frame(it)].into_iter()))
        .collect();
    ids.last().copied().flatten().unwrap()
}

fn call(slot: u32, generation: u32) -> CachedCall {
    CachedCall { space: Space { slot, generation }, function: 0x1000, ip: 0x2000, sp: SP }
}

fn evidence(value: u64) -> Evidence {
    Evidence::of_words(&[(SP + 8, value), (SP + 4096, 7)])
}

struct Table(StackCache, u64);

impl Table {
    fn new() -> Table {
        Table(StackCache { is_on: true, ..StackCache::default() }, 0)
    }

    /// Adds an unwound stack. Returns the changes for the kernel side.
    fn add_unwound(&mut self, call: CachedCall, value: u64, stack_bytes: u32) -> Vec<Change> {
        let evidence = evidence(value);
        let (stack, view, bp) = (stack(value % 1000), 1, 5);
        self.0.see(call.space, view);
        self.0.add_unwound(&Unwound { call, bp, evidence: &evidence, stack_bytes, stack, view });
        self.1 += 10;
        self.0.take_changes(self.1)
    }

    fn put(&mut self, call: CachedCall, value: u64) -> (u32, u64) {
        self.add_unwound(call, value, STACK_BYTES);
        match &self.add_unwound(call, value, STACK_BYTES)[..] {
            [Change::Put(index, _, stack)] => (*index, stack.id),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_stack_is_cached_from_its_second_sample_on() {
    let mut table = Table::new();
    assert_eq!(table.add_unwound(call(3, 1), 9, STACK_BYTES), []);
    let changes = table.add_unwound(call(3, 1), 9, STACK_BYTES);
    let [Change::Put(_, tag, wire)] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!(*tag, cache_tag(call(3, 1).space.word(), 0x1000, 0x2000, SP));
    assert_eq!((wire.id, wire.words, wire.bp_mask), (1, 2, 0));
    // Each word has a span of its own: the words between are not read.
    let span = |first| CachedSpan { first, words: 1 };
    assert_eq!((wire.spans, wire.span[..2].to_vec()), (2, vec![span(1), span(512)]));
    assert_eq!((wire.places[..2].to_vec(), wire.values[..2].to_vec()), (vec![0, 1], vec![9, 7]));
    // A sample that was sent before.
    assert_eq!(table.add_unwound(call(3, 1), 9, STACK_BYTES), []);
    assert_eq!(table.0.named(1).map(|known| known.stack), Some(stack(9)));
    assert_eq!(table.0.len(), (1, MAX_CACHED_STACKS as usize));
}

#[test]
fn costly_and_incomparable_stacks_are_not_cached() {
    let mut table = Table::new();
    // Every second word of 128, which are one span.
    let words: Vec<(u64, u64)> = (0..64).map(|word| (SP + word * 16, word)).collect();
    let many = Evidence::of_words(&words);
    let cost = CACHED_SPAN_BYTES + 127 * CACHE_READ_BYTES + 64 * CACHED_WORD_BYTES;
    let least = (cost - CACHE_COPY_BYTES) as u32;
    let odd = Evidence::of_words(&[(SP + 12, 1)]);
    let below = Evidence::of_words(&[(SP - 8, 1)]);
    let far = Evidence::of_words(&[(SP + 8 * 65536, 1)]);
    let mut lacking = evidence(9);
    lacking.mark_incomplete();
    let mut sent = |evidence: &Evidence, stack_bytes| {
        let (call, stack) = (call(3, 1), stack(9));
        let of = Unwound { call, bp: 0, evidence, stack_bytes, stack, view: 1 };
        (0..3).for_each(|_| table.0.add_unwound(&of));
        table.0.take_changes(1).len()
    };
    for evidence in [odd, below, far, lacking] {
        assert_eq!(sent(&evidence, STACK_BYTES), 0);
    }
    assert_eq!(sent(&many, least - 1), 0);
    assert_eq!(sent(&many, least), 1);
    assert_eq!(table.0.get(1).map(|known| known.cost_bytes), Some(least));
}

#[test]
fn stacks_of_one_call_share_a_set() {
    let mut table = Table::new();
    let mut indices: Vec<u32> = (0..8).map(|value| table.put(call(3, 1), value).0).collect();
    indices.sort_unstable();
    indices.dedup();
    assert_eq!(indices.len(), CACHE_WAYS as usize);
    assert!(indices.iter().all(|index| index / CACHE_WAYS == indices[0] / CACHE_WAYS));
    // The set is full, and all but the third are named.
    for id in [1, 2, 4, 5, 6, 7, 8] {
        table.0.named(id).unwrap();
    }
    let (index, id) = table.put(call(3, 1), 8);
    assert_eq!((table.0.entries[index as usize], id), (Some((3, 9)), 9));
    assert_eq!(table.0.gone.iter().map(|(_, id)| *id).collect::<Vec<_>>(), [3]);
    assert!(table.0.named(3).is_some(), "a record may name it");
    // Named often, the stacks stay for as many times as their hits halve.
    for id in [1, 2, 4, 5, 6, 7, 8, 9] {
        (0..4).for_each(|_| assert!(table.0.named(id).is_some()));
    }
    assert_eq!(table.add_unwound(call(3, 1), 10, STACK_BYTES), []);
    assert!((0..4).any(|_| !table.add_unwound(call(3, 1), 10, STACK_BYTES).is_empty()));
}

#[test]
fn stacks_are_cleared_with_their_view_and_ids_later() {
    let mut table = Table::new();
    let (index, id) = table.put(call(3, 1), 9);
    let (other, _) = table.put(call(4, 1), 9);
    table.0.see(Space { slot: 3, generation: 1 }, 1);
    assert_eq!(table.0.take_changes(100), []);
    table.0.see(Space { slot: 3, generation: 1 }, 2);
    assert_eq!(table.0.take_changes(100), [Change::Clear(index)]);
    table.0.forget_gone(100 + HELD_UP_NS);
    assert_eq!(table.0.named(id).map(|known| known.view), Some(1));
    table.0.forget_gone(101 + HELD_UP_NS);
    assert!(table.0.named(id).is_none());
    // Another program in the slot, or a vacant slot.
    table.0.see(Space { slot: 4, generation: 2 }, 1);
    assert_eq!(table.0.take_changes(200), [Change::Clear(other)]);
    let (index, _) = table.put(call(4, 2), 9);
    table.0.end(4);
    assert_eq!(table.0.take_changes(300), [Change::Clear(index)]);
    assert_eq!(table.0.len().0, 0);
}

#[test]
fn at_its_bound_the_cache_accepts_no_stack() {
    let mut table = Table::new();
    let mut sent = 0;
    for generation in 1..20_000 {
        sent += table.add_unwound(call(3, generation), 9, STACK_BYTES).len();
        sent += table.add_unwound(call(3, generation), 9, STACK_BYTES).len();
        assert!(table.0.known.len() <= MAX_HELD);
    }
    assert!(sent >= MAX_HELD);
    table.0.forget_gone(u64::MAX);
    assert_eq!(table.0.known.len(), table.0.len().0);
}
