//! The price of each event.

use super::{Events, Line, Measured, Placed, Program, Spent, Work};

/// Prices of a hit: of an emulated and of a single-stepped instruction.
pub type HitPrices = [Option<Measured>; 2];

/// The prices on this machine, kernel and engine. `None` if a price could not be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tariff {
    /// Price of a hit that is neither sampled nor followed, by [`Program`].
    pub hits: [HitPrices; Program::ALL.len()],
    /// Additional price of a hit in a program whose work empties the first-level caches between any
    /// two hits, compared with a loop of nothing but hits.
    pub cold_cache: Option<Measured>,
    /// Additional price of following a call to its return.
    pub return_probe: Option<Measured>,
    /// Additional price of a sample over following its call: by the KiB of stack copied.
    pub sampled: Option<Line>,
    /// Additional price of the end of a sampled block over the hit.
    pub sampled_free: Option<Measured>,
    /// Relative standard error that all prices share ([`super::Speed`]).
    pub speed_error: f64,
}

impl Tariff {
    /// The cost of a hit in some program. The part of [`Tariff::cold_cache`] that the hit pays is
    /// unknown: every part from none to all is equally likely.
    pub fn hit(&self, program: Program, placed: Placed) -> Option<Measured> {
        let (calm, more) = (self.calm(program, placed)?, self.more());
        let hit = Measured { ns: calm.ns + more.ns, variance: calm.variance + more.variance };
        Some(self.at_any_speed(hit))
    }

    /// A price with the uncertainty of the speed.
    pub fn at_any_speed(&self, price: Measured) -> Measured {
        let of_speed = (self.speed_error * price.ns).powi(2);
        Measured { variance: price.variance + of_speed, ..price }
    }

    /// The additional cost of a hit over a hit in a loop of nothing but hits.
    fn more(&self) -> Measured {
        self.cold_cache.map_or(Measured::default(), |of| Measured::either(Measured::default(), of))
    }

    /// The cost of a hit in a loop of nothing but hits.
    fn calm(&self, program: Program, placed: Placed) -> Option<Measured> {
        let [emulated, stepped] = self.hits[program as usize];
        match placed {
            Placed::Emulated => emulated,
            Placed::SingleStepped => stepped,
            Placed::Either => Some(Measured::either(emulated?, stepped?)),
        }
    }

