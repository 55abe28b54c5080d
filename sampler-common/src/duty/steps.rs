//! Windows that begin and end where a [tally](super::tally) counts.
//!
//! # Derivation
//!
//! A loop's rounds may each be half as long as a window. A window from one tick to another meets one or three where it should have met two, and begins behind what the program waits for between two
//! rounds more often than before it, since the daemon waits for the same processor. So the window that is drawn from a to b, both of the clock of progress, is seen from S(a) to S(b), where S(t) is the
//! first step of the word behind t. That S depends on nothing but the program, so S(t) − t has the same law at every t that is drawn uniformly, and for whatever Z is counted
//!
//! ```text
//! E[Z(S(b)) − Z(S(a))] = E[Z(b) − Z(a)] + E[Z(S(b)) − Z(b)] − E[Z(S(a)) − Z(a)] = E[Z(b) − Z(a)]
//! ```
//!
//! (a stationary shift of points: D. J. Daley, D. Vere-Jones, "An Introduction to the Theory of Point Processes" II (2008), chapter 13.3). The window's share of its stratum is (b − a)/L as before, and
//! so are all estimates; of regular rounds it has a whole number. It is not begun at a step and ended b − a later, or after so many steps: of a program whose rounds are longer in one
//! phase than in another it would meet the longer ones too often.
//!
//! S(t) is no more than b − a behind t, step or none: a shift as well. So a window takes no more than twice its time, and one and a quarter of it where it meets two steps.

#[cfg(test)]
use super::Budget;
use super::{Timers, Window};

/// A window waits for steps if, as a mean, it has at least so many in its own time. Of rarer ones many would wait in vain, and those that do not would differ more than windows from tick to tick do.
pub(super) const LEAST: f64 = 0.9;
/// And if it has so many ticks: what it has seen is known to a tick at either end.
const LEAST_TICKS: u64 = 4;

/// How a window went whose ends wait for steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Ticks from the place that was drawn for it until it had ended.
    pub lasted: u64,
    /// Those among them in which it was seen.
    pub seen: u64,
    /// Its ends that were at steps, of two.
    pub ends: u64,
}

/// What that has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waited {
    /// Both ends together, nanoseconds of progress.
    pub ns: f64,
    /// The first, before which nothing is seen.
    pub before_ns: f64,
    /// CPU time of hits by then, nanoseconds.
    pub hits_ns: f64,
    /// Ends that were at steps.
    pub ends: f64,
}

impl Steps {
    /// Whether a window may wait for steps: it must have ended with its stratum, or the next one would begin just behind a step.
    pub fn are_possible(window: &Window, timers: Timers) -> bool {
        let own = (window.length_ns / timers.unit(false)).ceil() as u64;
        window.ticks >= LEAST_TICKS && window.offset + 2 * own <= window.length
    }

    /// Whether it began and ended at steps.
    pub fn are_both(&self) -> bool {
        self.ends == 2
    }

    /// What it has cost a window that was to have so many ticks of `tick_ns`, and in which hits took `hits_ns` while it was seen: as many for its time as then.
    pub fn waited(&self, ticks: u64, tick_ns: f64, hits_ns: f64) -> Waited {
        let before = self.lasted.saturating_sub(self.seen);
        let both = before + self.lasted.saturating_sub(ticks);
        let [ns, before_ns] = [both, before].map(|of| of as f64 * tick_ns);
        let hits_ns = hits_ns * before as f64 / self.seen.max(1) as f64;
        Waited { ns, before_ns, hits_ns, ends: self.ends as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_counted_at_both_ends() {
        let steps = Steps { lasted: 14, seen: 11, ends: 2 };
        let waited = steps.waited(10, 2.0, 22.0);
        assert_eq!(waited, Waited { ns: 14.0, before_ns: 6.0, hits_ns: 6.0, ends: 2.0 });
        assert!(steps.are_both() && !Steps { ends: 1, ..steps }.are_both());
        // It has exited while it waited.
        let exited = Steps { lasted: 4, seen: 0, ends: 0 }.waited(10, 2.0, 0.0);
        assert_eq!(exited, Waited { ns: 8.0, before_ns: 8.0, hits_ns: 0.0, ends: 0.0 });
    }

    #[test]
    fn a_window_waits_where_it_ends_with_its_stratum() {
        let timers = Timers::new(Budget::parse("1%").unwrap(), 2_000.0, 0.0);
        let length_ns = 2.0 * timers.unit(false);
        let window = |offset, ticks| Window {
            length: 1000,
            offset,
            marking: 0,
            ticks,
            fine: true,
            frees: false,
            interval_bytes: 1,
            length_ns,
            share: 0.002,
        };
        assert!(Steps::are_possible(&window(996, 4), timers));
        assert!(!Steps::are_possible(&window(997, 4), timers));
        assert!(!Steps::are_possible(&window(0, 3), timers));
    }
}
