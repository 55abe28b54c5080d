//! What a process reads and writes, in place of its clock: the kernel counts it for every thread anyway, so it costs nothing, and no trap feeds it.
//!
//! # Derivation
//!
//! A program that serves requests has as many bytes of them for an allocation in its windows as elsewhere, however much traps slow its own code down there. Let b be
//! the bytes in a window of the share κ of its stratum, z what was allocated there, B the bytes of all time. With T all that was allocated, the combined ratio estimate is
//!
//! ```text
//! T = B · Σ z/κ / Σ b/κ          variance = n/(n − 1) · Σ (z_g − T·b_g/B)²     (sums of groups of windows, taken to all)
//! ```
//!
//! (W. G. Cochran, "Sampling Techniques" (1977), chapters 6.11 and 11.8): whatever makes κ wrong makes it wrong for both, and what windows differ in counts only as far as
//! allocations and bytes differ. That is how fast the program goes, what traps add to its time, and what ticks of the clock take. What is left of the traps is that
//! phases are weighed by them where these are unlike: [`super::Bend`] corrects both sums, and how much traps add is told by traffic as it is by calls of a marker
//! ([`super::Marks`], with B·λ/Λ in place of λN/t₁). That it does also where allocations follow it and their bytes do not: a server whose new connections take more memory than
//! its requests.
//!
//! B is known exactly while the process runs. Bytes are counted, not calls: a server that is slowed down gets more of them with
//! one call. Traffic takes the clock's place where it is found to follow allocations from window to window ([`Fit`]), and leaves less open.

use super::marks::MODEL;
use super::{Bend, Fit, Marks, Pace, Verdict};
use crate::wire::UNKNOWN_TRAFFIC;

/// Relative standard error of the estimate because a program that is slowed down may serve requests otherwise: redis-server makes 4 to 5 % fewer allocations for the same
/// bytes while all its calls are probed, since it finds more requests at once.
pub(super) const SERVED: f64 = 0.04;
/// The same for each standard deviation that windows differ in by bytes allocated for one read or written: where phases do, and one is met or served otherwise in windows than the
/// other, by a tenth as a rule (phases of milliseconds) and by a third at most (new connections of redis-server behind a pause, beside requests).
pub(super) const MET: f64 = 0.2;

/// What a process had read and written when its clock showed so much.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Look {
    /// Bytes.
    pub bytes: u64,
    /// Ticks of the clock of progress.
    pub ticks: u64,
}

/// What is known of a process's traffic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traffic {
    first: Option<Look>,
    last: Look,
    /// How bytes allocated follow it, and allocations.
    fits: [Fit; 2],
    /// Windows of which it is not known.
    unknown: u32,
}

impl Traffic {
    /// So much it was by then. The first look is the beginning.
    pub fn look(&mut self, look: Look) {
        self.first.get_or_insert(look);
        self.last = look;
    }

    /// A window in which so many bytes were allocated by so many allocations began and ended when so many had been read and written: those in it, where it is known.
    pub fn window(&mut self, [opened, closed]: [u64; 2], allocated: [f64; 2]) -> Option<f64> {
        if opened == UNKNOWN_TRAFFIC || closed == UNKNOWN_TRAFFIC {
            self.unknown += 1;
            return None;
        }
        // More at the beginning: so it was at the end, or a thread has just ended, or the window with its process.
        let inside = closed.checked_sub(opened)? as f64;
        self.fits.iter_mut().zip(allocated).for_each(|(fit, all)| fit.add(inside, all));
        Some(inside)
    }

    /// It is another program from now on.
    pub(super) fn restart(&mut self) {
        (self.fits, self.unknown) = ([Fit::default(); 2], 0);
    }

    /// Whether it follows both: of a server whose new connections take more memory than their requests, bytes do not.
    pub fn verdict(&self) -> Verdict {
        match self.fits.map(|fit| fit.verdict()) {
            // It will not be.
            [Verdict::Open, _] if self.unknown >= Fit::LEAST => Verdict::Differs,
            [Verdict::Follows, Verdict::Follows] => Verdict::Follows,
            [Verdict::Differs, _] | [_, Verdict::Differs] => Verdict::Differs,
            _ => Verdict::Open,
        }
    }

