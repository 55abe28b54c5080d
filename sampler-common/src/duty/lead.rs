//! From when on a window sees: settled before there are probes.
//!
//! # Derivation
//!
//! A window is to begin at a uniformly drawn place of the program's own progress. Attaching takes some milliseconds of the wall's time, and from the first probe
//! on a program that allocates much just then comes forward more slowly. Were the window to begin when the last probe is there, it would begin
//! in such a phase more often than the phase has of the progress: by the factor 1 + r where traps slow the program by that, as whoever looks at a road from a
//! passing plane sees the slow cars. Windows no longer than the phases would estimate too much (10 % were measured, of a program with phases
//! of milliseconds and r = 1).
//!
//! So it begins at the ℓ-th tick of the fine clock, in the program's own code, after the daemon was told and no probe was there yet, and ends c ticks
//! after that. ℓ is chosen from how many ticks attaching has let pass before. If they were more this time, the window begins late, and ends at
//! its time or not much later: what was seen stands for the c ticks by the part of them in which it was seen.

/// Time from the call to the last probe, of which nothing is known, nanoseconds.
const FIRST_NS: f64 = 2e5;
/// Mean distances from their mean in which probes are there.
const SPREADS: f64 = 6.0;
/// By so many ticks less than a window's own it is waited for at most, but for half of them at least.
const FEW: u64 = 4;
/// How much the last window weighs at least in what is expected of the next: the first ones as much as each before them.
const WEIGHT: f64 = 0.2;

/// How many ticks pass before probes are there.
#[derive(Clone, Copy, Debug)]
pub struct Lead {
    mean: f64,
    /// Mean distance from that.
    spread: f64,
    /// How many have told something, and one for what was thought before.
    windows: f64,
}

impl Lead {
    /// Of a clock whose tick stands for so many nanoseconds.
    pub fn new(unit_ns: f64) -> Lead {
        let mean = FIRST_NS / unit_ns;
        Lead { mean, spread: mean / 4.0, windows: 1.0 }
    }

    /// ℓ, at least 1: probes are there in time for nearly every window. A window is late where the program goes fast, loses its beginning there, and sees the
    /// slower place behind. (Probes in time for nine windows in ten, 1.5 spreads, were too few: simulated, a program of phases of a millisecond that traps slow down three to five times was
    /// estimated 7 to 11 % too high, with six 0 to 3 %: `tests/windows`.)
    pub fn ticks(&self) -> u64 {
        (self.mean + SPREADS * self.spread).ceil().max(1.0) as u64
    }

    /// How many ticks a window of so many is waited for at most with probes there: each of these costs as much as one of the window. A program that traps
    /// slow down so much that few ticks are paid for begins its windows too early that way rather than to pay for three times as many. (Half of every window was too
    /// little: the same programs 5 to 10 % too high.)
    pub fn longest_wait(window: u64) -> u64 {
        window.saturating_sub(FEW).max(window / 2).max(1)
    }

    /// So many ticks have passed this time.
    pub fn passed(&mut self, ticks: u64) {
        // One that was far off says little of the next.
        let off =
            (ticks as f64 - self.mean).clamp(-8.0 * self.spread - 2.0, 8.0 * self.spread + 2.0);
        self.windows += 1.0;
        let weight = WEIGHT.max(1.0 / self.windows);
        self.mean += weight * off;
        self.spread += weight * (off.abs() - self.spread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_are_ready_in_time() {
        let mut lead = Lead::new(143_000.0);
        assert_eq!(lead.ticks(), 4);
        let (mut late, mut waited) = (0, 0);
        for at in 0..1000u64 {
            let passed = 10 + (at * 7919) % 7;
            late += u64::from(passed > lead.ticks());
            waited += lead.ticks().saturating_sub(passed);
            lead.passed(passed);
        }
        assert!(late < 20 && waited < 13_000, "{late} {waited}");
    }

    #[test]
    fn a_machine_that_stood_still_once_is_no_rule() {
        let mut lead = Lead::new(143_000.0);
        (0..50).for_each(|_| lead.passed(10));
        assert_eq!((lead.ticks(), Lead::longest_wait(11), Lead::longest_wait(1)), (11, 7, 1));
        lead.passed(5_000);
        assert!(lead.ticks() < 15, "{lead:?}");
        (0..50).for_each(|_| lead.passed(0));
        assert_eq!(lead.ticks(), 1);
    }
}
