//! The stack cache of the eBPF program: which stacks it contains, at which place, and
//! which stack an id means.
//!
//! A stack is entered if it has come twice, was unwound to its root, and its comparison costs less
//! than a copy. A stack is removed when the process ends or maps other code
//! ([`Image::view`](crate::unwind::Image::view)). It is also removed if other stacks of its set
//! come, and it does not.
//!
//! Ids are never reused. A record may contain an id that has just been removed, so an id stays
//! valid until all earlier records have been read.

mod spans;

use crate::bpf;
use crate::pipeline::clock::monotonic_ns;
use crate::store::StackId;
use crate::unwind::Evidence;
use rustc_hash::FxHashMap;
use sampler_common::limits::{
    CACHE_COPY_BYTES, CACHE_READ_BYTES, CACHED_SPAN_BYTES, CACHED_WORD_BYTES, MAX_CACHED_SPANS,
    MAX_CACHED_STACKS, MAX_CACHED_WORDS,
};
use sampler_common::wire::{
    CACHE_WAYS, CachedCall, CachedSpan, CachedStack, Space, cache_set, cache_tag,
};
use spans::Spans;
use std::collections::VecDeque;
use std::hash::{Hash as _, Hasher as _};

/// Maximum number of valid ids: those in the cache, and as many that were removed. At the bound no
/// further stack is entered.
const MAX_HELD: usize = 2 * MAX_CACHED_STACKS as usize;

/// Number of places that remember stacks that came once. If two stacks share a place, the later one
/// has it.
const RECENT_STACKS: usize = 8192;

/// Maximum time between a program's search in the cache and its record.
const HELD_UP_NS: u64 = 1_000_000_000;

/// A change to the kernel side's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    /// The entry at this index has this tag and this stack.
    Put(u32, u64, Box<CachedStack>),
    /// The entry at this index is vacant.
    Clear(u32),
}

/// A cached stack.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) stack: StackId,
    /// The view of the image for which the stack is valid.
    pub(super) view: u64,
    /// Address and value of each compared word.
    pub(super) words: Box<[(u64, u64)]>,
    call: CachedCall,
    /// Bytes of stack whose copy costs as much as the comparison.
    pub(super) cost_bytes: u32,
    /// Samples that named the stack; halved when another stack needs a place.
    hits: u32,
}

/// A stack that has been unwound.
pub(super) struct Unwound<'a> {
    pub(super) call: CachedCall,
    pub(super) bp: u64,
    pub(super) evidence: &'a Evidence,
    /// Bytes that were copied for the stack.
    pub(super) stack_bytes: u32,
    pub(super) stack: StackId,
    pub(super) view: u64,
}

/// The cached stacks.
pub(in crate::pipeline) struct StackCache {
    /// Whether the kernel side uses the cache.
    pub(in crate::pipeline) is_on: bool,
    /// Slot and id by index in the kernel's array.
    entries: Vec<Option<(u32, u64)>>,
    known: FxHashMap<u64, Entry>,
    /// The mappings of each process: generation and view.
    views: FxHashMap<u32, (u32, u64)>,
    recent: Vec<u32>,
    last_id: u64,
    changes: Vec<Change>,
    /// Ids that were removed. They move to `gone` when the eBPF map is updated, with the time of
    /// the update.
    leaving: Vec<u64>,
    gone: VecDeque<(u64, u64)>,
}

impl Default for StackCache {
    fn default() -> StackCache {
        StackCache {
            is_on: false,
            entries: vec![None; MAX_CACHED_STACKS as usize],
            known: FxHashMap::default(),
            views: FxHashMap::default(),
            recent: vec![0; RECENT_STACKS],
            last_id: 0,
            changes: Vec::new(),
            leaving: Vec::new(),
            gone: VecDeque::new(),
        }
    }
}

impl StackCache {
    /// Number of entries in the kernel's cache, and its bound.
    pub(in crate::pipeline) fn len(&self) -> (usize, usize) {
        (self.entries.iter().flatten().count(), self.entries.len())
    }