    /// How well it tells what traps add, as a relative standard error beside chance; `None` where allocations do not follow it. Bytes allocated need not: what traps add is a
    /// matter of time and calls.
    pub(super) fn telling(&self) -> Option<f64> {
        let fit = &self.fits[1];
        let of_phases = MET * fit.variance().sqrt();
        (fit.verdict() == Verdict::Follows).then(|| MODEL.hypot(SERVED).hypot(of_phases))
    }

    /// Bytes in a tick, by the looks so far.
    pub(super) fn rate(&self) -> Option<f64> {
        // No further than was looked.
        let ticks = self.last.ticks.checked_sub(self.first?.ticks)? as f64;
        self.all(None, ticks).map(|(bytes, _)| bytes / ticks)
    }

    /// Bytes of all progress, so many ticks, by a look at this moment or else the last one, with their relative standard error: nobody knows what passed before the first look
    /// and after the last. `None` where none passed.
    pub(super) fn all(&self, now: Option<Look>, clock: f64) -> Option<(f64, f64)> {
        let (first, last) = (self.first?, now.unwrap_or(self.last));
        let bytes = last.bytes.checked_sub(first.bytes).filter(|bytes| *bytes > 0)? as f64;
        let ticks = last.ticks.checked_sub(first.ticks).filter(|ticks| *ticks > 0)? as f64;
        let clock = clock.max(ticks);
        Some((bytes * clock / ticks, 1.0 - ticks / clock))
    }
}

/// Sums over windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flow {
    /// Windows of which it is known.
    pub(super) windows: u32,
    /// Bytes in them as they are.
    pub(super) bytes: f64,
    /// Σ b/κ, as traps are found to slow the program.
    pub(super) inside: Bend,
}

impl Flow {
    /// Of a window of that share with so many bytes, corrected for what traps of so many nanoseconds add.
    pub(super) fn of_window(bytes: f64, share: f64, pace: &Pace, ns: [f64; 2]) -> Flow {
        Flow { windows: 1, bytes, inside: Bend::of_window(bytes / share, share, pace, ns) }
    }

    /// As those of a marker, where so much was read and written in all of the strata.
    pub(super) fn marks(&self, all: f64) -> Marks {
        Marks::untrapped(self.bytes, self.inside, all)
    }

    /// Adds that of other windows.
    pub fn add(&mut self, other: &Flow) {
        self.windows += other.windows;
        self.bytes += other.bytes;
        self.inside.add(&other.inside);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_is_known_but_for_its_ends() {
        let mut traffic = Traffic::default();
        assert_eq!(traffic.all(None, 100.0), None);
        traffic.look(Look { bytes: 1_000, ticks: 10 });
        assert_eq!(traffic.all(None, 100.0), None, "no time has passed");
        traffic.look(Look { bytes: 81_000, ticks: 90 });
        let (bytes, error) = traffic.all(None, 100.0).unwrap();
        assert!((bytes - 100_000.0).abs() < 1e-6 && (error - 0.2).abs() < 1e-12);
        let now = Look { bytes: 82_000, ticks: 100 };
        let (bytes, error) = traffic.all(Some(now), 90.0).unwrap();
        assert!((bytes - 81_000.0).abs() < 1e-6 && error == 0.0);
    }

    #[test]
    fn what_does_not_follow_is_told() {
        let [mut nothing, mut steady, mut large] = [(); 3].map(|()| Traffic::default());
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
        const NO: u64 = UNKNOWN_TRAFFIC;
        for unknown in [[20_400, 20_300], [NO, 20_300], [20_400, NO], [NO, NO]] {
            assert_eq!(steady.window(unknown, [64.0, 1.0]), None);
        }
        assert_eq!(steady.verdict(), Verdict::Follows);
        let mut unknown = Traffic::default();
        (0..12).for_each(|_| assert_eq!(unknown.window([NO, NO], [64_000.0, 1_000.0]), None));
        assert_eq!(unknown.verdict(), Verdict::Differs, "nobody will ever know");
        steady.restart();
        assert_eq!(steady.verdict(), Verdict::Open);
    }
}
