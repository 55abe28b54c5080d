//! The price of each event.

use super::{Events, Measured, Placed, Program, Spent, Work};

/// Relative standard error of all prices together: the machine's speed changes.
///
/// Neighbours slow down virtual machines, and heat slows down processors. For seconds or minutes
/// all prices rise together, by up to a half. In fourteen starts within one hour, seven measured
/// 550 ns for a hit, and seven 730 to 820 ns. A measurement has the speed of its moment, while a
/// program runs at many speeds.
const SPEED_ERROR: f64 = 0.18;

/// The prices on this machine, kernel and engine. `None` if a price could not be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tariff {
    /// Price of a hit that is neither sampled nor followed, by [`Placed`]: of functions whose
    /// return can be probed, and of functions of which only the entry is probed.
    pub hits: [[Option<Measured>; 2]; 2],
    /// Additional price of following a call to its return.
    pub return_probe: Option<Measured>,
    /// Additional price of a sample over the hits: of its return, its record and its end.
    pub sampled: Option<Measured>,
    /// Price of each KiB of stack in a sample.
    pub stack_kib: Option<Measured>,
}

impl Tariff {
    /// The price of a hit; `None` if it could not be measured.
    pub fn hit(&self, program: Program, placed: Placed) -> Option<Measured> {
        self.hits[usize::from(program != Program::Malloc)][placed as usize]
    }

    /// A price with the uncertainty of the speed.
    pub fn at_any_speed(price: Measured) -> Measured {
        Measured { variance: price.variance + (SPEED_ERROR * price.ns).powi(2), ..price }
    }

    /// The CPU time of `work`. Events without a price are counted, not charged.
    pub fn charge(&self, work: &Work) -> Spent {
        let mut spent = Spent::default();
        for program in Program::ALL {
            for placed in [Placed::Emulated, Placed::SingleStepped] {
                let events = work.hits[program as usize][placed as usize];
                spent.add(events, self.hit(program, placed));
            }
        }
        spent.add(work.returns, self.return_probe);
        spent.add(work.samples, self.sampled);
        // With frame pointers no stack is copied.
        let stack_kib = Events { count: work.stack_kib, variance: 0.0 };
        spent.add(stack_kib, Some(self.stack_kib.unwrap_or_default()));
        spent.cpu = Tariff::at_any_speed(spent.cpu);
        spent
    }
}

impl Spent {
    /// Count and price are measured independently:
    /// var(n·c) = n²·var(c) + c²·var(n) + var(n)·var(c).
    fn add(&mut self, events: Events, price: Option<Measured>) {
        let Some(price) = price else {
            self.unpriced += events.count;
            return;
        };
        self.cpu.ns += events.count * price.ns;
        self.cpu.variance += events.count.powi(2) * price.variance
            + price.ns.powi(2) * events.variance
            + events.variance * price.variance;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Confidence;
    use crate::wire::Role;

    fn price(ns: f64) -> Option<Measured> {
        Some(Measured { ns, variance: (ns / 100.0).powi(2) })
    }

    fn tariff() -> Tariff {
        Tariff {
            hits: [[price(500.0), price(9000.0)], [price(400.0), price(8000.0)]],
            return_probe: price(600.0),
            sampled: price(1100.0),
            stack_kib: price(50.0),
        }
    }

    #[test]
    fn every_event_is_charged() {
        let mut work = Work::default();
        work.hit(Role::Malloc, Placed::Emulated, Events::exact(1000));
        work.hit(Role::New, Placed::Emulated, Events::exact(100));
        work.hit(Role::Free, Placed::SingleStepped, Events::exact(10));
        work.returned(Events::exact(20));
        work.sampled(Events::exact(5), 5 * 8192);
        work.hit(Role::OtelAlloc, Placed::Emulated, Events::exact(3));
        let spent = tariff().charge(&work);
        let expected = 500_000.0 + 40_000.0 + 80_000.0 + 12_000.0 + 5.0 * 1500.0 + 1200.0;
        assert!((spent.cpu.ns - expected).abs() < 1e-6, "{spent:?}");
        assert_eq!(spent.unpriced, 0.0);
        let range = spent.cpu.range(Confidence::DEFAULT);
        assert!(0.0 < range.low && range.low < range.value && range.value < range.high);
        // The error of the speed is the same for all prices: 18 % of one is 18 % of their sum.
        assert!((range.high / range.value - 1.0 - 1.96 * SPEED_ERROR).abs() < 1e-3, "{range:?}");
        let nothing = Tariff::default().charge(&work);
        assert_eq!(nothing.cpu, Measured::default());
        assert_eq!(nothing.unpriced, 1000.0 + 100.0 + 10.0 + 20.0 + 5.0 + 3.0);
    }

    /// The interval of each of the two prices that [`SPEED_ERROR`] comes from contains the other.
    #[test]
    fn the_speed_error_covers_slow_and_fast_moments() {
        let range = |ns: f64| {
            Tariff::at_any_speed(Measured { ns, variance: 0.0 }).range(Confidence::DEFAULT)
        };
        assert!(range(550.0).high > 740.0 && range(780.0).low < 560.0);
    }
}
