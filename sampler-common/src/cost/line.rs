//! A price that grows with the size of what is done: a constant and so much per unit.

use super::Measured;

/// `constant + slope·x`, with the covariances of both.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    /// Nanoseconds of an event of size 0.
    pub constant: f64,
    /// Nanoseconds per unit of size.
    pub slope: f64,
    /// Variance of the constant, covariance of both, variance of the slope.
    covariance: [f64; 3],
}

impl Line {
    /// Through prices that were measured at some sizes, by weighted least squares; one size alone gives a constant. `None` without any.
    ///
    /// Where the points lie further from the line than their own errors allow, the covariances grow by χ² per degree of freedom
    /// (R. T. Birge, "The calculation of errors by the method of least squares", Physical Review 40, 1932): the tiers of a stack copy
    /// are steps, and no line.
    pub fn through(points: &[(f64, Measured)]) -> Option<Line> {
        // A variance of 0 would weigh infinitely; a picosecond squared does not.
        let weighted = points.iter().map(|(x, of)| (*x, of.ns, 1.0 / of.variance.max(1e-6)));
        let (mut w, mut x, mut y) = (0.0, 0.0, 0.0);
        for (at, ns, weight) in weighted.clone() {
            w += weight;
            x += weight * at;
            y += weight * ns;
        }
        if w <= 0.0 {
            return None;
        }
        let (mean_x, mean_y) = (x / w, y / w);
        let squares: f64 = weighted.clone().map(|(at, _, w)| w * (at - mean_x).powi(2)).sum();
        let products = weighted.clone().map(|(at, ns, w)| w * (at - mean_x) * (ns - mean_y));
        let slope = if squares > 0.0 { products.sum::<f64>() / squares } else { 0.0 };
        let constant = mean_y - slope * mean_x;
        let residues = weighted.map(|(at, ns, w)| w * (ns - constant - slope * at).powi(2));
        let free = points.len() as f64 - if squares > 0.0 { 2.0 } else { 1.0 };
        let excess = if free > 0.0 { (residues.sum::<f64>() / free).max(1.0) } else { 1.0 };
        let of_slope = if squares > 0.0 { 1.0 / squares } else { 0.0 };
        let covariance = [1.0 / w + mean_x * mean_x * of_slope, -mean_x * of_slope, of_slope];
        Some(Line { constant, slope, covariance: covariance.map(|of| of * excess) })
    }

    /// What events of a total size take: `count·constant + size·slope`, with its variance.
    pub fn of(&self, count: f64, size: f64) -> Measured {
        let [constant, both, slope] = self.covariance;
        let variance = count * count * constant + 2.0 * count * size * both + size * size * slope;
        Measured {
            ns: (count * self.constant + size * self.slope).max(0.0),
            variance: variance.max(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(x: f64, ns: f64, error: f64) -> (f64, Measured) {
        (x, Measured { ns, variance: error * error })
    }

    #[test]
    fn a_line_is_met() {
        let points: Vec<_> = [2.0, 7.0, 14.0, 60.0].map(|x| at(x, 900.0 + 25.0 * x, 10.0)).into();
        let line = Line::through(&points).unwrap();
        assert!((line.constant - 900.0).abs() < 1e-6 && (line.slope - 25.0).abs() < 1e-6);
        let of = line.of(3.0, 30.0);
        assert!((of.ns - 3.0 * 900.0 - 30.0 * 25.0).abs() < 1e-6 && of.variance > 0.0);
        // Known best in the midst of the points.
        let error = |x: f64| line.of(1.0, x).error();
        assert!(error(20.0) < error(2.0) && error(20.0) < error(60.0));
    }

    #[test]
    fn one_size_is_a_constant_and_no_line_says_so() {
        assert_eq!(Line::through(&[]), None);
        let one = Line::through(&[at(4.0, 700.0, 5.0)]).unwrap();
        assert_eq!((one.constant, one.slope), (700.0, 0.0));
        assert!((one.of(2.0, 100.0).error() - 10.0).abs() < 1e-9);
        let bent = [at(0.0, 0.0, 1.0), at(1.0, 500.0, 1.0), at(2.0, 0.0, 1.0)];
        let bent = Line::through(&bent).unwrap();
        assert!(bent.of(1.0, 1.0).error() > 100.0, "{bent:?}");
    }
}
