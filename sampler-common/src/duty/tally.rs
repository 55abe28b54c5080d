//! What counts a process's work without a trap, in place of its clock: a *tally*.
//!
//! There are two kinds. What a process reads and writes the kernel counts for every thread anyway. And most programs keep counters of their own in their memory: requests served, statements
//! run, versions of a dictionary. Where such words are the daemon finds out by looking at the memory some times; the kernel side reads a few of them when a window begins and when it ends.
//! Nobody is slowed down by either, and no trap feeds them.
//!
//! # Derivation
//!
//! A program that serves requests has as many of them for an allocation in its windows as elsewhere, however much traps slow its own code down there. Let b be
//! what was counted in a window of the share κ of its stratum, z what was allocated there, B what was counted in all time. With T all that was allocated, the combined ratio estimate is
//!
//! ```text
//! T = B · Σ z/κ / Σ b/κ          variance = n/(n − 1) · Σ (z_g − T·b_g/B)²     (sums of groups of windows, taken to all)
//! ```
//!
//! (W. G. Cochran, "Sampling Techniques" (1977), chapters 6.11 and 11.8): whatever makes κ wrong makes it wrong for both, and what windows differ in counts only as far
//! as allocations and the tally differ. That is how fast the program goes, what traps add to its time, and what ticks of the clock take. What is left of the traps is that
//! phases are weighed by them where these are unlike: [`super::Bend`] corrects both sums, and how much traps add is told by a tally as it is by calls of a marker
//! ([`super::Marks`], with B·λ/Λ in place of λN/t₁). That it does also where allocations follow it and their bytes do not: a server whose new connections take more memory than
//! its requests.
//!
//! B is known exactly while the process runs. Of traffic bytes are counted, not calls: a server that is slowed down gets more of them with
//! one call. Traffic takes the clock's place where it is found to follow allocations from window to window ([`Fit`]), and leaves less open; words do wherever they leave less open.
//! Several words that do so about as well do it together: the mean of their estimates leaves less open than the best, and is not chosen by its own luck.
//!
//! A word of the program's memory may count something that traps do feed: time. In windows it goes *faster* by the process's own clock, where work goes slower. So
//! a word counts only while Σ b/κ by the clock is no more than B, as far as chance allows ([`super::Flow`]).

use super::marks::MODEL;
use super::{Fit, Verdict};
use crate::wire::UNKNOWN_TALLY;
use core::fmt;

/// Relative standard error of the estimate because a program that is slowed down may serve requests otherwise: redis-server makes 4 to 5 % fewer allocations for the same
/// bytes while all its calls are probed, since it finds more requests at once.
pub(super) const SERVED: f64 = 0.04;
/// The same for each standard deviation that windows differ in by bytes allocated for one read or written: where phases do, and one is met or served otherwise in windows than the
/// other, by a tenth as a rule (phases of milliseconds) and by a third at most (new connections of redis-server behind a pause, beside requests).
pub(super) const MET: f64 = 0.2;

/// By how much, relatively, what is counted in the time before the first look and behind the last may be another than in all between, as a standard deviation.
const UNSEEN: f64 = 0.5;

/// As many times more than is usual in as many ticks, and some, no counter is, once it has counted so much in so many ticks: of fewer, most may have been in windows, in which it counts as
/// many times more slowly.
const LEAP: f64 = 8.0;
const LEAP_TICKS: f64 = 2.0;
const LEAP_FROM: f64 = 64.0;
const LEAP_FROM_TICKS: u64 = 50;

/// What was counted of a process when its clock showed so much.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Look {
    /// Bytes, or what a word of its memory counts.
    pub counted: u64,
    /// Ticks of the clock of progress.
    pub ticks: u64,
}

/// What is known of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    first: Option<Look>,
    last: Look,
    /// How bytes allocated follow it, and allocations.
    fits: [Fit; 2],
    /// Least that a window has met, but for those that met nothing, and next to that.
    fewest: [u64; 2],
    /// Windows of which it is not known.
    unknown: u32,
    /// Whether it is none any more: the word has become another.
    is_lost: bool,
}

impl Tally {
    /// So much it was by then. The first look is the beginning.
    pub fn look(&mut self, look: Look) {
        self.first.get_or_insert(look);
        self.last = look;
    }