    /// The CPU time of `work`. Events without a price are counted, not charged.
    pub fn charge(&self, work: &Work) -> Spent {
        let mut spent = Spent { unpriced: work.other.count, ..Spent::default() };
        let mut hits = 0.0;
        for program in Program::ALL {
            for placed in [Placed::Emulated, Placed::SingleStepped, Placed::Either] {
                let events = work.hits[program as usize][placed as usize];
                let price = self.calm(program, placed);
                hits += price.map_or(0.0, |_| events.count);
                spent.add(events, price);
            }
        }
        // The same program pays the additional cost, for every kind of hit: all hits share one
        // error.
        spent.add(Events { count: hits, variance: 0.0 }, Some(self.more()));
        spent.add(work.returns, self.return_probe);
        spent.add(work.ended, self.sampled_free);
        match self.sampled {
            Some(line) => {
                let Measured { ns, variance } = line.of(work.samples.count, work.stack_kib);
                spent.ns += ns;
                spent.variance += variance;
            }
            None => spent.unpriced += work.samples.count,
        }
        spent.variance += (self.speed_error * spent.ns).powi(2);
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
        self.ns += events.count * price.ns;
        self.variance += events.count.powi(2) * price.variance
            + price.ns.powi(2) * events.variance
            + events.variance * price.variance;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Confidence;
    use crate::wire::Role;

    fn price(ns: f64, error: f64) -> Option<Measured> {
        Some(Measured { ns, variance: error * error })
    }

    fn tariff() -> Tariff {
        Tariff {
            hits: [[price(500.0, 5.0), price(9000.0, 90.0)]; Program::ALL.len()],
            cold_cache: None,
            return_probe: price(600.0, 6.0),
            sampled: Line::through(&[
                (4.0, Measured { ns: 1000.0, variance: 100.0 }),
                (16.0, Measured { ns: 1600.0, variance: 100.0 }),
            ]),
            sampled_free: price(300.0, 3.0),
            speed_error: 0.0,
        }
    }

    #[test]
    fn every_event_is_charged() {
        let mut work = Work::default();
        work.hit(Role::Malloc, Placed::Emulated, Events::exact(1000));
        work.hit(Role::Free, Placed::SingleStepped, Events::exact(10));
        work.returned(Events::exact(20));
        work.sampled(5, 5 * 8192);
        work.ended(2);
        work.hit(Role::OtelAlloc, Placed::Emulated, Events::exact(3));
        work.hit(Role::Map, Placed::Emulated, Events::exact(4));
        let spent = tariff().charge(&work);
        let expected = 501_500.0 + 90_000.0 + 12_000.0 + 5.0 * 1200.0 + 600.0;
        assert!((spent.ns - expected).abs() < 1e-6, "{spent:?}");
        assert_eq!(spent.unpriced, 4.0);
        let range = spent.range(Confidence::DEFAULT);
        assert!(0.0 < range.low && range.low < range.value && range.value < range.high);
        // An error of one price is the same for all its hits: 1 % stays 1 %.
        assert!((range.high / range.value - 1.0 - 0.0196 * 500.0 / 610.1).abs() < 3e-3);
        let nothing = Tariff::default().charge(&work);
        assert_eq!((nothing.ns, nothing.variance), (0.0, 0.0));
        assert_eq!(nothing.unpriced, 1000.0 + 10.0 + 20.0 + 5.0 + 2.0 + 3.0 + 4.0);
    }

    /// A loop of nothing but hits lies within the interval, and so does a program whose caches are
    /// always cold.
    #[test]
    fn the_cost_interval_covers_warm_and_cold_caches() {
        let mut work = Work::default();
        work.hit(Role::Malloc, Placed::Emulated, Events::exact(600));
        work.hit(Role::Free, Placed::Emulated, Events::exact(400));
        let tariff = Tariff { cold_cache: price(200.0, 4.0), ..tariff() };
        let range = tariff.charge(&work).range(Confidence::DEFAULT);
        assert_eq!(range.value, 600_000.0);
        assert!(range.low < 500_000.0 && range.high > 700_000.0, "{range:?}");
        assert!(range.low > 470_000.0 && range.high < 730_000.0, "{range:?}");
        let one = tariff.hit(Program::Malloc, Placed::Emulated).unwrap();
        assert!(one.ns == 600.0 && one.error() > 57.0 && one.error() < 60.0, "{one:?}");
    }

    #[test]
    fn the_speed_error_is_common_to_all_prices() {
        let mut work = Work::default();
        work.hit(Role::Malloc, Placed::Emulated, Events::exact(1000));
        work.hit(Role::Free, Placed::Emulated, Events::exact(1000));
        let exact =
            Tariff { hits: [[price(500.0, 0.0), None]; Program::ALL.len()], ..Tariff::default() };
        let spent = Tariff { speed_error: 0.18, ..exact }.charge(&work);
        assert!((spent.variance.sqrt() - 0.18 * 1e6).abs() < 1e-6, "{spent:?}");
        let hit = Tariff { speed_error: 0.18, ..exact }.hit(Program::Free, Placed::Emulated);
        assert!((hit.unwrap().error() - 90.0).abs() < 1e-9, "{hit:?}");
    }

    #[test]
    fn a_hit_of_unknown_kind_has_an_interval_with_both_prices() {
        let mut work = Work::default();
        work.hit(Role::Calloc, Placed::Either, Events::exact(100));
        let range = tariff().charge(&work).range(Confidence::DEFAULT);
        assert_eq!(range.value, 475_000.0);
        assert!(range.low <= 50_000.0 && range.high >= 900_000.0, "{range:?}");
        let rate = tariff().charge(&work).per_second(2.0).unwrap().range(Confidence::DEFAULT);
        assert_eq!(rate, range.times(0.5));
        assert_eq!(tariff().charge(&work).per_second(0.0), None);
    }
}