    /// The stack with this id. Counts that a sample has named it.
    pub(super) fn named(&mut self, id: u64) -> Option<&Entry> {
        let known = self.known.get_mut(&id)?;
        known.hits = known.hits.saturating_add(1);
        Some(known)
    }

    /// The stack with this id.
    pub(super) fn get(&self, id: u64) -> Option<&Entry> {
        self.known.get(&id)
    }

    /// Stacks of all valid ids.
    pub(in crate::pipeline) fn stacks(&self) -> impl Iterator<Item = (Space, StackId)> {
        self.known.values().map(|known| (known.call.space, known.stack))
    }

    /// Sets the view of an address space. Stacks of another view of the slot's process are removed.
    pub(super) fn see(&mut self, space: Space, view: u64) {
        let now = (space.generation, view);
        if self.views.insert(space.slot, now).is_some_and(|before| before != now) {
            self.take_back(space.slot);
        }
    }

    /// Forgets a process that has left its slot.
    pub(in crate::pipeline) fn end(&mut self, slot: u32) {
        if self.views.remove(&slot).is_some() {
            self.take_back(slot);
        }
    }

    fn take_back(&mut self, slot: u32) {
        for (entry, index) in self.entries.iter_mut().zip(0..) {
            if let Some((_, id)) = entry.take_if(|(of, _)| *of == slot) {
                self.leaving.push(id);
                self.changes.push(Change::Clear(index));
            }
        }
    }

    /// Adds a stack that was unwound to its root, if it is worth it.
    pub(super) fn add_unwound(&mut self, unwound: &Unwound<'_>) {
        let Some(words) = unwound.evidence.words() else { return };
        if !self.is_on || self.known.len() >= MAX_HELD {
            return;
        }
        let CachedCall { space, function, ip, sp } = unwound.call;
        let tag = cache_tag(space.word(), function, ip, sp);
        if !self.was_unwound_before(tag, unwound.stack) || self.has(tag, unwound, words) {
            return;
        }
        let Some(places) = places(sp, words) else { return };
        let Some(spans) = Spans::of(&places) else { return };
        let cost_bytes = cost_bytes(words.len(), &spans);
        if cost_bytes > unwound.stack_bytes {
            return;
        }
        let Some(mut wire) = wire(unwound, words, &places, &spans) else { return };
        let Some(index) = self.index_for(tag) else { return };
        self.last_id += 1;
        wire.id = self.last_id;
        let replaced = self.entries[index as usize].replace((space.slot, wire.id));
        self.leaving.extend(replaced.map(|(_, id)| id));
        let (stack, view, call) = (unwound.stack, unwound.view, unwound.call);
        let words = words.into();
        self.known.insert(wire.id, Entry { stack, view, words, call, cost_bytes, hits: 0 });
        self.changes.push(Change::Put(index, tag, wire));
    }

    /// Whether the stack was seen before; marks it as seen.
    fn was_unwound_before(&mut self, tag: u64, stack: StackId) -> bool {
        let mut hasher = rustc_hash::FxHasher::default();
        (tag, stack).hash(&mut hasher);
        let hash = hasher.finish();
        // Not 0, which marks an empty place.
        let print = (hash >> 32) as u32 | 1;
        std::mem::replace(&mut self.recent[hash as usize % RECENT_STACKS], print) == print
    }

    /// Whether the kernel side knows the stack already: this sample was sent before.
    fn has(&self, tag: u64, unwound: &Unwound<'_>, words: &[(u64, u64)]) -> bool {
        self.entries[set(tag)].iter().flatten().filter_map(|(_, id)| self.known.get(id)).any(
            |known| {
                let Unwound { call, stack, view, .. } = *unwound;
                (known.call, known.stack, known.view) == (call, stack, view)
                    && *known.words == *words
            },
        )
    }

