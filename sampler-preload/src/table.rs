//! The sampled blocks that are held: an exact set of addresses, without locks and without memory
//! allocation.
//!
//! The set has levels of growing numbers of slots, in one array of zeros. A block may be in
//! `WINDOW_SLOTS` slots of each level, beginning at the hash of its address. It gets the first free
//! slot of the lowest level. Blocks never move between slots, and a slot that becomes free is
//! reused. Look-ups check the windows of all levels that were ever used.
//!
//! # `realloc`
//!
//! A block leaves the set when it ends, and `realloc` ends a block or not: that is known only when
//! it has returned. Until then the block's slot is `State::Moving`. Meanwhile the allocator may
//! give the address to another thread:
//!
//! - If the other thread's block is sampled, the thread takes the slot over. The old block has
//!   ended then, and this thread reports the end first.
//! - If the block is not sampled, the thread leaves the slot alone. The thread that is still in
//!   `realloc` reports the end.
//!
//! While the end is being reported the slot is `State::Ending`, and a thread that enters the
//! address waits for that. It does not wait for ever: the reporting thread may have been lost by
//! `fork`, or be kept from running for long. A thread that gives up frees the slot and enters no
//! block, since the late end would be taken for that of its own block.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Slots of each level. All 340,000 together are enough for a heap of 170 GB at 512 KiB between
/// samples.
const LEVELS: [usize; 5] =
    [LOWEST_LEVEL, LOWEST_LEVEL << 2, LOWEST_LEVEL << 4, LOWEST_LEVEL << 6, LOWEST_LEVEL << 8];
/// Slots of the lowest level. Miri, which interprets tests, follows each slot by itself, so its
/// table is small.
const LOWEST_LEVEL: usize = if cfg!(miri) { 1 << 4 } else { 1 << 10 };
/// Number of slots in the levels below each level.
static BASES: [usize; LEVELS.len()] = bases();
/// Slots of all levels.
const SLOTS: usize = LEVELS[0] + LEVELS[1] + LEVELS[2] + LEVELS[3] + LEVELS[4];
/// Slots of a level that a block may be in: two cache lines.
const WINDOW_SLOTS: usize = 16;
/// Spins of a thread that waits for the report of an end, which takes a microsecond or two. After
/// so many spins the reporting thread counts as lost.
const MAX_SPINS: u32 = if cfg!(miri) { 100 } else { 100_000 };

/// Bits of a user address. Above these bits are the number of a move, and then the state.
const ADDRESS: u64 = (1 << 57) - 1;
/// Numbers of moves. They distinguish the move of a block from that of a later block with the same
/// address in the same slot.
const MOVES: u64 = 1 << 5;

/// The state of a block in the set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
enum State {
    /// Held.
    Held = 1 << 62,
    /// Being moved by `realloc`.
    Moving = 2 << 62,
    /// Its end is being reported.
    Ending = 3 << 62,
}

/// The result of entering a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entered {
    /// The block is in the set.
    New,
    /// The block is in the set in place of an earlier block at its address, whose end was not
    /// reported yet.
    Replaced,
    /// There was no room for the block.
    Full,
    /// The block is not in the set: the report of an earlier block's end at its address took too
    /// long. The earlier block's slot is free.
    Lost,
}

/// A place in the table.
#[derive(Clone, Copy, Debug)]
struct Slot(usize);

/// A block that `realloc` is moving.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    slot: Slot,
    address: usize,
    number: u64,
}

impl Move {
    fn word(&self, state: State) -> u64 {
        word(self.address, state) | self.number << ADDRESS.trailing_ones()
    }
}

/// The set. All zero is empty.
pub struct Table {
    used_levels: AtomicUsize,
    moves: AtomicU64,
    slots: [AtomicU64; SLOTS],
}

impl Default for Table {
    fn default() -> Table {
        Table::new()
    }
}

impl Table {
    /// An empty set.
    pub const fn new() -> Table {
        Table {
            used_levels: AtomicUsize::new(0),
            moves: AtomicU64::new(0),
            slots: [const { AtomicU64::new(0) }; SLOTS],
        }
    }

    /// Enters the block at `address`.
    pub fn enter(&self, address: usize) -> Entered {
        let held = word(address, State::Held);
        let mut patience = MAX_SPINS;
        while let Some((slot, now)) = self.find(address) {
            if state(now) != State::Ending as u64 {
                if self.exchange(slot, now, held) {
                    return Entered::Replaced;
                }
            } else if patience > 0 {
                patience -= 1;
                core::hint::spin_loop();
            } else if self.exchange(slot, now, 0) {
                return Entered::Lost;
            }
        }
        self.add(address)
    }