    /// Whether it would be as much more by this look as no counter is at once: the word has become something else.
    pub fn leaps_to(&self, look: &Look) -> bool {
        let Some(first) = self.first else { return false };
        let counted = self.last.counted.saturating_sub(first.counted) as f64;
        let passed = self.last.ticks.saturating_sub(first.ticks);
        let more = look.counted.saturating_sub(self.last.counted) as f64;
        let ticks = look.ticks.saturating_sub(self.last.ticks) as f64 + LEAP_TICKS;
        let is_usual_known = counted >= LEAP_FROM && passed >= LEAP_FROM_TICKS;
        is_usual_known && more > LEAP * counted / passed as f64 * ticks
    }

    /// A window in which so many bytes were allocated by so many allocations began and ended when it showed so much: what was counted in it, where it is known.
    pub fn window(&mut self, [opened, closed]: [u64; 2], allocated: [f64; 2]) -> Option<f64> {
        if opened == UNKNOWN_TALLY || closed == UNKNOWN_TALLY {
            self.unknown += 1;
            return None;
        }
        // More at the beginning: so it was at the end, or a thread has just ended, or the window with its process.
        let counts = closed.checked_sub(opened)?;
        self.meet(counts);
        let inside = counts as f64;
        self.fits.iter_mut().zip(allocated).for_each(|(fit, all)| fit.add(inside, all));
        Some(inside)
    }

    fn meet(&mut self, counts: u64) {
        let [first, second] = self.fewest;
        self.fewest = match counts {
            0 => return,
            _ if first == 0 || counts < first => [counts, first],
            _ if second == 0 || counts < second => [first, counts],
            _ => return,
        };
    }

    /// What it counts at once, about, where windows are too short to always meet it: of a loop's rounds each may be counted several times. One window may have met a part of that.
    pub(super) fn step(&self) -> f64 {
        let [first, second] = self.fewest;
        let least = if second == 0 { first } else { second };
        if self.fits[1].always_met() { 1.0 } else { least.max(1) as f64 }
    }

    /// It is another program from now on.
    pub(super) fn restart(&mut self) {
        (self.fits, self.fewest, self.unknown) = ([Fit::default(); 2], [0; 2], 0);
    }

    /// It says nothing, and never will: what it was is no more.
    pub fn lose(&mut self) {
        self.is_lost = true;
    }

    /// Whether it tells something, or windows have yet to show that it does not.
    pub(super) fn may_tell(&self) -> bool {
        self.first.is_some() && !self.is_lost && self.fits[1].may_tell()
    }

    /// Whether it has been looked at, and windows have yet to show what it is worth.
    pub(super) fn is_open(&self) -> bool {
        self.first.is_some() && self.verdict() == Verdict::Open
    }

    /// Whether it follows both: of a server whose new connections take more memory than their requests, bytes do not.
    pub fn verdict(&self) -> Verdict {
        match self.fits.map(|fit| fit.verdict()) {
            _ if self.is_lost => Verdict::Differs,
            // It will not be.
            [Verdict::Open, _] if self.unknown >= Fit::LEAST => Verdict::Differs,
            [Verdict::Follows, Verdict::Follows] => Verdict::Follows,
            [Verdict::Differs, _] | [_, Verdict::Differs] => Verdict::Differs,
            _ => Verdict::Open,
        }
    }

    /// How well it tells what traps add, as a relative standard error beside chance; `None` where it does not. Of whatever work it counts the traps have let so much be done in windows: allocations need
    /// not follow closely, and bytes not at all, since what traps add is a matter of time and calls.
    pub(super) fn telling(&self) -> Option<f64> {
        let off = self.fits[1].of_tally().filter(|_| !self.is_lost)?;
        Some(MODEL.hypot(SERVED).hypot(MET * off))
    }

    /// What is counted in a tick, by the looks so far.
    pub(super) fn rate(&self) -> Option<f64> {
        // No further than was looked.
        let ticks = self.last.ticks.checked_sub(self.first?.ticks)? as f64;
        self.all(None, ticks).map(|(counted, _)| counted / ticks)
    }

    /// What was counted in all progress, so many ticks, by a look at this moment or else the last one, with their relative standard error: nobody knows what passed before the first look
    /// and after the last. `None` where none passed.
    pub(super) fn all(&self, now: Option<Look>, clock: f64) -> Option<(f64, f64)> {
        let (first, last) = (self.first?, now.unwrap_or(self.last));
        let counted = last.counted.checked_sub(first.counted).filter(|of| *of > 0)? as f64;
        let ticks = last.ticks.checked_sub(first.ticks).filter(|ticks| *ticks > 0)? as f64;
        let clock = clock.max(ticks);
        Some((counted * clock / ticks, UNSEEN * (1.0 - ticks / clock)))
    }
}

