//! Arrays whose memory the daemon shares with the eBPF program: process slots, free filter, state.

use crate::bpf::sys::SharedMemory;
use rustc_hash::FxHashMap;
use sampler_common::counting::Counted;
use sampler_common::limits::CLASSES;
use sampler_common::sampling::Design;
use sampler_common::wire::{
    self, Cookie, HITS_PER_SLOT, HITS_SWITCH, KernelState, ProcessConfig, Role, Space,
};
use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

const PAGE: usize = 4096;

/// Rounds `bytes` up to whole pages.
pub(in crate::bpf) fn pages(bytes: usize) -> usize {
    bytes.div_ceil(PAGE) * PAGE
}

/// The process slots (`PROCESSES`).
#[derive(Debug)]
pub struct ProcessSlots {
    memory: SharedMemory,
    slots: u32,
    /// The generation with which the present use of each slot began.
    begun: Vec<AtomicU32>,
}

impl ProcessSlots {
    pub(in crate::bpf) fn map(fd: BorrowedFd<'_>, slots: u32) -> io::Result<ProcessSlots> {
        let bytes = pages(slots as usize * size_of::<ProcessConfig>());
        let memory = SharedMemory::map(fd, bytes, 0, true)?;
        let begun = (0..slots).map(|_| AtomicU32::new(0)).collect();
        Ok(ProcessSlots { memory, slots, begun })
    }

    fn offset(slot: u32, field: usize) -> usize {
        slot as usize * size_of::<ProcessConfig>() + field
    }

    /// Sets the designs of all size classes, from the next call on.
    pub fn set_designs(&mut self, slot: u32, designs: &[Design; CLASSES]) {
        // `wanted` is written first: the kernel side reads it again after it has changed a design.
        for field in [offset_of!(ProcessConfig, wanted), offset_of!(ProcessConfig, designs)] {
            for (class, design) in designs.iter().enumerate() {
                self.word(slot, field + class * 8).store(design.word(), SeqCst);
            }
        }
    }

    /// Releases the slot's back-pressure.
    pub fn release_ring_pressure(&mut self, slot: u32) {
        for class in 0..CLASSES {
            let wanted = self.word(slot, offset_of!(ProcessConfig, wanted) + class * 8);
            let in_force = self.word(slot, offset_of!(ProcessConfig, designs) + class * 8);
            in_force.store(wanted.load(SeqCst), SeqCst);
        }
    }

    /// Returns the highest level of the slot's back-pressure since the last call, or since the slot
    /// was prepared.
    pub fn take_ring_level(&mut self, slot: u32) -> u32 {
        let levels = self.word(slot, offset_of!(ProcessConfig, levels)).swap(0, SeqCst);
        levels.checked_ilog2().unwrap_or(0)
    }

    /// How often back-pressure has raised an interval of the slot.
    pub fn ring_raises(&self, slot: u32) -> u64 {
        self.word(slot, offset_of!(ProcessConfig, ring_raises)).load(SeqCst)
    }

    /// Sets whether no block of the slot enters the live set. That is needed where some frees would
    /// not be seen.
    pub fn set_holds_nothing(&mut self, slot: u32, holds_nothing: bool) {
        let field = offset_of!(ProcessConfig, holds_nothing);
        self.word(slot, field).store(u64::from(holds_nothing), SeqCst);
    }

    /// Whether no block of the slot enters the live set; see [`ProcessSlots::set_holds_nothing`].
    pub fn holds_nothing(&self, slot: u32) -> bool {
        self.word(slot, offset_of!(ProcessConfig, holds_nothing)).load(SeqCst) != 0
    }

    /// Bytes of the slot's records that wait in the ring.
    pub fn waiting(&self, slot: u32) -> u64 {
        // `ring_read` is loaded first: `ring_sent`, loaded later, is then never less.
        let read = self.word(slot, offset_of!(ProcessConfig, ring_read)).load(SeqCst);
        self.word(slot, offset_of!(ProcessConfig, ring_sent)).load(SeqCst).wrapping_sub(read)
    }

    fn word(&self, slot: u32, field: usize) -> &AtomicU64 {
        self.memory.atomic_u64(Self::offset(slot, field))
    }

    /// The generation of the slot: its current program image.
    pub fn generation(&self, slot: u32) -> u32 {
        self.memory
            .atomic_u32(Self::offset(slot, offset_of!(ProcessConfig, generation)))
            .load(SeqCst)
    }

    /// How often a thread other than the first has called `execve` in the slot.
    pub fn leader_changes(&self, slot: u32) -> u32 {
        self.memory
            .atomic_u32(Self::offset(slot, offset_of!(ProcessConfig, leader_changes)))
            .load(SeqCst)
    }

    /// Counts `bytes` of the slot's records that the daemon has read from the ring. An unknown slot
    /// is ignored.
    pub(in crate::bpf) fn add_read(&self, slot: u32, bytes: u64) {
        self.add(slot, offset_of!(ProcessConfig, ring_read), bytes);
    }

