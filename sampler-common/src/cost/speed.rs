//! The speed of the machine at each measurement of its prices, and the uncertainty that it adds to
//! them.
//!
//! Neighbours slow down virtual machines, and heat slows down processors. For seconds or minutes
//! all prices rise together, by up to a half. In fourteen starts within one hour, a hit cost about
//! 550 or about 780 ns, and hardly ever something between. A measurement has the speed of its
//! moment, while a program runs at many speeds. So the common variation of all prices is kept apart
//! from the error of each single price:
//!
//! ```text
//! rₗ = mean over prices of priceₗ/mean(price)        s² = (ν·s₀² + Σ(rₗ − 1)²)/(ν + n − 1)        variance of the mean = s²/n
//! ```
//!
//! rₗ is the relative price at measurement l of n. s₀ is the variation that is assumed before any
//! measurement, with the weight of ν measurements (the scale of an inverse-χ² law: A. Gelman et
//! al., "Bayesian Data Analysis" (2013), section 2.6).

use super::Measured;

/// Assumed relative standard deviation of measurements (s₀), and the number of further measurements
/// that it counts for (ν).
const PRIOR_SPEED: (f64, f64) = (0.18, 2.0);

/// Speeds at several measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    /// For each measurement: its prices, divided by the mean prices.
    relative_price: Vec<f64>,
    /// Relative standard error of the mean over all measurements.
    pub error: f64,
}

impl Speed {
    /// Computes the speeds. `prices` has a list of measurements for each price. A price that was
    /// not measured every time is left out.
    pub fn of(prices: &[&[Measured]]) -> Speed {
        let measurements = prices.iter().map(|measurements| measurements.len()).max().unwrap_or(0);
        let of_all: Vec<&[Measured]> = prices
            .iter()
            .copied()
            .filter(|of| of.len() == measurements && mean(of) > 0.0)
            .collect();
        let at = |measurement: usize| match of_all.len() {
            0 => 1.0,
            n => of_all.iter().map(|of| of[measurement].ns / mean(of)).sum::<f64>() / n as f64,
        };
        let relative_price: Vec<f64> = (0..measurements).map(at).collect();
        let n = (measurements as f64).max(1.0);
        let off: f64 = relative_price.iter().map(|of| (of - 1.0).powi(2)).sum();
        let (deviation, more) = PRIOR_SPEED;
        let variance = (more * deviation * deviation + off) / (more + n - 1.0);
        Speed { relative_price, error: (variance / n).sqrt() }
    }

    /// The measurements of one price, converted to the mean speed. If the price was not measured
    /// every time, `measurements` are its first measurements.
    #[must_use]
    pub fn normalized(&self, measurements: &[Measured]) -> Vec<Measured> {
        let speeds = self.relative_price.iter().filter(|of| **of > 0.0).copied();
        let even = |(measurement, relative_price): (&Measured, f64)| Measured {
            ns: measurement.ns / relative_price,
            variance: measurement.variance / (relative_price * relative_price),
        };
        measurements.iter().zip(speeds.chain(std::iter::repeat(1.0))).map(even).collect()
    }
}

fn mean(measurements: &[Measured]) -> f64 {
    measurements.iter().map(|measurement| measurement.ns).sum::<f64>() / measurements.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurements(ns: &[f64]) -> Vec<Measured> {
        ns.iter().map(|ns| Measured { ns: *ns, variance: 4.0 }).collect()
    }

    #[test]
    fn one_measurement_keeps_the_prior_speed_error() {
        let one = measurements(&[550.0]);
        let speed = Speed::of(&[&one]);
        // The interval of each of the two prices that the module's text names contains the other
        // one.
        assert!(550.0 * (1.0 + 1.96 * speed.error) > 740.0, "{speed:?}");
        assert!(780.0 * (1.0 - 1.96 * speed.error) < 560.0, "{speed:?}");
        assert_eq!(speed.normalized(&one), one);
        assert_eq!(Speed::of(&[]).error, speed.error);
    }

    #[test]
    fn measurements_that_agree_narrow_the_interval() {
        let calm = Speed::of(&[&measurements(&[550.0; 20])]);
        assert!(calm.error < 0.015, "{calm:?}");
        let ns: Vec<f64> = (0..20).map(|at| if at % 2 == 0 { 550.0 } else { 780.0 }).collect();
        let changing = Speed::of(&[&measurements(&ns)]);
        // The relative deviation is 17 % in each of twenty measurements.
        assert!((0.034..0.045).contains(&changing.error), "{changing:?}");
    }

    #[test]
    fn a_common_speed_change_is_no_error_of_single_prices() {
        let (a, b) = (measurements(&[500.0, 750.0]), measurements(&[1000.0, 1500.0]));
        let speed = Speed::of(&[&a, &b]);
        let even = speed.normalized(&a);
        assert!((even[0].ns - 625.0).abs() < 1e-9 && (even[1].ns - 625.0).abs() < 1e-9);
        assert!(speed.error > 0.1, "{speed:?}");
        // A price that was measured only the first time.
        let once = speed.normalized(&measurements(&[800.0]));
        assert!((once[0].ns - 1000.0).abs() < 1e-9, "{once:?}");
        // A price of 0 gives no information on the speed.
        assert_eq!(Speed::of(&[&a, &measurements(&[0.0, 0.0])]), Speed::of(&[&a]));
    }
}
