//! The binomial distribution for the sizes that occur here: up to 10^18 trials of very small
//! probability.
//!
//! ```text
//! P(X = m) = C(n, m)·π^m·(1−π)^(n−m)        P(X ≥ m) = I_π(m, n − m + 1)
//! ```
//!
//! with the regularized incomplete beta function I (DLMF 8.17.5), whose series is that of the crate
//! `special` (algorithm AS 63). The factor in front of the series is ours. Computed from the
//! logarithms of three gamma functions of 10^9, it would be off by 2·10⁻⁶. In statrs 0.19, which
//! does that, the failed trials of 10,000 samples are off by 4 (and its continued fraction ends
//! after 140 steps). C. Loader, "Fast and accurate computation of binomial probabilities" (2000),
//! has no large terms that cancel:
//!
//! ```text
//! ln P(X = m) = ½ ln(n/(2πₑ·m(n−m))) + δ(n) − δ(m) − δ(n−m) − nπ·h(d/(nπ)) − n(1−π)·h(−d/(n(1−π)))
//! d = m − nπ,   h(t) = (1+t)·ln(1+t) − t,   δ(z) = ln Γ(z+1) − (z+½)·ln z + z − ½ ln 2πₑ
//! ```
//!
//! where πₑ is the number 3.14….

use special::Beta;
use statrs::function::gamma::ln_gamma;
use std::f64::consts::TAU;

/// `trials` independent trials, each a hit with probability `hit`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binomial {
    /// Number of trials: whole, at least 1.
    pub(super) trials: f64,
    /// Probability of a hit, in (0, 1].
    pub(super) hit: f64,
    /// 1 − `hit`, a separate argument because close to a hit of 1 the difference has no digits
    /// left.
    pub(super) miss: f64,
}

impl Binomial {
    /// P(X = hits) for a whole number of `hits`.
    pub(super) fn exactly(&self, hits: f64) -> f64 {
        self.ln_exactly(hits).exp()
    }

    fn ln_exactly(&self, hits: f64) -> f64 {
        let Binomial { trials, hit, miss } = *self;
        let misses = trials - hits;
        if hits < 0.0 || misses < 0.0 {
            return f64::NEG_INFINITY;
        }
        if hits == 0.0 {
            return trials * ln(miss, hit);
        }
        if misses == 0.0 {
            return trials * ln(hit, miss);
        }
        let (mean, mean_misses) = (trials * hit, trials * miss);
        if mean_misses == 0.0 {
            return f64::NEG_INFINITY;
        }
        let distance = hits - mean;
        let scale = 0.5 * (trials / (TAU * hits) / misses).ln();
        let correction =
            stirling_remainder(trials) - stirling_remainder(hits) - stirling_remainder(misses);
        let deviance = mean * excess(distance / mean, hits / mean)
            + mean_misses * excess(-distance / mean_misses, misses / mean_misses);
        scale + correction - deviance
    }

    /// P(X ≥ hits) for a whole number of `hits` up to `trials`.
    ///
    /// The relative error is about 10⁻¹⁶·(1 + hits·ln(1/π)) up to ½; above ½ the error is that of
    /// 1 − P. Takes about 8·√hits steps.
    pub(super) fn at_least(&self, hits: f64) -> f64 {
        if hits <= 0.0 {
            return 1.0;
        }
        let x = self.hit;
        let (ln_x, ln_rest) = (x.ln(), (1.0 - x).ln());
        if !ln_rest.is_finite() {
            return 1.0;
        }
        let misses = self.trials - hits;
        // π^m·(1−π)^(n−m)/B(m, n−m+1) = m·P(X = m). `special` computes this factor as exp(the sum
        // below − its third argument, which is ln B). The third argument here is the one that makes
        // the factor right.
        let factor = hits.ln() + self.ln_exactly(hits);
        let instead_of_ln_beta = hits * ln_x + misses * ln_rest - factor;
        x.inc_beta(hits, misses + 1.0, instead_of_ln_beta).clamp(0.0, 1.0)
    }
}

/// ln of a probability, computed from the smaller of the probability and its complement.
fn ln(probability: f64, complement: f64) -> f64 {
    if probability < 0.5 { probability.ln() } else { (-complement).ln_1p() }
}