    /// Subtracts an entry of the slot that the daemon has removed from the live set.
    pub(super) fn subtract_live(&self, slot: u32) {
        self.add(slot, offset_of!(ProcessConfig, live), 1u64.wrapping_neg());
    }

    fn add(&self, slot: u32, field: usize, amount: u64) {
        // The slot comes from the kernel side and may be out of range.
        if slot < self.slots {
            self.memory.atomic_u64(Self::offset(slot, field)).fetch_add(amount, SeqCst);
        }
    }

    /// Starts or ends a use of the slot. Records of earlier generations are then stale. Returns the
    /// new generation.
    pub fn renew(&mut self, slot: u32) -> u32 {
        self.word(slot, offset_of!(ProcessConfig, levels)).store(0, SeqCst);
        self.word(slot, offset_of!(ProcessConfig, ring_raises)).store(0, SeqCst);
        let offset = Self::offset(slot, offset_of!(ProcessConfig, generation));
        let generation = self.memory.atomic_u32(offset).fetch_add(1, SeqCst) + 1;
        if let Some(begun) = self.begun.get(slot as usize) {
            begun.store(generation, SeqCst);
        }
        generation
    }

    /// Whether `space` belongs to the present or next use of its slot. A program image of an
    /// earlier use says nothing about the present use.
    pub fn is_of_now(&self, space: Space) -> bool {
        let begun = self.begun.get(space.slot as usize);
        begun.is_some_and(|begun| space.generation >= begun.load(SeqCst))
    }
}

/// The counters in front of the live set (`FILTER_FRONT` and `FILTER`).
#[derive(Debug)]
pub struct Filter {
    front: SharedMemory,
    back: SharedMemory,
    back_shift: u64,
}

impl Filter {
    pub(in crate::bpf) fn map(
        front: BorrowedFd<'_>,
        back: BorrowedFd<'_>,
        back_counters: usize,
    ) -> io::Result<Filter> {
        let map = |fd, counters: usize| SharedMemory::map(fd, pages(counters / 2), 0, true);
        Ok(Filter {
            front: map(front, wire::FILTER_FRONT_COUNTERS as usize)?,
            back: map(back, back_counters)?,
            back_shift: 64 - u64::from(back_counters.ilog2()),
        })
    }

    /// Lowers the counters of a block of `slot` at `pointer` that has left the live set.
    pub fn leave(&mut self, pointer: u64, slot: u32) {
        for (level, shift) in
            [(&self.front, wire::FILTER_FRONT_SHIFT), (&self.back, self.back_shift)]
        {
            let index = wire::filter_index(pointer, slot, shift);
            let (word, bit) = (level.atomic_u32(index as usize / 8 * 4), wire::filter_bit(index));
            let lower = |old| Some(wire::filter_lowered(old, bit));
            // The update cannot fail: there is always a new value.
            let _ = word.fetch_update(SeqCst, SeqCst, lower);
        }
    }
}

/// The state that all processes share (`STATE`).
#[derive(Debug)]
pub struct State(SharedMemory);

impl State {
    pub(in crate::bpf) fn map(fd: BorrowedFd<'_>) -> io::Result<State> {
        Ok(State(SharedMemory::map(fd, PAGE, 0, true)?))
    }

    /// Number of entries in the live set. An entry is counted after its insertion, and may be
    /// removed in between.
    pub fn live(&self) -> u64 {
        let counted = self.0.atomic_u64(offset_of!(KernelState, live)).load(SeqCst);
        counted.cast_signed().max(0).cast_unsigned()
    }

    /// Slots that new processes have taken.
    pub fn claims(&self) -> u64 {
        self.0.atomic_u64(offset_of!(KernelState, claims)).load(SeqCst)
    }

    /// Calls of profiled processes that found no slot.
    pub fn unseen_calls(&self) -> u64 {
        self.0.atomic_u64(offset_of!(KernelState, unseen_calls)).load(SeqCst)
    }

    /// Calls of excluded processes on shared links.
    pub fn excluded_calls(&self) -> u64 {
        self.0.atomic_u64(offset_of!(KernelState, excluded_calls)).load(SeqCst)
    }

    /// Sets the number of entries of the live set that every process may have before it has to make
    /// room for others.
    pub fn set_live_share(&mut self, entries: u64) {
        self.0.atomic_u64(offset_of!(KernelState, live_share)).store(entries, SeqCst);
    }

    /// Children of followed processes that are not followed, for want of room.
    pub fn unfollowed(&self) -> u64 {
        self.0.atomic_u64(offset_of!(KernelState, unfollowed)).load(SeqCst)
    }

    /// Invalidates all memos, because `TARGETS` has changed.
    pub(super) fn begin_epoch(&self) {
        self.0.atomic_u64(offset_of!(KernelState, epoch)).fetch_add(1, SeqCst);
    }

