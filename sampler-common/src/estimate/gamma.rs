//! Quantiles of a gamma distribution, given by its mean and variance.
//!
//! The argument is a tail probability, not a cumulative probability. So tails far below the
//! distance of 1 to the next smaller float keep their precision.
//!
//! A gamma variable of shape k and mean 1 is transformed to a nearly normal one: η with
//! ½η² = λ − 1 − ln λ, sign as λ − 1. With the normal quantile z, η₀ = z/√k, the quantile is at
//! η = η₀ + ln(η₀/(λ₀ − 1))/(η₀·k) + O(k⁻²) (N. M. Temme, "Asymptotic inversion of incomplete gamma
//! functions", Math. Comp. 58 (1992); DLMF 8.12).
//!
//! The error is below 7·10⁻⁷ standard deviations from k = 1000 up. Below k = 1000 this quantile
//! starts Newton's iteration on the logarithm of the incomplete gamma function, in ln x. Both tails
//! are concave there, so the iteration converges from everywhere.

use statrs::function::erf::erfc_inv;
use statrs::function::gamma::{gamma_lr, gamma_ur, ln_gamma};

/// Shape from which the asymptotic expansion alone is good to 7·10⁻⁷ standard deviations, and the
/// series of the incomplete gamma function begin to be slow.
const LARGE_SHAPE: f64 = 1000.0;

/// A side of the distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Tail {
    /// The smaller values.
    Lower,
    /// The larger values.
    Upper,
}

/// The value beyond which `probability` (in (0, ½]) of a gamma distribution lies, on the side
/// `tail`. `mean` and `variance` are finite and positive.
///
/// Relative error below 10⁻⁹ for shapes mean²/variance below 1000, else below 7·10⁻⁷ standard
/// deviations.
pub(super) fn quantile(mean: f64, variance: f64, probability: f64, tail: Tail) -> f64 {
    let shape = mean / variance * mean;
    if !shape.is_finite() {
        return mean; // a standard deviation of less than 10⁻¹⁵⁰ means
    }
    if tail == Tail::Upper && 600.0 * shape < probability {
        return 0.0; // Q(k, x) is about −k·ln x: x is below e⁻⁶⁰⁰
    }
    let ln_ratio = if shape >= LARGE_SHAPE {
        asymptotic_ln(shape, probability, tail)
    } else if shape >= 1.0 {
        polish(shape, probability, tail, asymptotic_ln(shape, probability, tail))
    } else {
        polish(shape, probability, tail, small_shape_ln(shape, probability, tail))
    };
    mean * ln_ratio.exp()
}

/// ln of quantile over mean, by Temme's expansion.
fn asymptotic_ln(shape: f64, probability: f64, tail: Tail) -> f64 {
    let deviations = std::f64::consts::SQRT_2 * erfc_inv(2.0 * probability);
    let first = match tail {
        Tail::Lower => -deviations / shape.sqrt(),
        Tail::Upper => deviations / shape.sqrt(),
    };
    let correction = if first.abs() < 1e-4 {
        first / 36.0 - 1.0 / 3.0 // the limit, where the quotient below loses its digits
    } else {
        (first / ln_lambda(first).exp_m1()).ln() / first
    };
    ln_lambda(first + correction / shape)
}

/// A start of Newton's iteration for shapes below 1, where Temme's expansion has no meaning.
///
/// Newton's steps never overshoot from this side: P(k, x) ≤ x^k/Γ(k+1), and Q(k, x) ≤ k·e^(−x) for
/// x ≥ 1.
fn small_shape_ln(shape: f64, probability: f64, tail: Tail) -> f64 {
    let ln_x = match tail {
        Tail::Lower => (probability.ln() + ln_gamma(shape + 1.0)) / shape,
        Tail::Upper => (shape / probability).ln().max(1.0).ln(),
    };
    ln_x - shape.ln()
}

/// ln λ of the solution of ½η² = λ − 1 − ln λ with the sign of η.
fn ln_lambda(eta: f64) -> f64 {
    let target = 0.5 * eta * eta;
    let mut ln = if eta < -1.0 {
        (-1.0 - target).exp() - 1.0 - target
    } else if eta < 1.0 {
        eta * (1.0 - eta / 6.0 * (1.0 - eta / 6.0))
    } else {
        (target + eta).ln_1p()
    };
    // Newton; three or four steps.
    for _ in 0..30 {
        let slope = ln.exp_m1();
        if slope == 0.0 {
            break;
        }
        let step = (exp_less_two_terms(ln) - target) / slope;
        ln -= step;
        if step.abs() <= 1e-15 * ln.abs() {
            break;
        }
    }
    ln
}

