//! Whether calls of functions are a marker ([`super::Marks`]): they are as many as allocations are, wherever a window falls.

use super::LEAST_WINDOWS;
use super::marks::MODEL;

/// What is known of what may be a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Windows are too few.
    Open,
    /// Its calls are as many as allocations.
    Follows,
    /// They are not, or windows hardly meet any.
    Differs,
}

/// How calls of functions follow allocations: sums over windows.
///
/// Traps add more in one place than in another, and functions that are called in one phase of the program say little of what they add in the others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fit {
    windows: u32,
    /// Those with any calls.
    met: u32,
    calls: f64,
    allocations: f64,
    /// Σi², ΣiA, ΣA².
    squares: [f64; 3],
}

impl Fit {
    /// Windows before it is judged.
    pub(super) const LEAST: u32 = 12;
    /// Largest variance of what is read and written for an allocation, over the square of its mean; and of calls.
    const MOST: f64 = 0.06;
    const MOST_OF_CALLS: f64 = 0.6;
    /// And of a tally, which costs nothing, and tells of whatever it is that it counts.
    const MOST_OF_TALLIES: f64 = 2.0;
    /// Where fewer windows have met any it tells nothing.
    const LEAST_MET: u32 = 6;
    /// Relative standard error of what they tell for each standard deviation of that: of code in one phase m is another than in the next by a third or so, and what is told of
    /// one is told of a part of the other.
    const UNLIKE: f64 = 0.2;

    /// A window with so many calls and so many allocations.
    pub fn add(&mut self, calls: f64, allocations: f64) {
        self.windows += 1;
        self.met += u32::from(calls > 0.0);
        self.calls += calls;
        self.allocations += allocations;
        let squares = [calls * calls, calls * allocations, allocations * allocations];
        self.squares.iter_mut().zip(squares).for_each(|(to, from)| *to += from);
    }

    /// Σ(i − ρA)² without what is chance (Σi, as of a Poisson process), over Σ(ρA)², ρ being Σi/ΣA.
    pub fn variance(&self) -> f64 {
        let rate = self.calls / self.allocations.max(1.0);
        let [calls, both, allocations] = self.squares;
        let off = calls - 2.0 * rate * both + rate * rate * allocations;
        (off - self.calls).max(0.0) / (rate * rate * allocations).max(1.0)
    }

    /// Whether every window has met some.
    pub(super) fn always_met(&self) -> bool {
        self.met == self.windows
    }

    /// By what windows have told so far of traffic.
    pub fn verdict(&self) -> Verdict {
        self.within(Fit::MOST)
    }

    /// The same of calls, which [need not follow as closely](Fit::model).
    pub fn of_calls(&self) -> Verdict {
        self.within(Fit::MOST_OF_CALLS)
    }

    /// How far a tally is known to be off, as a standard deviation; `None` where it tells nothing. It may count more rarely than windows come: where most have met nothing, nobody knows
    /// how much of that is chance.
    pub(super) fn of_tally(&self) -> Option<f64> {
        let is_known = self.windows >= LEAST_WINDOWS && self.met >= Fit::LEAST_MET;
        // What chance may hide.
        let variance = self.variance() + (2.0 / self.calls).min(1.0);
        let is_rare = 2 * self.met < self.windows;
        let variance = if is_rare { 1.0 } else { variance };
        (is_known && variance <= Fit::MOST_OF_TALLIES).then(|| variance.sqrt())
    }

    /// Whether that is so, or may be found to be.
    pub(super) fn may_tell(&self) -> bool {
        self.windows < Fit::LEAST || self.of_tally().is_some()
    }

    fn within(&self, most: f64) -> Verdict {
        let are_few = self.calls < f64::from(self.windows);
        match are_few || self.variance() > most {
            _ if self.windows < Fit::LEAST => Verdict::Open,
            true => Verdict::Differs,
            false => Verdict::Follows,
        }
    }

    /// Relative standard error of what they tell of traps elsewhere, beside chance.
    pub fn model(&self) -> f64 {
        MODEL.hypot(Fit::UNLIKE * self.variance().sqrt())
    }

    /// Whether it is known that calls are none.
    pub fn is_bad(&self) -> bool {
        self.of_calls() == Verdict::Differs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_follow_is_told() {
        let (mut follows, mut does_not) = (Fit::default(), Fit::default());
        for at in 0..40u32 {
            let allocations = f64::from(1000 + 500 * (at % 4));
            follows.add(allocations / 100.0, allocations);
            does_not.add(if at % 3 == 0 { 45.0 } else { 0.0 }, allocations);
        }
        let is_follower = follows.verdict() == Verdict::Follows;
        assert!(is_follower && follows.variance() < 0.01, "{}", follows.variance());
        assert!(does_not.is_bad() && does_not.variance() > 1.0, "{}", does_not.variance());
        assert_eq!(Fit::default().verdict(), Verdict::Open);
        let mut rare = Fit::default();
        (0..40u32).for_each(|at| rare.add(f64::from(at % 2), 1000.0));
        assert!(rare.is_bad());
        // As tallies they cost nothing, and tell something.
        assert!(follows.of_tally().is_some_and(|off| off < 0.1), "{:?}", follows.of_tally());
        assert!(does_not.of_tally().is_some_and(|off| off == 1.0));
        assert!(rare.of_tally().is_some_and(|off| off < 1.0));
        let mut never = Fit::default();
        (0..40u32).for_each(|at| never.add(f64::from(at / 35), 1000.0));
        assert_eq!(never.of_tally(), None);
    }
}
