//! The interval of a share from a number of effective samples.

use statrs::function::beta::beta_reg;
use statrs::function::erf::erfc_inv;

/// Effective samples from which the beta distribution is normal compared with the width of the
/// interval, and statrs cuts off its continued fraction.
const NORMAL_FROM_SAMPLES: f64 = 5000.0;

/// Halvings of [0, 1] in the search for a quantile.
const HALVINGS: u32 = 50;

/// `share` of `effective` samples, whose number may have a fraction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proportion {
    /// The share, in [0, 1].
    pub(super) share: f64,
    /// The number of effective samples, at least 0; 0 means no information.
    pub(super) effective: f64,
}

impl Proportion {
    /// P(Beta(x, n − x + 1) ≤ `bound`): the chance of x or more if the true share is `bound`.
    fn lower_tail(&self, bound: f64) -> f64 {
        let hits = self.share * self.effective;
        if hits <= 0.0 {
            return 1.0;
        }
        beta_reg(hits, self.effective - hits + 1.0, bound)
    }

    /// P(Beta(x + 1, n − x) ≤ `bound`).
    fn upper_tail(&self, bound: f64) -> f64 {
        let misses = (1.0 - self.share) * self.effective;
        if misses <= 0.0 {
            return 0.0;
        }
        beta_reg(self.effective - misses + 1.0, misses, bound)
    }

    /// The lower end: the smallest true share that has a chance of more than `tail` to give this
    /// share or more.
    pub(super) fn low(&self, tail: f64) -> f64 {
        if self.effective > NORMAL_FROM_SAMPLES {
            return self.wilson(tail, -1.0);
        }
        if self.share <= 0.0 {
            return 0.0;
        }
        search(|bound| self.lower_tail(bound) < tail)
    }

    /// The upper end: the largest true share that has a chance of more than `tail` to give this
    /// share or less.
    pub(super) fn high(&self, tail: f64) -> f64 {
        if self.effective > NORMAL_FROM_SAMPLES {
            return self.wilson(tail, 1.0);
        }
        if self.share >= 1.0 {
            return 1.0;
        }
        search(|bound| self.upper_tail(bound) < 1.0 - tail)
    }

    /// Whether [`Proportion::low`] is at most `bound`, in (0, 1).
    pub(super) fn low_is_at_most(&self, bound: f64, tail: f64) -> bool {
        if self.effective > NORMAL_FROM_SAMPLES {
            return self.low(tail) <= bound;
        }
        self.lower_tail(bound) >= tail
    }

    /// Whether [`Proportion::high`] is below `bound`, in (0, 1).
    pub(super) fn high_is_below(&self, bound: f64, tail: f64) -> bool {
        if self.effective > NORMAL_FROM_SAMPLES {
            return self.high(tail) < bound;
        }
        self.upper_tail(bound) > 1.0 - tail
    }

    /// An end of the interval of E. B. Wilson, "Probable inference, the law of succession, and
    /// statistical inference", JASA 22 (1927).
    fn wilson(&self, tail: f64, side: f64) -> f64 {
        let z = std::f64::consts::SQRT_2 * erfc_inv(2.0 * tail);
        let (share, n) = (self.share, self.effective);
        let middle = share + z * z / (2.0 * n);
        let reach = z * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
        ((middle + side * reach) / (1.0 + z * z / n)).clamp(0.0, 1.0)
    }
}

/// The place in [0, 1] up to which `below` holds.
fn search(below: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        if below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proportions_have_clopper_pearson_intervals() {
        // 0 of 10: 1 − (α/2)^(1/10). 5 of 10: 18.71 % to 81.29 % (Clopper and Pearson 1934).
        let none = Proportion { share: 0.0, effective: 10.0 };
        assert_eq!(none.low(0.025), 0.0);
        assert!((none.high(0.025) - (1.0 - 0.025f64.powf(0.1))).abs() < 1e-12);
        let half = Proportion { share: 0.5, effective: 10.0 };
        assert!((half.low(0.025) - 0.187_086).abs() < 1e-6);
        assert!((half.high(0.025) - 0.812_914).abs() < 1e-6);
        assert!(half.low_is_at_most(0.1871, 0.025) && !half.low_is_at_most(0.187, 0.025));
        assert!(half.high_is_below(0.813, 0.025) && !half.high_is_below(0.8129, 0.025));
    }

    #[test]
    fn intervals_change_little_at_the_normal_approximation() {
        for share in [0.01, 0.3, 0.5, 0.97] {
            let few = Proportion { share, effective: NORMAL_FROM_SAMPLES };
            let many = Proportion { share, effective: NORMAL_FROM_SAMPLES * 1.000_001 };
            let width = few.high(0.025) - few.low(0.025);
            assert!((few.low(0.025) - many.low(0.025)).abs() < 0.03 * width);
            assert!((few.high(0.025) - many.high(0.025)).abs() < 0.03 * width);
        }
    }

    #[test]
    fn a_proportion_without_samples_is_between_0_and_1() {
        let nothing = Proportion { share: 1.0, effective: 0.0 };
        assert!(nothing.low(0.025) < 1e-12 && nothing.high(0.025) >= 1.0);
    }
}
