//! A price that grows with the size of the event: a constant and a price per unit.

use super::Measured;

/// `constant + slope·x`, with variances and covariance.
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
    /// The line through prices that were measured at some sizes, by weighted least squares; one
    /// size alone gives a constant. `None` without any price.
    ///
    /// No event has a negative cost: neither the constant nor the slope is negative, so a sum of
    /// events costs the sum of their costs. If the best line has a negative coefficient, the best
    /// line without this coefficient replaces it (C. L. Lawson, R. J. Hanson, "Solving Least
    /// Squares Problems", 1974, chapter 23: with two unknowns it lies on a border).
    ///
    /// If the points lie further from the line than their own errors allow, the covariances grow by
    /// χ² per degree of freedom (R. T. Birge, "The calculation of errors by the method of least
    /// squares", Physical Review 40, 1932): the tiers of a stack copy are steps, not a line.
    pub fn through(points: &[(f64, Measured)]) -> Option<Line> {
        // A variance of 0 would weigh infinitely; a variance of one picosecond squared does not.
        let weighted =
            |(x, of): &(f64, Measured)| (*x, of.ns.max(0.0), 1.0 / of.variance.max(1e-6));
        let points: Vec<Point> = points.iter().map(weighted).collect();
        let best = Fit::best(&points)?;
        let fit = match best.line {
            [constant, slope] if constant >= 0.0 && slope >= 0.0 => best,
            _ => Fit::least([Fit::level(&points), Fit::proportional(&points)])?,
        };
        let free = points.len() as f64 - fit.unknowns;
        let excess = if free > 0.0 { (fit.residues / free).max(1.0) } else { 1.0 };
        let [constant, slope] = fit.line;
        Some(Line { constant, slope, covariance: fit.covariance.map(|of| of * excess) })
    }

    /// The cost of events of a total size: `count·constant + size·slope`, with its variance.
    pub fn of(&self, count: f64, size: f64) -> Measured {
        let [constant, both, slope] = self.covariance;
        let variance = count * count * constant + 2.0 * count * size * both + size * size * slope;
        Measured { ns: count * self.constant + size * self.slope, variance: variance.max(0.0) }
    }
}

/// Size, price, weight.
type Point = (f64, f64, f64);

/// A line that was fitted to points.
struct Fit {
    /// Constant and slope.
    line: [f64; 2],
    /// Variances and covariance, as in [`Line`].
    covariance: [f64; 3],
    /// Number of coefficients that were fitted.
    unknowns: f64,
    residues: f64,
}

impl Fit {
    /// The fit with the least residues.
    fn least(fits: [Option<Fit>; 2]) -> Option<Fit> {
        fits.into_iter().flatten().min_by(|a, b| a.residues.total_cmp(&b.residues))
    }

    /// The line with both coefficients; a constant if all sizes are equal.
    fn best(points: &[Point]) -> Option<Fit> {
        let level = Fit::level(points)?;
        let weight: f64 = points.iter().map(|(_, _, w)| w).sum();
        let mean_x = points.iter().map(|(x, _, w)| w * x).sum::<f64>() / weight;
        let mean_y = level.line[0];
        let squares: f64 = points.iter().map(|(x, _, w)| w * (x - mean_x).powi(2)).sum();
        if squares <= 0.0 {
            return Some(level);
        }
        let products = points.iter().map(|(x, y, w)| w * (x - mean_x) * (y - mean_y));
        let slope = products.sum::<f64>() / squares;
        let of_slope = 1.0 / squares;
        let covariance = [1.0 / weight + mean_x * mean_x * of_slope, -mean_x * of_slope, of_slope];
        Some(Fit::of([mean_y - slope * mean_x, slope], covariance, 2.0, points))
    }

    /// The constant: the same price at every size.
    fn level(points: &[Point]) -> Option<Fit> {
        let weight: f64 = points.iter().map(|(_, _, w)| w).sum();
        let mean = points.iter().map(|(_, y, w)| w * y).sum::<f64>() / weight;
        (weight > 0.0).then(|| Fit::of([mean, 0.0], [1.0 / weight, 0.0, 0.0], 1.0, points))
    }

    /// The proportional line: 0 at size 0.
    fn proportional(points: &[Point]) -> Option<Fit> {
        let squares: f64 = points.iter().map(|(x, _, w)| w * x * x).sum();
        let slope = points.iter().map(|(x, y, w)| w * x * y).sum::<f64>() / squares;
        (squares > 0.0).then(|| Fit::of([0.0, slope], [0.0, 0.0, 1.0 / squares], 1.0, points))
    }

    fn of(line: [f64; 2], covariance: [f64; 3], unknowns: f64, points: &[Point]) -> Fit {
        let [constant, slope] = line;
        let residue = |(x, y, w): &Point| w * (y - constant - slope * x).powi(2);
        let residues = points.iter().map(residue).sum();
        Fit { line, covariance, unknowns, residues }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(x: f64, ns: f64, error: f64) -> (f64, Measured) {
        (x, Measured { ns, variance: error * error })
    }

    #[test]
    fn a_fit_of_exact_points_is_the_line() {
        let points: Vec<_> = [2.0, 7.0, 14.0, 60.0].map(|x| at(x, 900.0 + 25.0 * x, 10.0)).into();
        let line = Line::through(&points).unwrap();
        assert!((line.constant - 900.0).abs() < 1e-6 && (line.slope - 25.0).abs() < 1e-6);
        let of = line.of(3.0, 30.0);
        assert!((of.ns - 3.0 * 900.0 - 30.0 * 25.0).abs() < 1e-6 && of.variance > 0.0);
        // The error is least in the middle of the points.
        let error = |x: f64| line.of(1.0, x).error();
        assert!(error(20.0) < error(2.0) && error(20.0) < error(60.0));
    }

    #[test]
    fn one_size_gives_a_constant_and_a_bad_fit_a_large_error() {
        assert_eq!(Line::through(&[]), None);
        let one = Line::through(&[at(4.0, 700.0, 5.0)]).unwrap();
        assert_eq!((one.constant, one.slope), (700.0, 0.0));
        assert!((one.of(2.0, 100.0).error() - 10.0).abs() < 1e-9);
        let bent = [at(0.0, 0.0, 1.0), at(1.0, 500.0, 1.0), at(2.0, 0.0, 1.0)];
        let bent = Line::through(&bent).unwrap();
        assert!(bent.of(1.0, 1.0).error() > 100.0, "{bent:?}");
    }

    #[test]
    fn no_fitted_cost_is_negative() {
        // The best line would start at −1,069 ns.
        let steep = Line::through(&[at(4.0, 1.0, 0.0), at(60.0, 14_985.0, 0.0)]).unwrap();
        assert!(steep.constant == 0.0 && (steep.slope - 249.0).abs() < 1.0, "{steep:?}");
        assert!(steep.of(1.0, 4.0).error() > 50.0, "what it misses is in its error: {steep:?}");
        let falling = Line::through(&[at(4.0, 900.0, 1.0), at(60.0, 100.0, 1.0)]).unwrap();
        assert_eq!((falling.constant, falling.slope), (500.0, 0.0));
        let below = Line::through(&[at(4.0, -3.0, 1.0), at(60.0, -2.0, 1.0)]).unwrap();
        assert_eq!((below.constant, below.slope), (0.0, 0.0));
    }
}
