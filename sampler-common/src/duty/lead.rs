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
//!
//! Each tick that is waited for with probes there costs as much as one of the window. Mostly attaching lets none or one pass; now and then the daemon itself has to wait for a processor, for
//! tens of them. These are as likely wherever the program is, and in no mean: ℓ is what the last windows needed but for one in sixteen.

/// Time from the call to the last probe, of which nothing is known, nanoseconds.
const FIRST_NS: f64 = 5e5;
/// Windows that are remembered, of which the one that took longest does not count.
const REMEMBERED: usize = 16;
/// As long as there are fewer, what took longest counts, and what is thought of the first.
const FEW_WINDOWS: usize = 8;
/// By so many ticks less than a window's own it is waited for at most, but for half of them at least.
const FEW: u64 = 4;

/// How many ticks pass before probes are there.
#[derive(Clone, Copy, Debug)]
pub struct Lead {
    /// In the last windows, each at its number modulo as many.
    last: [u64; REMEMBERED],
    windows: usize,
    /// Of the first one, as is thought.
    first: u64,
}

impl Lead {
    /// Of a clock whose tick stands for so many nanoseconds.
    pub fn new(unit_ns: f64) -> Lead {
        let first = (FIRST_NS / unit_ns).ceil().max(1.0) as u64;
        Lead { last: [0; REMEMBERED], windows: 0, first }
    }

    /// ℓ, at least 1: probes are there in time for nearly every window. A window is late where the program goes fast, loses its beginning there, and sees the
    /// slower place behind. (Simulated, `tests/windows`: a program of phases of a millisecond that traps slow down three to five times is
    /// estimated 2 to 3 % too high so, and 13 % where windows begin with their probes.)
    pub fn ticks(&self) -> u64 {
        let known = self.windows.min(REMEMBERED);
        let mut last = self.last;
        let last = &mut last[..known];
        last.sort_unstable();
        let spared = usize::from(known >= FEW_WINDOWS);
        let most = known.checked_sub(1 + spared).map_or(0, |at| last[at]);
        // It begins with a tick that comes when they are there.
        let needed = most + 1;
        if known < FEW_WINDOWS { needed.max(self.first) } else { needed }
    }

    /// How many ticks a window of so many is waited for at most with probes there: each of these costs as much as one of the window. A program that traps
    /// slow down so much that few ticks are paid for begins its windows too early that way rather than to pay for three times as many. (Half of every window was too
    /// little: the same programs 5 to 10 % too high.)
    pub fn longest_wait(window: u64) -> u64 {
        window.saturating_sub(FEW).max(window / 2).max(1)
    }

    /// So many ticks have passed this time.
    pub fn passed(&mut self, ticks: u64) {
        self.last[self.windows % REMEMBERED] = ticks;
        self.windows += 1;
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
            late += u64::from(passed >= lead.ticks());
            waited += lead.ticks().saturating_sub(passed);
            lead.passed(passed);
        }
        assert!(late < 20 && waited < 5_000, "{late} {waited}");
    }

    #[test]
    fn a_machine_that_stands_still_now_and_then_is_no_rule() {
        let mut lead = Lead::new(143_000.0);
        assert_eq!((Lead::longest_wait(11), Lead::longest_wait(1)), (7, 1));
        let mut waited = 0;
        for at in 0..200u64 {
            let passed = if at % 20 == 19 { 60 } else { at % 2 };
            lead.passed(passed);
            waited += if at >= REMEMBERED as u64 { lead.ticks() } else { 0 };
        }
        assert_eq!(waited, 2 * (200 - REMEMBERED as u64));
        (0..16).for_each(|_| lead.passed(0));
        assert_eq!(lead.ticks(), 1);
        // Where it always does it is one.
        (0..2).for_each(|_| lead.passed(30));
        assert_eq!(lead.ticks(), 31);
    }
}