    /// The place for one more stack of a set: a vacant one, or one that no sample has named since a
    /// place was last needed.
    /// If there is none, the hits of all stacks of the set are halved.
    fn index_for(&mut self, tag: u64) -> Option<u32> {
        let set = set(tag);
        let first = set.start as u32;
        let StackCache { entries, known, .. } = self;
        let mut least: Option<(u32, u32)> = None;
        for (entry, index) in entries[set].iter().zip(first..) {
            let Some((_, id)) = entry else { return Some(index) };
            let Some(known) = known.get_mut(id) else { return Some(index) };
            if least.is_none_or(|(hits, _)| known.hits < hits) {
                least = Some((known.hits, index));
            }
            known.hits /= 2;
        }
        least.filter(|(hits, _)| *hits == 0).map(|(_, index)| index)
    }

    /// Sends the changes to the kernel side.
    pub(super) fn update_kernel(&mut self, kernel: &mut bpf::maps::stack_cache::StackCache) {
        if self.changes.is_empty() {
            return;
        }
        for change in self.take_changes(monotonic_ns()) {
            match change {
                Change::Put(index, tag, stack) => kernel.put(index, tag, &stack),
                Change::Clear(index) => kernel.clear(index),
            }
        }
    }

    /// The changes that are sent to the kernel side at `now_ns`.
    fn take_changes(&mut self, now_ns: u64) -> Vec<Change> {
        self.gone.extend(self.leaving.drain(..).map(|id| (now_ns, id)));
        std::mem::take(&mut self.changes)
    }

    /// Forgets ids that were removed before `time_ns`: all earlier records have been read.
    pub(super) fn forget_gone(&mut self, time_ns: u64) {
        while let Some((of, id)) = self.gone.front()
            && of + HELD_UP_NS < time_ns
        {
            self.known.remove(id);
            self.gone.pop_front();
        }
    }
}

/// Bytes of stack whose copy costs as much as the comparison of `words` words.
fn cost_bytes(words: usize, spans: &Spans) -> u32 {
    let begun = spans.as_slice().len() as u64 * CACHED_SPAN_BYTES;
    let read = spans.words() as u64 * CACHE_READ_BYTES;
    let compared = words as u64 * CACHED_WORD_BYTES;
    (begun + read + compared).saturating_sub(CACHE_COPY_BYTES) as u32
}

/// Indices of the entries of a tag's set.
fn set(tag: u64) -> std::ops::Range<usize> {
    let first = (cache_set(tag) * CACHE_WAYS) as usize;
    first..first + CACHE_WAYS as usize
}

/// Positions of words, counted in words above the stack pointer; `None` if one lies outside of what
/// the kernel side reads.
fn places(sp: u64, words: &[(u64, u64)]) -> Option<Vec<u16>> {
    let place = |(address, _): &(u64, u64)| {
        let above = address.checked_sub(sp).filter(|above| above.is_multiple_of(8))?;
        u16::try_from(above / 8).ok()
    };
    words.iter().map(place).collect()
}

/// The kernel side's form of the stack, without an id.
fn wire(
    unwound: &Unwound<'_>,
    words: &[(u64, u64)],
    places: &[u16],
    spans: &Spans,
) -> Option<Box<CachedStack>> {
    let mut stack = Box::new(CachedStack {
        id: 0,
        call: unwound.call,
        bp: unwound.bp,
        bp_mask: if unwound.evidence.uses_bp() { u64::MAX } else { 0 },
        spans: spans.as_slice().len() as u32,
        words: words.len() as u32,
        span: [CachedSpan::default(); MAX_CACHED_SPANS],
        values: [0; MAX_CACHED_WORDS],
        places: [0; MAX_CACHED_WORDS],
    });
    stack.span[..spans.as_slice().len()].copy_from_slice(spans.as_slice());
    for (index, (place, (_, value))) in places.iter().zip(words).enumerate() {
        stack.places[index] = spans.index(*place)?;
        stack.values[index] = *value;
    }
    Some(stack)
}

#[cfg(test)]
mod tests;
