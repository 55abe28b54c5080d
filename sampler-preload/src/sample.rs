//! The work for the few calls that are sampled, and for the end of sampled blocks.

use crate::filter::Filter;
use crate::inside::is_inside;
use crate::settings::{SETTINGS, Settings};
use crate::table::{Entered, Move, Table};
use crate::thread::{Charged, Countdown, ThreadRandom};
use crate::{boot, fork, pages, probes, weight};
use core::sync::atomic::Ordering::Relaxed;
use sampler_common::sampling::rate::HAZARD_CERTAIN;
use sampler_common::sampling::{Cell, Random as _, Rate, Trial, draw, trial};
use sampler_common::wire::Unusual;

/// Filter of the addresses of sampled blocks.
pub(crate) static FILTER: Filter = Filter::new();
/// The sampled blocks.
pub(crate) static TABLE: Table = Table::new();

/// Makes the filter and the table take as little memory as they need.
pub(crate) fn save_memory() {
    pages::one_by_one(&raw const FILTER as usize, size_of::<Filter>());
    pages::one_by_one(&raw const TABLE as usize, size_of::<Table>());
}

/// Charges a request of `size` bytes. `None`: it is not sampled, like nearly every request.
/// Otherwise the input of [`decide`].
///
/// An empty request counts as a byte, and one that is larger than possible is certainly sampled.
/// Both are rare, and are not charged here.
#[inline(always)]
pub(crate) fn charge(size: usize) -> Option<Charged> {
    charge_at(Settings::here().rate.load(Relaxed), size)
}

#[inline(always)]
pub(crate) fn charge_at(rate: u64, size: usize) -> Option<Charged> {
    let size = size as i64;
    if size <= 0 {
        return Some(Charged::Not);
    }
    Countdown.charge(size.checked_mul(rate as i64).unwrap_or(HAZARD_CERTAIN as i64))
}

/// The rate that a request of `size` bytes was charged with, if the request is to be reported.
pub(crate) fn decide(size: usize, charged: Charged) -> Option<Rate> {
    fork::prepare_new_child();
    if SETTINGS.rate() == Rate::NEVER {
        boot::boot();
    }
    if SETTINGS.is_left() {
        Countdown.swap(i64::MAX / 2);
        return None;
    }
    let rate = SETTINGS.rate();
    if !is_hit(rate.charge(size as u64), charged) || is_inside() {
        return None;
    }
    if !probes::alloc_has_listener() {
        SETTINGS.undelivered.fetch_add(1, Relaxed);
        SETTINGS.forget_debt();
        return None;
    }
    SETTINGS.take_token();
    if size == 0 {
        probes::ended(Unusual::Empty);
        return None;
    }
    Some(rate)
}

/// Whether a request with this hazard is sampled. Afterwards a countdown is running.
fn is_hit(hazard: u64, charged: Charged) -> bool {
    let before = match charged {
        Charged::RunsOn => return false,
        // The true value may be larger, but after the countdown has ended that makes no difference.
        Charged::Ends => 1,
        Charged::Idle => 0,
        Charged::Not => Countdown.fetch_sub(hazard as i64),
    };
    if trial(&ChargedCountdown(before), hazard, &mut ThreadRandom) == Trial::Miss {
        return false;
    }
    // Begins the next countdown. Otherwise the next request would have to take this slow path to
    // begin it.
    Countdown.swap(draw(ThreadRandom.next()) as i64);
    true
}

/// A countdown that was charged already, with its value before.
struct ChargedCountdown(i64);

impl Cell for ChargedCountdown {
    fn fetch_sub(&self, _: i64) -> i64 {
        self.0
    }

    fn swap(&self, value: i64) -> i64 {
        Countdown.swap(value)
    }
}

/// A sampled block of `size` bytes is at `address`. Each use contains a probe of its own, see
/// [`probes::alloc`].
#[inline(always)]
pub(crate) fn begin(address: usize, size: usize, rate: Rate) {
    if address == 0 {
        return failed();
    }
    let entered = enter(address);
    if matches!(entered, Entered::Replaced | Entered::Lost) {
        probes::free(address);
    }
    let weighted = weight::weighted(size as u64, rate, ThreadRandom.next());
    probes::alloc(address, size as u64, weighted);
    if matches!(entered, Entered::Full | Entered::Lost) {
        // The end is reported at once, so that at least allocated totals are right. With `Full` no
        // later free could find the block. With `Lost` the late end of the earlier block may come
        // at any time.
        probes::free(address);
    }
}

