//! The two timers of the clock, by what their ticks cost on this machine.
//!
//! # Derivation
//!
//! A tick is an interrupt, and takes X: 1 µs on bare metal, 30 µs in a virtual machine whose timer the host has to set. What happens in that
//! time no other tick sees. So of a timer of period P there are P − X of the program between two ticks, whatever it does: a tick in its own code stands
//! for P − X of its own time. X is measured ([`super::ticks`]), and its error, over P − X, is part of the interval.

use super::{Budget, Ticks};

/// Shortest period of the clock of progress. No multiple of the periods that timers of programs and of the kernel have, so that neither is met in step.
const LEAST_NS: u64 = 2_003_000;
/// Shortest period of the fine clock.
const LEAST_FINE_NS: u64 = 100_150;
/// Part of the budget that goes to the clock of progress.
const OF_BUDGET: f64 = 0.1;
/// The fine clock takes at most one of so many parts of a window.
const FINE_PARTS: f64 = 12.0;

/// Timers on every CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timers {
    /// Period of the clock of progress, nanoseconds.
    pub period_ns: u64,
    /// Period of the fine clock, which measures windows of programs that they slow down.
    pub fine_period_ns: u64,
    /// What a tick takes, with its standard error.
    pub tick_ns: f64,
    /// Standard error of that.
    pub error_ns: f64,
}

impl Timers {
    /// For a budget, where a tick takes so long, with that standard error, nanoseconds.
    pub fn new(budget: Budget, tick_ns: f64, error_ns: f64) -> Timers {
        let tick_ns = tick_ns.max(0.0);
        let period = (tick_ns / (OF_BUDGET * budget.share())) as u64;
        let fine = (tick_ns * FINE_PARTS) as u64;
        Timers {
            period_ns: period.max(LEAST_NS),
            fine_period_ns: fine.max(LEAST_FINE_NS),
            tick_ns,
            error_ns,
        }
    }

    /// The same ones, now that it is known better what a tick takes.
    #[must_use]
    pub fn with(self, ticks: Ticks) -> Timers {
        Timers { tick_ns: ticks.ns(), error_ns: ticks.error_ns(), ..self }
    }

    /// The program's own time that a tick in its own code stands for, nanoseconds.
    pub fn unit(&self, fine: bool) -> f64 {
        let period = if fine { self.fine_period_ns } else { self.period_ns };
        period as f64 - self.tick_ns
    }

    /// Relative standard error of what a window of the fine clock stands for.
    pub fn error(&self) -> f64 {
        self.error_ns / self.unit(true)
    }

    /// What the fine clock takes while it ticks, compared with everything else that happens meanwhile.
    pub fn share_of_fine(&self) -> f64 {
        self.tick_ns / self.unit(true)
    }

    /// What the fine clock takes of the time while it ticks.
    pub fn part_of_fine(&self) -> f64 {
        self.tick_ns / self.fine_period_ns as f64
    }

    /// The part of CPU time that the clock of progress takes.
    pub fn share(&self) -> f64 {
        self.tick_ns / self.period_ns as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dear_ticks_are_rare() {
        let budget = Budget::parse("1%").unwrap();
        let metal = Timers::new(budget, 1_500.0, 100.0);
        assert_eq!((metal.period_ns, metal.fine_period_ns), (2_003_000, 100_150));
        assert_eq!(metal.unit(true), 98_650.0);
        let machine = Timers::new(budget, 32_000.0, 500.0);
        assert_eq!((machine.period_ns, machine.fine_period_ns), (32_000_000, 384_000));
        assert!(machine.share() <= 0.1 * budget.share() + 1e-9);
        assert!((machine.error() - 500.0 / 352_000.0).abs() < 1e-9);
    }
}