    /// Subtracts entries that the daemon has removed from the live set.
    pub fn subtract_live(&mut self, entries: u64) {
        self.0.atomic_u64(offset_of!(KernelState, live)).fetch_sub(entries, SeqCst);
    }
}

/// Approximate counts of each slot's hits (`HITS`), by role, and separately for emulated and
/// single-stepped instructions.
#[derive(Debug)]
pub struct Hits {
    memory: SharedMemory,
    /// Counts of counters that were restarted since, by slot and counter.
    before: FxHashMap<(u32, u32), Counted>,
}

impl Hits {
    const LINE: usize = 64;

    pub(in crate::bpf) fn map(fd: BorrowedFd<'_>, slots: u32) -> io::Result<Hits> {
        let bytes = pages((slots * HITS_PER_SLOT) as usize * Self::LINE);
        Ok(Hits { memory: SharedMemory::map(fd, bytes, 0, true)?, before: FxHashMap::default() })
    }

    fn word(&self, slot: u32, counter: u32) -> &AtomicU64 {
        self.memory.atomic_u64((slot * HITS_PER_SLOT + counter) as usize * Self::LINE)
    }

    /// Sets the counts of a slot to 0 for a new use of the slot.
    pub fn reset(&mut self, slot: u32) {
        (0..HITS_PER_SLOT).for_each(|counter| self.word(slot, counter).store(0, SeqCst));
        self.before.retain(|(of, _), _| *of != slot);
    }

    /// Restarts the slot's counters and keeps their counts. Later hits are then counted exactly,
    /// however many came before. A concurrent hit falls into the old or the new count.
    pub fn begin_anew(&mut self, slot: u32) {
        for counter in 0..HITS_PER_SLOT {
            let shown = self.word(slot, counter).swap(0, SeqCst);
            if shown > 0 {
                let before = self.before.entry((slot, counter)).or_default();
                before.add(&HITS_SWITCH.counted(shown));
            }
        }
    }

    fn counted(&self, slot: u32, counter: u32) -> Counted {
        let mut all = HITS_SWITCH.counted(self.word(slot, counter).load(SeqCst));
        if let Some(before) = self.before.get(&(slot, counter)) {
            all.add(before);
        }
        all
    }

    /// Hits while the slot's gate was not open: emulated and single-stepped.
    pub fn read_outside(&self, slot: u32) -> [Counted; 2] {
        // All roles have the same counter outside of windows.
        Self::both(slot, Role::Malloc).map(|cookie| self.counted(slot, cookie.counter_outside()))
    }

    /// Hits of the slot's functions of `role`, emulated and single-stepped. An emulated malloc has
    /// no counter here: its hits are counted exactly, by their outcomes.
    pub fn read(&self, slot: u32, role: Role) -> [Counted; 2] {
        Self::both(slot, role).map(|cookie| self.counted(slot, cookie.counter()))
    }

    fn both(slot: u32, role: Role) -> [Cookie; 2] {
        [true, false].map(|emulated| Cookie::new(slot, role).placed(emulated))
    }
}

/// Positions of the ring's writers and of its reader, in bytes.
#[derive(Debug)]
pub struct RingPositions {
    consumer: SharedMemory,
    producer: SharedMemory,
}

impl RingPositions {
    pub(in crate::bpf) fn map(fd: BorrowedFd<'_>) -> io::Result<RingPositions> {
        Ok(RingPositions {
            consumer: SharedMemory::map(fd, PAGE, 0, true)?,
            producer: SharedMemory::map(fd, PAGE, PAGE, false)?,
        })
    }

    /// Bytes read so far.
    pub fn consumed(&self) -> u64 {
        self.consumer.atomic_u64(0).load(SeqCst)
    }

    /// Bytes reserved so far.
    pub fn produced(&self) -> u64 {
        self.producer.atomic_u64(0).load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::AsFd as _;

    #[test]
    fn records_of_an_earlier_slot_generation_are_rejected() {
        let memory = memfd_create(c"slots", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memory, pages(4 * size_of::<ProcessConfig>()) as u64).unwrap();
        let mut slots = ProcessSlots::map(memory.as_fd(), 4).unwrap();
        let is_of_now =
            |slots: &ProcessSlots, slot, generation| slots.is_of_now(Space { slot, generation });
        let first = slots.renew(2);
        // The process executes one program after the other.
        assert!(is_of_now(&slots, 2, first) && is_of_now(&slots, 2, first + 3));
        // The process ends. Then the slot is prepared for another process.
        slots.renew(2);
        let second = slots.renew(2);
        assert!(!is_of_now(&slots, 2, first) && !is_of_now(&slots, 2, second - 1));
        assert!(is_of_now(&slots, 2, second));
        assert_eq!((slots.generation(2), slots.generation(1)), (second, 0));
        assert!(!is_of_now(&slots, 4, 7), "there is no such slot");
    }
}
