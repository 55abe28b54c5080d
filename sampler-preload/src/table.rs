//! The sampled blocks that are held: an exact set of addresses, without locks and without memory of its own making.
//!
//! Levels of a growing number of slots, in one array of zeros. A block may lie in `WINDOW_SLOTS` slots of each level, beginning at the
//! hash of its address; it goes to the first free one of the lowest level. Nothing ever moves, so a block is found where it was
//! put, and a slot that is given up is free for the next. Lookups look at the windows of all levels that were ever used.
//!
//! # What `realloc` needs
//!
//! A block leaves the set when it ends, and that is known of `realloc` only afterwards: until then its slot says so
//! (`State::Moving`). Another thread may get the address from the allocator meanwhile. If its block is sampled, it finds the slot and takes it over: the
//! old block has ended then, and it is for that thread to say so first. If it is not, it leaves the slot alone, and the end is said by the thread that
//! is still in `realloc`. While the end is being said the slot is `State::Ending`, and whoever enters the address waits for that; not for ever, since a
//! thread may have been lost by `fork` in between, or be kept from running for long. Whoever has lost patience frees the slot and does without one: the late
//! end would be taken for that of its own block.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Slots of each level. All together 340,000: at 512 KiB between samples a heap of 170 GB.
const LEVELS: [usize; 5] = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18];
/// Slots of the levels below each.
static BASES: [usize; LEVELS.len()] = bases();
/// Slots of all levels.
const SLOTS: usize = LEVELS[0] + LEVELS[1] + LEVELS[2] + LEVELS[3] + LEVELS[4];
/// Slots of a level that a block may lie in: two lines of cache.
const WINDOW_SLOTS: usize = 16;
/// A thread that says the end of a block needs a microsecond or two; after so many looks it is taken for lost.
const MAX_SPINS: u32 = 100_000;

/// Bits of a user address. Above them is the number of a move, and above that the state.
const ADDRESS: u64 = (1 << 57) - 1;
/// Numbers of moves: a slot that another block at the same address has taken and moves as well has another number.
const MOVES: u64 = 1 << 5;

/// What is known of a block in the set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
enum State {
    /// Held.
    Held = 1 << 62,
    /// Under `realloc`.
    Moving = 2 << 62,
    /// Its end is being said.
    Ending = 3 << 62,
}

/// What became of a block that was entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entered {
    /// It is in the set.
    New,
    /// It is in the set in place of an earlier block at its address, whose end nobody has said yet.
    Again,
    /// There was no room for it.
    Full,
    /// It is not in the set: the end of an earlier block at its address is being said, and has been for too long. That one's slot is free.
    Lost,
}

/// A place in the table.
#[derive(Clone, Copy, Debug)]
struct Slot(usize);

/// A block under `realloc`.
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
    /// An empty one.
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
                    return Entered::Again;
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

    /// Enters the block at `address`, of which nothing is there.
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

    /// Takes out the block at `address`; whether it was there. Its end is for the caller to say.
    ///
    /// One that is under `realloc`, or whose end is being said, is an earlier block than the caller's, and its end is not for the caller.
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

    /// Marks the block at `address` as being under `realloc`; `None` if it is not in the set.
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

    /// `realloc` has ended the block; whether that is for the caller to say, which then calls [`Table::ended`]. If not, somebody
    /// who got its address has said it.
    pub fn end(&self, of: Move) -> bool {
        self.exchange(of.slot, of.word(State::Moving), of.word(State::Ending))
    }

    /// The end has been said; whether the slot is free by that (somebody may have lost patience).
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
        // Always there.
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

/// The state in a word.
fn state(word: u64) -> u64 {
    word & State::Ending as u64
}

/// The slots of a level in which the block at `address` may lie.
fn window(address: usize, level: usize) -> impl Iterator<Item = Slot> {
    let base = BASES.get(level).unwrap_or(&0);
    let mask = LEVELS.get(level).unwrap_or(&LEVELS[0]) - 1;
    // Fibonacci hashing; an odd constant for each level, so that a crowd disperses.
    let hash = (address as u64 >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15 + 2 * level as u64);
    let first = (hash >> 40) as usize & mask;
    // Up to the slot behind, and not so many: the compiler would write each of them down.
    let end = (first + WINDOW_SLOTS) & mask;
    let next = move |slot: &usize| Some((slot + 1) & mask).filter(|slot| *slot != end);
    core::iter::successors(Some(first), next).map(move |slot| Slot(base + slot))
}

const _: () = assert!(SLOTS * 8 <= 3 << 20);
const _: () = assert!(MOVES << ADDRESS.trailing_ones() == State::Held as u64);

#[cfg(test)]
mod tests;
