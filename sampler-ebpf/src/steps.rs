//! Windows that begin and end at steps of a word of the program's memory, see [`sampler_common::duty::Steps`].
//!
//! The clock comes to the place that was drawn for a window, and to its end, as it does to those of others. From either on a step is waited for, by whoever hits a probe: the first that finds
//! another word than there was at the tick is the first, or the first not any more, of what is seen. A word that counts more rarely is waited for as long as the window is, each time.

use crate::{atomic, duty, maps, words};
use sampler_common::wire::{Duty, Phase, UNKNOWN_TALLY};

/// A field of a map value, which others may be writing.
macro_rules! read {
    ($duty:ident, $field:ident) => {
        // SAFETY: a field of a map value; others may be writing it, hence volatile.
        unsafe { core::ptr::read_volatile(&raw const (*$duty).$field) }
    };
}

/// The same, which others may be reading.
macro_rules! write {
    ($duty:ident, $field:ident, $value:expr) => {
        let value = $value;
        // SAFETY: as for `read`.
        unsafe { core::ptr::write_volatile(&raw mut (*$duty).$field, value) }
    };
}

/// A window of so many ticks is about to open: where it begins at a step it waits for that first.
#[inline(always)]
pub fn open(duty: *mut Duty, left: u64) {
    write!(duty, left_first, left);
    write!(duty, steps, 0);
    write!(duty, patience, left);
    let phase = if looks(duty) { Phase::Begins } else { Phase::Seen };
    write!(duty, phase, phase as u64);
}

/// The clock has ticked in a window, of which so many ticks are left: whether it goes on.
#[inline(always)]
pub fn goes_on(slot: u32, duty: *mut Duty, left: i64) -> bool {
    let phase = read!(duty, phase);
    if phase == Phase::Seen as u64 {
        if left > 0 {
            return true;
        }
        // Of several CPUs that come to it one makes the move.
        let waits = looks(duty);
        if waits {
            go(duty, Phase::Seen, Phase::Ends);
        }
        return waits;
    }
    if phase == Phase::Begins as u64 {
        // Until its end there was none: what is seen begins there.
        if left <= 0 && go(duty, Phase::Begins, Phase::Moves) {
            begins(slot);
            let phase = if looks(duty) { Phase::Ends } else { Phase::Seen };
            write!(duty, phase, phase as u64);
        }
        return true;
    }
    // Whatever it waits for, and whoever is held up in a move: it ends.
    left > (read!(duty, patience) as i64).wrapping_neg()
}

/// A probe is hit in a window: whether that is seen.
#[inline(always)]
pub fn is_seen(slot: u32, duty: *const Duty) -> bool {
    read!(duty, phase) == Phase::Seen as u64 || meets(slot)
}

/// The same where a step is waited for. A function of its own, so that the verifier looks at it apart.
#[inline(never)]
fn meets(slot: u32) -> bool {
    let Some(duty) = maps::DUTIES.get_ptr_mut(slot) else { return false };
    let phase = read!(duty, phase);
    let word = words::word(read!(duty, step_at));
    let is_step = word != UNKNOWN_TALLY && word != read!(duty, step_from);
    if phase == Phase::Begins as u64 {
        // One that comes while another makes the move is seen, or not, as it happens.
        if !is_step || !go(duty, Phase::Begins, Phase::Moves) {
            return false;
        }
        begins(slot);
        write!(duty, steps, 1);
        write!(duty, phase, Phase::Seen as u64);
        return true;
    }
    if phase == Phase::Ends as u64 {
        if !is_step || !go(duty, Phase::Ends, Phase::Moves) {
            return true;
        }
        let before = read!(duty, steps);
        write!(duty, steps, before + 1);
        if !duty::close(slot) {
            // It was put to sleep meanwhile, or the clock has ended it: if it goes on, the next step ends it.
            write!(duty, steps, before);
            write!(duty, phase, Phase::Ends as u64);
        }
        return false;
    }
    phase == Phase::Seen as u64
}

/// From now on it is seen.
#[inline(never)]
fn begins(slot: u32) -> bool {
    let Some(duty) = maps::DUTIES.get_ptr_mut(slot) else { return false };
    duty::tallies_begin(duty);
    write!(duty, left_first, read!(duty, left));
    true
}

/// Keeps what the word is now; whether there is one.
#[inline(always)]
fn looks(duty: *mut Duty) -> bool {
    let at = read!(duty, step_at);
    if at == 0 {
        return false;
    }
    let word = words::word(at);
    write!(duty, step_from, word);
    word != UNKNOWN_TALLY
}

/// Moves it on, if it is there.
#[inline(always)]
fn go(duty: *mut Duty, from: Phase, to: Phase) -> bool {
    // SAFETY: a field of a map value.
    atomic::exchange(unsafe { &raw mut (*duty).phase }, from as u64, to as u64)
}