/// For the log.
impl fmt::Display for Tally {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [bytes, objects] = self.fits.map(|fit| fit.variance());
        write!(to, "{:?} bytes {bytes:.3} objects {objects:.3}", self.verdict())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_is_known_but_for_its_ends() {
        let mut traffic = Tally::default();
        assert_eq!(traffic.all(None, 100.0), None);
        traffic.look(Look { counted: 1_000, ticks: 10 });
        assert_eq!(traffic.all(None, 100.0), None, "no time has passed");
        traffic.look(Look { counted: 81_000, ticks: 90 });
        let (bytes, error) = traffic.all(None, 100.0).unwrap();
        assert!((bytes - 100_000.0).abs() < 1e-6 && (error - 0.1).abs() < 1e-12);
        let now = Look { counted: 82_000, ticks: 100 };
        let (bytes, error) = traffic.all(Some(now), 90.0).unwrap();
        assert!((bytes - 81_000.0).abs() < 1e-6 && error == 0.0);
    }

    #[test]
    fn what_leaps_is_another() {
        let mut word = Tally::default();
        let look = |counted, ticks| Look { counted, ticks };
        assert!(!word.leaps_to(&look(1 << 30, 0)), "the first says nothing");
        word.look(look(0, 0));
        word.look(look(60, 3));
        assert!(!word.leaps_to(&look(1 << 30, 4)), "nor do few counts");
        word.look(look(900, 4));
        assert!(
            !word.leaps_to(&look(1 << 30, 40)),
            "nor does little time, such as that in a window"
        );
        word.look(look(1_000, 100));
        assert!(!word.leaps_to(&look(1_000, 200)) && !word.leaps_to(&look(8_000, 200)));
        assert!(word.leaps_to(&look(10_000, 200)) && !word.leaps_to(&look(1_100, 100)));
    }

    #[test]
    fn what_is_counted_at_once_is_found() {
        let met = |counts: &[u64]| {
            let mut word = Tally::default();
            let mut window = |of: &u64| word.window([7, 7 + of], [6_400.0, 100.0]);
            assert!(counts.iter().all(|of| window(of) == Some(*of as f64)));
            word.step()
        };
        assert_eq!(met(&[]), 1.0);
        assert_eq!(met(&[0, 0]), 1.0);
        assert_eq!(met(&[0, 0, 6]), 6.0, "nothing else is known yet");
        assert_eq!(met(&[0, 1, 3, 3]), 3.0, "one may have met a part");
        assert_eq!(met(&[0, 3, 6, 0, 2, 3, 3]), 3.0);
        assert_eq!(met(&[0, 1, 3, 1, 2]), 1.0);
        assert_eq!(met(&[500, 400, 600]), 1.0, "always met");
    }

    #[test]
    fn what_does_not_follow_is_told() {
        let [mut nothing, mut steady, mut large] = [(); 3].map(|()| Tally::default());
        for at in 0..20u64 {
            nothing.window([0, 0], [64_000.0, 1_000.0]);
            let bytes_of = if at % 3 == 0 { 1e6 } else { 1e3 };
            large.window([500 * at + 1, 500 * at + 501], [bytes_of, 1_000.0]);
            let bytes = 100_000 * (at + 1);
            let passed = steady.window([bytes, bytes + 10_000], [64_000.0, 1_000.0]);
            assert_eq!(passed, Some(10_000.0));
        }
        assert_eq!(nothing.verdict(), Verdict::Differs);
        assert_eq!(large.verdict(), Verdict::Differs, "a few windows have most of the bytes");
        assert!(large.telling().is_some_and(|error| (0.06..0.1).contains(&error)));
        assert!(nothing.telling().is_none() && steady.telling().is_some());
        assert_eq!(steady.verdict(), Verdict::Follows);
        const NO: u64 = UNKNOWN_TALLY;
        for unknown in [[20_400, 20_300], [NO, 20_300], [20_400, NO], [NO, NO]] {
            assert_eq!(steady.window(unknown, [64.0, 1.0]), None);
        }
        assert_eq!(steady.verdict(), Verdict::Follows);
        let mut unknown = Tally::default();
        (0..12).for_each(|_| assert_eq!(unknown.window([NO, NO], [64_000.0, 1_000.0]), None));
        assert_eq!(unknown.verdict(), Verdict::Differs, "nobody will ever know");
        steady.restart();
        assert_eq!(steady.verdict(), Verdict::Open);
    }
}
