//! What traps usually add to the own time of programs, on the machine at hand: what is known before windows of a program have told anything.

use crate::cost::{Dense, Measured};

/// Median over machines of what a trap in a function that allocates adds, nanoseconds, and the standard deviation of its logarithm: programs of one machine
/// differ by 0.3, and machines, with how busy their hosts are, by much more: 28, 64 and, on a host at half its speed, 110 to 160 ns were surveyed.
const ANYWHERE: (f64, f64) = (60.0, 1.0);
/// As many times what a trap adds to the daemon's own typical code it adds to programs, and the standard deviation of its logarithm: 0.6 to 2.5 in thirteen looks at five programs of one
/// machine, 1.2 as a geometric mean, and 0.4 is what those differ in, the error of a look included; 1.36 to 1.51 for four programs of another.
const OF_TYPICAL: (f64, f64) = (1.3, 0.4);
/// What is measured as less than that cannot be told from nothing, nanoseconds.
const LEAST_NS: f64 = 2.0;
/// What a trap without others near it adds, by what is usual among many, and the relative standard error of that.
const LONE: (f64, f64) = (7.0, 0.6);
/// Time for each trap from which on it adds all that it usually can, by what it usually adds.
const ENOUGH: f64 = 3.3;
/// Time for each trap from which on it may find more than that to lose, by what it usually adds, and how much more for each e-fold of that, as a standard deviation of the logarithm: so that lone ones, of
/// 20 µs each, may add as much as was measured. A program of much code and data has made most of it its own again by then, and the next trap takes it away: cc1plus, of 1.1 µs for each allocation, loses
/// 244 ns where 86 are usual, python3 with its own allocator, of 3.7 µs, some 350 where 106 are; jq, of 0.5 to 0.9 µs, what is usual.
const SPARSE: (f64, f64) = (5.0, 0.46);
/// The power of their proportion that it adds below, and its standard error over machines: 1.5 by nine loops of 19 to 85 ns on one machine, 0.7 by one on another, where
/// a trap adds some nanoseconds to whatever is behind it (docs/statistics.md).
const POWER: (f64, f64) = (1.1, 0.5);
/// Standard error of the logarithm of what the loop that was measured loses, by what other loops of that density do.
const OF_DENSE: f64 = 0.35;
/// Standard error of what a trap adds wherever there is anything behind it, of what the loop loses, and nanoseconds beside.
const OF_FLOOR: (f64, f64) = (0.25, 4.0);
/// No power is outside of this.
const POWERS: (f64, f64) = (0.3, 2.0);

/// The law of what a trap in a function that allocates adds: lognormal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usual {
    /// Nanoseconds.
    pub median_ns: f64,
    /// Standard deviation of the logarithm.
    pub spread: f64,
    /// With which power of the time for each a trap adds less in loops that have little to lose.
    pub power: f64,
    /// What a trap adds wherever there is anything behind it, nanoseconds, as far as that was found.
    pub floor_ns: f64,
}

impl Default for Usual {
    /// On a machine of which nothing is known.
    fn default() -> Usual {
        Usual { median_ns: ANYWHERE.0, spread: ANYWHERE.1, power: POWER.0, floor_ns: 0.0 }
    }
}

impl Usual {
    /// As so many more traps a sampled allocation counts: it adds 300 ns where 30 are usual.
    pub const TRAPS_OF_SAMPLE: f64 = 10.0;

    /// On a machine where traps were found to add so much to typical code. Both that, with its error, and what is known of machines are evidence: the
    /// product of two normal laws of the logarithm, weighed by their precision.
    pub fn where_typical_code_loses(of: Measured) -> Usual {
        let ns = of.ns.max(LEAST_NS);
        let found = ((OF_TYPICAL.0 * ns).ln(), OF_TYPICAL.1.hypot(of.error() / ns));
        let (mean, spread) = by_precision([found, (ANYWHERE.0.ln(), ANYWHERE.1)]);
        Usual { median_ns: mean.exp(), spread, power: POWER.0, floor_ns: 0.0 }
    }

    /// If a loop that does nothing but allocate was found to lose so much: the power that goes through that, weighed with what is known of machines by their precision.
    pub fn where_loops_lose(self, of: &Dense) -> Usual {
        let added = of.added.ns.max(LEAST_NS);
        let enough = (ENOUGH * self.median_ns / (of.own.ns + added)).ln();
        let found = (self.median_ns / added).ln() / enough;
        // Where such a loop has all to lose there are no others.
        if !(of.added.ns + found).is_finite() || enough < OF_DENSE {
            return self;
        }
        let error = OF_DENSE.hypot(of.added.error() / added) / enough;
        let (power, _) = by_precision([(found, error), POWER]);
        Usual { power: power.clamp(POWERS.0, POWERS.1), floor_ns: added, ..self }
    }