/// Reports that a call that was to be reported has allocated nothing.
pub(crate) fn failed() {
    probes::ended(Unusual::Failed);
}

#[inline(never)]
fn enter(address: usize) -> Entered {
    // A block that the filter does not count is not in the table.
    let entered = if FILTER.may_hold(address) { TABLE.enter(address) } else { TABLE.add(address) };
    match entered {
        Entered::New => FILTER.add(address),
        Entered::Replaced => probes::ended(Unusual::EndedLate),
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

/// The `realloc` of a sampled block has returned.
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

    #[test]
    fn an_idle_countdown_is_started_at_any_value() {
        let rate = Rate::from_interval(512 << 10).unwrap();
        for stands in [i64::MIN / 2, -2, -1, 0] {
            for charged in [Charged::Idle, Charged::Not] {
                Countdown.swap(stands);
                if charged == Charged::Idle {
                    assert_eq!(charge_at(rate.raw(), 64), Some(charged), "{stands}");
                }
                is_hit(rate.charge(64), charged);
                let now = Countdown.swap(0);
                assert!((1..=HAZARD_CERTAIN as i64).contains(&now), "{stands} {now}");
            }
        }
    }

    #[test]
    fn a_request_is_charged_by_its_size() {
        for interval in [1, 2, 3, 4095, 4096, 4097, 1 << 19, 1 << 32] {
            let rate = Rate::from_interval(interval).unwrap();
            for size in [1, 48, 4096, 256 << 10, 1 << 33, 1 << 62] {
                let hazard = rate.charge(size as u64);
                let certain = HAZARD_CERTAIN as i64;
                for left in [1, hazard as i64 - 1, hazard as i64, hazard as i64 + 1, certain] {
                    if !(1..=certain).contains(&left) {
                        continue;
                    }
                    Countdown.swap(left);
                    let charged = charge_at(rate.raw(), size);
                    let now = Countdown.swap(0);
                    let what = format!("{size} at {interval} with {left} left");
                    match charged {
                        None => assert_eq!(now, left - hazard as i64, "{what}"),
                        Some(Charged::Ends) => assert!(left <= hazard as i64, "{what}"),
                        Some(other) => panic!("{other:?}: {what}"),
                    }
                    assert_eq!(charged.is_none(), left > hazard as i64, "{what}");
                }
            }
            for size in [0, isize::MAX as usize + 1, usize::MAX] {
                assert_eq!(charge_at(rate.raw(), size), Some(Charged::Not));
            }
        }
    }

    /// Counts hits of many requests of mixed sizes, in a thread of its own. Each size has as many
    /// hits as its probability requires.
    #[test]
    fn a_request_is_sampled_with_its_probability() {
        const SIZES: [usize; 5] = [1, 48, 700, 4096, 20_000];
        const ROUNDS: u32 = 400_000;
        let rate = Rate::from_interval(4096).unwrap();
        let count = move || {
            let mut hits = [0u32; SIZES.len()];
            for _ in 0..ROUNDS {
                for (size, hits) in SIZES.into_iter().zip(&mut hits) {
                    let charged = charge_at(rate.raw(), size);
                    let is_hit = |charged| is_hit(rate.charge(size as u64), charged);
                    *hits += u32::from(charged.is_some_and(is_hit));
                }
            }
            hits
        };
        let hits = std::thread::spawn(count).join().unwrap();
        for (size, hits) in SIZES.into_iter().zip(hits) {
            let chance = rate.inclusion(size as u64);
            let expected = f64::from(ROUNDS) * chance;
            let deviations = (f64::from(hits) - expected) / (expected * (1.0 - chance)).sqrt();
            assert!(deviations.abs() < 5.0, "{hits} of {size}, expected {expected}");
        }
    }
}
