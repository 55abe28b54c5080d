//! What traps usually add to the own time of programs, on the machine at hand: what is known before windows of a program have told anything.

use crate::cost::Measured;

/// Median over machines of what a trap in a function that allocates adds, nanoseconds, and the standard deviation of its logarithm: programs of one machine
/// differ by 0.3, and the two machines that were surveyed by 0.8 (28 and 64 ns, geometric means), which is a spread of 0.6 for two.
const ANYWHERE: (f64, f64) = (42.0, 0.7);
/// As many times what a trap adds to the daemon's own typical code it adds to programs, and the standard deviation of its logarithm: 0.6 to 2.5 in thirteen looks at five programs of one
/// machine, 1.2 as a geometric mean, and 0.4 is what those differ in, the error of a look included. On the other machine that was surveyed typical code of an earlier kind was looked at, which
/// loses 0.6 of that on the first: by this the factor would be 0.7 there, and 1.2 if it loses as much.
const OF_TYPICAL: (f64, f64) = (1.1, 0.42);
/// What is measured as less than that cannot be told from nothing, nanoseconds.
const LEAST_NS: f64 = 2.0;
/// What a sampled allocation adds more than others, nanoseconds.
const OF_SAMPLE_NS: f64 = 300.0;
/// What a trap without others near it adds, by what is usual among many, and the relative standard error of that.
const LONE: (f64, f64) = (7.0, 0.6);
/// Time for each trap from which on it adds all that it can, by what it usually adds, and the power of their proportion that it adds below: by nine loops of 19 to 85 ns on
/// one machine (docs/statistics.md).
const ENOUGH: f64 = 3.3;
const POWER: f64 = 1.5;

/// The law of what a trap in a function that allocates adds: lognormal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usual {
    /// Nanoseconds.
    pub median_ns: f64,
    /// Standard deviation of the logarithm.
    pub spread: f64,
}

impl Default for Usual {
    /// On a machine of which nothing is known.
    fn default() -> Usual {
        Usual { median_ns: ANYWHERE.0, spread: ANYWHERE.1 }
    }
}

impl Usual {
    /// On a machine where traps were found to add so much to typical code. Both that, with its error, and what is known of machines are evidence: the
    /// product of two normal laws of the logarithm, weighed by their precision.
    pub fn where_typical_code_loses(of: Measured) -> Usual {
        let ns = of.ns.max(LEAST_NS);
        let found = ((OF_TYPICAL.0 * ns).ln(), OF_TYPICAL.1.hypot(of.error() / ns));
        let before = (ANYWHERE.0.ln(), ANYWHERE.1);
        let precision = |(_, spread): (f64, f64)| 1.0 / (spread * spread);
        let all = precision(found) + precision(before);
        let mean = (found.0 * precision(found) + before.0 * precision(before)) / all;
        Usual { median_ns: mean.exp(), spread: 1.0 / all.sqrt() }
    }

    /// As so many more traps a sampled allocation counts.
    pub fn traps_of_sample(&self) -> f64 {
        OF_SAMPLE_NS / self.median_ns
    }

    /// What a trap adds that has no others near it, which finds everything to lose, nanoseconds, and the relative standard error of that: 0.3 to 0.6 µs were measured where 60 ns
    /// are usual.
    pub fn lone_ns(&self) -> (f64, f64) {
        (LONE.0 * self.median_ns, LONE.1)
    }

    /// The part of all that it can add which a trap adds where there are so many nanoseconds for each: a loop that does little between traps has little to lose.
    pub fn part(&self, each_ns: f64) -> f64 {
        (each_ns / (ENOUGH * self.median_ns)).min(1.0).powf(POWER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ns: f64, error: f64) -> Usual {
        Usual::where_typical_code_loses(Measured { ns, variance: error * error })
    }

    #[test]
    fn what_is_measured_counts_by_its_precision() {
        let usual = found(42.0 / 1.1, 0.0);
        assert!((usual.median_ns - 42.0).abs() < 1e-9, "{usual:?}");
        // 1/√(1/0.42² + 1/0.7²)
        assert!((usual.spread - 0.3601).abs() < 1e-3, "{usual:?}");
        let slow = found(200.0, 10.0);
        assert!((110.0..220.0).contains(&slow.median_ns), "{slow:?}");
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
    fn nothing_is_a_finding_as_well() {
        let usual = found(0.0, 1.0);
        assert!(usual.median_ns < 20.0 && usual.spread > 0.4, "{usual:?}");
    }
}