/// e^x − 1 − x without cancellation.
fn exp_less_two_terms(x: f64) -> f64 {
    if x.abs() > 0.01 {
        return x.exp_m1() - x;
    }
    let tail = 1.0 + x / 5.0 * (1.0 + x / 6.0 * (1.0 + x / 7.0));
    0.5 * x * x * (1.0 + x / 3.0 * (1.0 + x / 4.0 * tail))
}

/// Newton's iteration for the ln of quantile over mean, from `ln_ratio`.
fn polish(shape: f64, probability: f64, tail: Tail, mut ln_ratio: f64) -> f64 {
    let (ln_shape, ln_gamma_shape) = (shape.ln(), ln_gamma(shape));
    let mut ln_x = ln_shape + ln_ratio;
    for _ in 0..50 {
        let x = ln_x.exp();
        if !(x > 0.0 && x.is_finite()) {
            break; // the quantile is 0 in floats
        }
        let reached = match tail {
            Tail::Lower => gamma_lr(shape, x),
            Tail::Upper => gamma_ur(shape, x),
        };
        // d/d(ln x) of the cumulative probability.
        let slope = (shape * ln_x - x - ln_gamma_shape).exp();
        let step = (reached / probability).ln() * reached / slope;
        if !step.is_finite() {
            break; // the probability underflows so far out; the start is the result
        }
        match tail {
            Tail::Lower => ln_x -= step,
            Tail::Upper => ln_x += step,
        }
        ln_ratio = ln_x - ln_shape;
        if step.abs() < 1e-11 {
            break;
        }
    }
    ln_ratio
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of tests/data/gamma_quantiles.txt.
    fn oracle() -> impl Iterator<Item = [f64; 4]> {
        include_str!("../../tests/data/gamma_quantiles.txt")
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                let mut numbers = line.split(' ').map(|word| word.parse().unwrap());
                std::array::from_fn(|_| numbers.next().unwrap())
            })
    }

    #[test]
    fn quantiles_agree_with_mpmath() {
        let mut rows = 0;
        for [shape, probability, lower, upper] in oracle() {
            rows += 1;
            for (tail, expected) in [(Tail::Lower, lower), (Tail::Upper, upper)] {
                let mean = 12345.0;
                let got = quantile(mean, mean * mean / shape, probability, tail) / mean;
                let error = (got - expected).abs();
                let bound = if shape < LARGE_SHAPE {
                    1e-9 * expected // down to 0, where the oracle's digits underflow too
                } else {
                    // 10⁻¹⁵: the resolution of a float at a mean of 1.
                    7e-7 / shape.sqrt() + 1e-15
                };
                assert!(
                    error <= bound,
                    "shape {shape}, {probability} {tail:?}: {got} instead of {expected}"
                );
            }
        }
        assert_eq!(rows, 126);
    }

    #[test]
    fn the_distribution_of_shape_1_is_exponential() {
        for probability in [0.4, 1e-3, 1e-9, 5e-16] {
            let lower = quantile(2.0, 4.0, probability, Tail::Lower);
            let upper = quantile(2.0, 4.0, probability, Tail::Upper);
            assert!((lower / (-2.0 * (-probability).ln_1p()) - 1.0).abs() < 1e-9);
            assert!((upper / (-2.0 * probability.ln()) - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn quantiles_are_finite_at_extreme_shapes() {
        for (mean, variance) in [(1e-3, 1e3), (1e-100, 1e100), (1e300, 1.0), (1.0, 1e3)] {
            for tail in [Tail::Lower, Tail::Upper] {
                assert!(quantile(mean, variance, 5e-16, tail).is_finite());
            }
        }
        for variance in [1e-300, f64::MIN_POSITIVE, 5e-324] {
            for tail in [Tail::Lower, Tail::Upper] {
                assert_eq!(quantile(1e18, variance, 1e-9, tail), 1e18);
            }
        }
    }
}