    /// Enters the block at `address`, which must not be in the set.
    pub fn add(&self, address: usize) -> Entered {
        let held = word(address, State::Held);
        for level in 0..LEVELS.len() {
            for slot in window(address, level) {
                if self.slot(slot).load(Ordering::Relaxed) == 0 && self.exchange(slot, 0, held) {
                    self.used_levels.fetch_max(level + 1, Ordering::AcqRel);
                    return Entered::New;
                }
            }
        }
        Entered::Full
    }

    /// Removes the block at `address`. Returns whether it was there: then the caller reports its
    /// end.
    ///
    /// A block that is under `realloc`, or whose end is being reported, is an earlier block than
    /// the caller's. The caller does not report the end of such a block.
    pub fn remove(&self, address: usize) -> bool {
        let held = word(address, State::Held);
        while let Some((slot, now)) = self.find(address) {
            if now != held {
                return false;
            }
            if self.exchange(slot, held, 0) {
                return true;
            }
        }
        false
    }

    /// Marks the block at `address` as being under `realloc`; `None` if the block is not in the
    /// set.
    pub fn begin_move(&self, address: usize) -> Option<Move> {
        let (slot, now) = self.find(address)?;
        let number = self.moves.fetch_add(1, Ordering::Relaxed) % MOVES;
        let of = Move { slot, address, number };
        let is_ours =
            now == word(address, State::Held) && self.exchange(slot, now, of.word(State::Moving));
        is_ours.then_some(of)
    }

    /// `realloc` has failed: the block is held as before.
    pub fn stay(&self, of: Move) {
        self.exchange(of.slot, of.word(State::Moving), word(of.address, State::Held));
    }

    /// `realloc` has ended the block. Returns whether the caller has to report the end, and then to
    /// call [`Table::ended`]. If not, the thread that got the address has reported it.
    pub fn end(&self, of: Move) -> bool {
        self.exchange(of.slot, of.word(State::Moving), of.word(State::Ending))
    }

    /// The end has been reported. Returns whether that has freed the slot; a thread that gave up
    /// waiting may have freed it before.
    pub fn ended(&self, of: Move) -> bool {
        self.exchange(of.slot, of.word(State::Ending), 0)
    }

    #[inline(never)]
    fn find(&self, address: usize) -> Option<(Slot, u64)> {
        let used = self.used_levels.load(Ordering::Acquire).min(LEVELS.len());
        for level in 0..used {
            for slot in window(address, level) {
                let now = self.slot(slot).load(Ordering::Acquire);
                if now != 0 && now & ADDRESS == address as u64 & ADDRESS {
                    return Some((slot, now));
                }
            }
        }
        None
    }

    fn exchange(&self, slot: Slot, before: u64, after: u64) -> bool {
        let slot = self.slot(slot);
        slot.compare_exchange(before, after, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn slot(&self, slot: Slot) -> &AtomicU64 {
        // The slot always exists.
        self.slots.get(slot.0).unwrap_or(&self.slots[0])
    }
}

const fn bases() -> [usize; LEVELS.len()] {
    let mut bases = [0; LEVELS.len()];
    let mut level = 1;
    while level < LEVELS.len() {
        bases[level] = bases[level - 1] + LEVELS[level - 1];
        level += 1;
    }
    bases
}

fn word(address: usize, state: State) -> u64 {
    address as u64 & ADDRESS | state as u64
}

/// The state bits of a word.
fn state(word: u64) -> u64 {
    word & State::Ending as u64
}

/// The slots of a level that may have the block at `address`.
fn window(address: usize, level: usize) -> impl Iterator<Item = Slot> {
    let base = BASES.get(level).unwrap_or(&0);
    let mask = LEVELS.get(level).unwrap_or(&LEVELS[0]) - 1;
    // Fibonacci hashing with an odd constant for each level, so that addresses that collide in one
    // level do not in the next.
    let hash = (address as u64 >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15 + 2 * level as u64);
    let first = (hash >> 40) as usize & mask;
    // The loop ends at the slot behind the window. With a count the compiler would unroll it.
    let end = (first + WINDOW_SLOTS) & mask;
    let next = move |slot: &usize| Some((slot + 1) & mask).filter(|slot| *slot != end);
    core::iter::successors(Some(first), next).map(move |slot| Slot(base + slot))
}

const _: () = assert!(SLOTS * 8 <= 3 << 20);
const _: () = assert!(MOVES << ADDRESS.trailing_ones() == State::Held as u64);

#[cfg(test)]
mod tests;
