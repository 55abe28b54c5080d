//! What [tallies](super::tally) have counted in windows, and whether that is work.

use super::marks::{LEAST_GROUPS, jackknife};
use super::{Bend, Marks, Pace};
use core::fmt;

/// Of what is counted elsewhere in as much of the clock's time at least so much is counted in windows: traps add no more than four fifths of their time, and all that a machine that lends
/// its processor to others may get wrong.
const LEAST: f64 = 0.1;
/// As much more of it may be there by what the clock itself gets wrong.
const MORE: f64 = 0.05;
/// Standard errors that chance may do.
const CHANCE: f64 = 3.0;

/// Sums over windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flow {
    /// Windows of which it is known.
    pub(super) windows: u32,
    /// Those among them that did not begin and end where it counts.
    pub(super) loose: u32,
    /// Ticks of their strata: windows before it was known have not been as long.
    pub(super) length: f64,
    /// What was counted in them.
    pub(super) counted: f64,
    /// Σ b/κ, as traps are found to slow the program.
    pub(super) inside: Bend,
    /// The same by the clock, whatever traps add.
    by_clock: f64,
}

impl Flow {
    /// Of a window of that share of a stratum of so many ticks, and by the clock of that share, in which so much was counted, corrected for what traps of so many nanoseconds add.
    pub(super) fn of_window(
        counted: f64,
        (length, share, by_clock): (f64, f64, f64),
        pace: &Pace,
        ns: [f64; 2],
    ) -> Flow {
        let inside = Bend::of_window(counted / share, share, pace, ns);
        let by_clock = counted / by_clock;
        Flow { windows: 1, loose: 1, length, counted, inside, by_clock }
    }

    /// The same of one that began and ended where it counts.
    pub(super) fn stepped(self) -> Flow {
        Flow { loose: 0, ..self }
    }

    /// As those of a marker, where so much was counted in all of the strata.
    pub(super) fn marks(&self, all: f64) -> Marks {
        Marks::untrapped(self.counted, self.inside, all)
    }

    /// Adds that of other windows.
    pub fn add(&mut self, other: &Flow) {
        self.windows += other.windows;
        self.loose += other.loose;
        self.length += other.length;
        self.counted += other.counted;
        self.inside.add(&other.inside);
        self.by_clock += other.by_clock;
    }
}

/// How much of what is counted in all of the clock's time is counted in as much of it in windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Share {
    /// The logarithm of that.
    pub(super) ln: f64,
    /// Its standard error.
    pub(super) error: f64,
}

/// For the log.
impl fmt::Display for Share {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "×{:.3} ± {:.3}", self.ln.exp(), self.error)
    }
}

impl Share {
    /// By groups of windows, each with what was counted in all of its strata; `None` where these are too few.
    pub(super) fn of<'a>(groups: impl Iterator<Item = (&'a Flow, f64)>) -> Option<Share> {
        let groups: Vec<[f64; 2]> = groups
            .filter(|(flow, _)| flow.windows > 0)
            .map(|(flow, all)| [flow.by_clock, all])
            .collect();
        let sum = |of: usize| groups.iter().map(|group| group[of]).sum::<f64>();
        let (inside, all) = (sum(0), sum(1));
        let without = |group: &[f64; 2]| ((inside - group[0]) / (all - group[1])).ln();
        let left: Vec<f64> = groups.iter().map(without).collect();
        let (ln, error) = ((inside / all).ln(), jackknife(&left).sqrt());
        let is_known = groups.len() >= LEAST_GROUPS && ln.is_finite() && error.is_finite();
        is_known.then_some(Share { ln, error })
    }

    /// Whether it may be work that is counted: not more of it in windows than elsewhere.
    pub(super) fn is_of_work(&self) -> bool {
        let chance = CHANCE * self.error;
        (LEAST.ln() - chance..=MORE + chance).contains(&self.ln)
    }
}
