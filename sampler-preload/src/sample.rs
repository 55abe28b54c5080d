//! What happens around the few calls that are sampled, and around the end of sampled blocks.

use crate::filter::Filter;
use crate::inside::is_inside;
use crate::settings::{SETTINGS, Settings};
use crate::table::{Entered, Move, Table};
use crate::thread::{Countdown, Dice};
use crate::{boot, pages, probes, weight};
use core::sync::atomic::Ordering::Relaxed;
use sampler_common::sampling::{Cell, Design, Random as _, Rate, Strategy, draw_points, runs_on};
use sampler_common::wire::Unusual;

/// Where sampled blocks may be.
pub(crate) static FILTER: Filter = Filter::new();
/// Where they are.
static TABLE: Table = Table::new();

/// Has both take as little memory as they need.
pub(crate) fn settle() {
    pages::one_by_one(&raw const FILTER as usize, size_of::<Filter>());
    pages::one_by_one(&raw const TABLE as usize, size_of::<Table>());
}

/// Nothing was charged yet, see [`charge`]. A countdown that stood at −1 when it was charged looks the same and is charged again: it was not running,
/// so that this changes nothing.
const NOT_CHARGED: u64 = u64::MAX;

/// Charged, and not sampled: more than is left of any distance.
pub(crate) const RUNS_ON: u64 = i64::MAX as u64;

/// Charges a request of `size` bytes; `None`: not sampled, as nearly every one. Otherwise what [`decide`] wants to know.
#[inline(always)]
pub(crate) fn charge(size: usize) -> Option<u64> {
    let Some(hazard) = Settings::rate().charge(size as u64) else {
        return Some(NOT_CHARGED);
    };
    let left = Countdown.fetch_sub(hazard);
    if runs_on(left, hazard) { None } else { Some(left as u64) }
}

/// A countdown that was charged already: `left` is what it was before.
struct Charged(u64);

impl Cell for Charged {
    fn fetch_sub(&self, _: i64) -> i64 {
        self.0 as i64
    }

    fn swap(&self, value: i64) -> i64 {
        Countdown.swap(value)
    }
}

/// Whether a request of `size` bytes is to be told, and the rate that it was charged with.
pub(crate) fn decide(size: usize, left: u64) -> Option<Rate> {
    if Settings::rate().rate() == Rate::NEVER {
        boot::boot();
    }
    if SETTINGS.is_left() {
        Countdown.swap(i64::MAX / 2);
        return None;
    }
    let (rate, size) = (Settings::rate().rate(), size as u64);
    let design = Design::new(Strategy::Geometric, rate);
    let drawn = match left {
        NOT_CHARGED => draw_points(design, size, &Countdown, &Countdown, &mut Dice),
        left => draw_points(design, size, &Charged(left), &Countdown, &mut Dice),
    };
    if drawn.hits == 0 || is_inside() {
        return None;
    }
    if !probes::alloc_is_heard() {
        SETTINGS.unheard.fetch_add(1, Relaxed);
        return None;
    }
    if size == 0 {
        probes::ended(Unusual::Empty);
        return None;
    }
    Some(rate)
}

/// A block of `size` bytes that was sampled is at `address`. A probe wherever it is used, see [`probes::alloc`].
#[inline(always)]
pub(crate) fn begin(address: usize, size: usize, rate: Rate) {
    if address == 0 {
        return failed();
    }
    let entered = enter(address);
    if matches!(entered, Entered::Again | Entered::Lost) {
        probes::free(address);
    }
    let weighted = weight::weighted(size as u64, rate, Dice.next());
    probes::alloc(address, size as u64, weighted);
    if matches!(entered, Entered::Full | Entered::Lost) {
        // What was allocated is right at least; that it is held nobody could take back, or somebody may at any time.
        probes::free(address);
    }
}

/// A call that was to be told has allocated nothing.
pub(crate) fn failed() {
    probes::ended(Unusual::Failed);
}

#[inline(never)]
fn enter(address: usize) -> Entered {
    let entered = TABLE.enter(address);
    match entered {
        Entered::New => FILTER.add(address),
        Entered::Again => probes::ended(Unusual::EndedLate),
        Entered::Full => probes::ended(Unusual::TableFull),
        Entered::Lost => {
            probes::ended(Unusual::TableFull);
            FILTER.remove(address);
        }
    }
    entered
}

/// The block at `address` is about to end.
#[inline(always)]
pub(crate) fn end(address: usize) {
    if remove(address) {
        probes::free(address);
    }
}

#[inline(never)]
fn remove(address: usize) -> bool {
    let was_there = TABLE.remove(address);
    if was_there {
        FILTER.remove(address);
    }
    was_there
}

/// The block at `address` goes to `realloc`; `None` if it was not sampled.
#[inline(never)]
pub(crate) fn begin_move(address: usize) -> Option<Move> {
    if FILTER.may_hold(address) { TABLE.begin_move(address) } else { None }
}

/// It has come back from there.
#[inline(always)]
pub(crate) fn end_move(of: Move, address: usize, has_failed: bool) {
    if has_failed {
        TABLE.stay(of);
    } else if TABLE.end(of) {
        probes::free(address);
        if TABLE.ended(of) {
            FILTER.remove(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_common::sampling::rate::HAZARD_CERTAIN;

    /// A countdown of −1 looks as if nothing had been charged.
    #[test]
    fn a_countdown_that_is_not_running_is_begun_wherever_it_stands() {
        for stands in [i64::MIN / 2, -2, -1, 0] {
            Countdown.swap(stands);
            let left = charge(64).expect("it was not running");
            assert!(left == stands as u64 || left == NOT_CHARGED, "{stands} {left}");
            let is_sampled = decide(64, left).is_some();
            let now = Countdown.swap(0);
            assert!(is_sampled || (1..=HAZARD_CERTAIN as i64).contains(&now), "{stands} {now}");
        }
    }
}
