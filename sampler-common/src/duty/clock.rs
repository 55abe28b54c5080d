//! What the clock of a process shows.

use super::Timers;

/// Ticks of the clock of progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Ticks in the process's own code.
    pub ticks: u64,
    /// Those among them that came while the fine clock ran on their CPU as well.
    pub beside: u64,
}

impl Clock {
    /// Adds that of another process.
    pub fn add(&mut self, other: Clock) {
        self.ticks += other.ticks;
        self.beside += other.beside;
    }

    /// The process's own time, in ticks beside which no fine clock runs: this one takes X of each of its periods, which the clock of progress does not see,
    /// so that a tick stands for the rest only.
    pub fn progress(self, timers: Timers) -> f64 {
        self.ticks as f64 - self.beside as f64 * timers.part_of_fine()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duty::Budget;

    #[test]
    fn ticks_beside_the_fine_clock_stand_for_less() {
        let timers = Timers::new(Budget::parse("20%").unwrap(), 12_500.0, 0.0);
        assert_eq!((timers.fine_period_ns, timers.part_of_fine()), (150_000, 12.5 / 150.0));
        let mut clock = Clock { ticks: 60, beside: 0 };
        assert_eq!(clock.progress(timers), 60.0);
        clock.add(Clock { ticks: 60, beside: 24 });
        assert_eq!((clock.ticks, clock.progress(timers)), (120, 118.0));
    }
}