/// h(t), with 1 + t as a separate argument because close to t = −1 the sum has no digits left.
fn excess(t: f64, one_more: f64) -> f64 {
    if t.abs() < 0.5 { one_more * t.ln_1p() - t } else { one_more * one_more.ln() - t }
}

/// δ(z): the remainder of Stirling's formula for ln z!, for z ≥ 1 (DLMF 5.11.1); absolute error
/// 10⁻¹⁴.
fn stirling_remainder(z: f64) -> f64 {
    if z < 10.0 {
        return ln_gamma(z + 1.0) - (z + 0.5) * z.ln() + z - 0.5 * TAU.ln();
    }
    let y = 1.0 / (z * z);
    let inner = 1.0 / 1260.0 - y * (1.0 / 1680.0 - y / 1188.0);
    (1.0 / 12.0 - y * (1.0 / 360.0 - y * inner)) / z
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_equal_the_summed_binomial_distribution() {
        for (trials, hit) in [(1u32, 0.3), (7, 0.5), (40, 0.9), (60, 1e-3), (25, 1.0 - 1e-9)] {
            let of = Binomial { trials: f64::from(trials), hit, miss: 1.0 - hit };
            let (mut choose, mut below) = (1.0, 0.0);
            for hits in 0..=trials {
                let expected =
                    choose * hit.powi(hits as i32) * of.miss.powi((trials - hits) as i32);
                let got = of.exactly(f64::from(hits));
                assert!((got / expected - 1.0).abs() < 1e-12, "{of:?} {hits}: {got} {expected}");
                let tail = of.at_least(f64::from(hits));
                assert!((tail - (1.0 - below)).abs() < 1e-12, "{of:?} {hits}: {tail}");
                below += expected;
                choose *= f64::from(trials - hits) / f64::from(hits + 1);
            }
        }
    }

    #[test]
    fn probabilities_agree_with_mpmath_where_terms_cancel() {
        // 50 digits of mpmath: R, n, m, the probability of m, and the sum of those of m and more.
        for [interval, trials, hits, exactly, at_least] in ORACLE {
            let of = Binomial { trials, hit: 1.0 / interval, miss: 1.0 - 1.0 / interval };
            let got = of.exactly(hits);
            assert!((got / exactly - 1.0).abs() < 1e-12 + 1e-15 * hits, "{of:?} {got}");
            let got = of.at_least(hits);
            assert!((got / at_least - 1.0).abs() < 1e-12 + 1e-15 * hits, "{of:?} {got}");
        }
    }

    #[test]
    fn probabilities_hold_for_certain_and_nearly_certain_hits() {
        let of = Binomial { trials: 5.0, hit: 1.0, miss: 0.0 };
        assert_eq!((of.exactly(5.0), of.exactly(4.0), of.at_least(5.0)), (1.0, 0.0, 1.0));
        let of = Binomial { trials: 5.0, hit: 1.0, miss: 1e-30 };
        assert!((of.exactly(4.0) / 5e-30 - 1.0).abs() < 1e-12);
    }

    const ORACLE: [[f64; 5]; 10] = [
        [102400.0, 2592.0, 1.0, 0.02468005646556638, 0.02499494520928556],
        [102400.0, 353675.0, 8.0, 0.015882385163040337, 0.025000291717788226],
        [102400.0, 1476879.0, 8.0, 0.02530221104008986, 0.9750001033834711],
        [100000.0, 980010000.0, 10000.0, 0.000526549497875896, 0.022260684789302973],
        [102400.0, 1004027230.0, 10000.0, 0.0005806333874534392, 0.0250000019000286],
        [102400.0, 1044166744.0, 10000.0, 0.000588269981840979, 0.9750000005136046],
        [524288.0, 523001000000.0, 1000000.0, 1.951053249173972e-05, 0.007016098204696773],
        [2.0, 2001000.0, 1000000.0, 0.00043933636439670766, 0.7604146408693886],
        [4000000001.0, 60000000030.0, 30.0, 0.00022113651910935108, 0.00041844966921223304],
        [4294967296.0, 9000003.0, 3.0, 1.5303364768548068e-09, 1.5311385087196997e-09],
    ];
}