    /// Standard deviation of the logarithm of what traps add in loops in which they add that part of all that they can, if it would be so much were nothing known of loops here. What a trap adds to
    /// whatever is behind it is the same in all loops; only what it adds beyond differs as much as that.
    pub(super) fn spread_of_loops(&self, part: f64, spread: f64) -> f64 {
        let usually_ns = part * self.median_ns;
        let floor = (self.floor_ns / usually_ns).min(1.0) * (1.0 - part);
        let known = (OF_FLOOR.0 * self.floor_ns).hypot(OF_FLOOR.1) / usually_ns;
        spread.min(known.hypot((1.0 - floor) * spread))
    }

    /// How much more than usual traps may add that have so many nanoseconds each, as a standard deviation of the logarithm upwards.
    pub(super) fn more_where_sparse(&self, each_ns: f64) -> f64 {
        let (from, more) = SPARSE;
        let times = (each_ns / (from * self.median_ns)).max(1.0);
        // No more than lone ones.
        (more * times.ln()).min(LONE.0.ln())
    }

    /// What a trap adds that has no others near it, which finds everything to lose, nanoseconds, and the relative standard error of that: 0.3 to 0.6 µs were measured where 60 ns
    /// are usual.
    pub fn lone_ns(&self) -> (f64, f64) {
        (LONE.0 * self.median_ns, LONE.1)
    }

    /// The part of all that it can add which a trap adds where there are so many nanoseconds for each: a loop that does little between traps has little to lose.
    pub fn part(&self, each_ns: f64) -> f64 {
        (each_ns / (ENOUGH * self.median_ns)).min(1.0).powf(self.power)
    }
}

/// Mean and standard error of what two findings, each with its own, tell together.
fn by_precision(of: [(f64, f64); 2]) -> (f64, f64) {
    let precision = of.map(|(_, error)| 1.0 / (error * error));
    let all = precision[0] + precision[1];
    ((of[0].0 * precision[0] + of[1].0 * precision[1]) / all, 1.0 / all.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ns: f64, error: f64) -> Usual {
        Usual::where_typical_code_loses(Measured { ns, variance: error * error })
    }

    #[test]
    fn what_is_measured_counts_by_its_precision() {
        let usual = found(60.0 / 1.3, 0.0);
        assert!((usual.median_ns - 60.0).abs() < 1e-9, "{usual:?}");
        // 1/√(1/0.4² + 1/1²)
        assert!((usual.spread - 0.3714).abs() < 1e-3, "{usual:?}");
        let slow = found(200.0, 10.0);
        assert!((180.0..260.0).contains(&slow.median_ns), "{slow:?}");
    }

    #[test]
    fn what_could_not_be_measured_says_nothing() {
        for ns in [-10.0, 0.0, 5.0] {
            let usual = found(ns, 40.0);
            let anywhere = Usual::default();
            assert!((usual.median_ns / anywhere.median_ns - 1.0).abs() < 0.1, "{usual:?}");
            assert!(usual.spread > 0.95 * anywhere.spread, "{usual:?}");
        }
    }

    #[test]
    fn loops_tell_how_fast_it_gets_less() {
        let usual = Usual { median_ns: 60.0, spread: 0.4, power: POWER.0, floor_ns: 0.0 };
        let loops = |ns| {
            let measured = |ns| Measured { ns, variance: 1.0 };
            usual.where_loops_lose(&Dense { own: measured(20.0), added: measured(ns) })
        };
        // Of 198 ns that are enough a round of 25 loses a twelfth, of 45 a half: by powers of 1.2 and 0.47, were nothing else known.
        let (little, much) = (loops(5.0), loops(30.0));
        assert!((1.13..1.2).contains(&little.power), "{little:?}");
        assert!((0.5..0.7).contains(&much.power), "{much:?}");
        assert!((20.0..30.0).contains(&(60.0 * much.part(50.0))), "{}", much.part(50.0));
        // Where a loop has as much to lose as anything there is nothing to tell.
        assert_eq!(loops(150.0), usual);
        assert_eq!(loops(f64::NAN), usual);
        assert!(POWERS.0 <= loops(59.0).power && loops(-5.0).power <= POWERS.1);
    }

    #[test]
    fn where_traps_are_sparse_they_may_add_as_much_as_lone_ones() {
        let usual = Usual { median_ns: 60.0, spread: 0.4, power: POWER.0, floor_ns: 0.0 };
        assert_eq!((usual.more_where_sparse(0.0), usual.more_where_sparse(290.0)), (0.0, 0.0));
        let lone = usual.more_where_sparse(20_000.0);
        assert!((usual.lone_ns().0 / (60.0 * lone.exp()) - 1.0).abs() < 0.02, "{lone}");
        assert_eq!(usual.more_where_sparse(f64::INFINITY), LONE.0.ln());
        let some = usual.more_where_sparse(1_000.0);
        assert!((0.5..0.6).contains(&some), "{some}");
    }

    #[test]
    fn nothing_is_a_finding_as_well() {
        let usual = found(0.0, 1.0);
        assert!(usual.median_ns < 20.0 && usual.spread > 0.4, "{usual:?}");
    }
}
