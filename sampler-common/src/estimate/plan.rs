//! Forecasts for a sampling interval: samples, coverage and error, before anything is sampled.
//!
//! Plainly: with a mean interval of R bytes, every byte is hit with probability p = 1/R. An
//! allocation is sampled when one of its bytes is hit. So the number of bytes and the size of
//! allocations determine the expected samples, the chance of any sample, and the error of the
//! weighted estimate.
//!
//! # Formulas
//!
//! N bytes are n = ⌊N/S⌋ allocations of S bytes, and one of the rest r = N − nS. With q = 1 − p:
//!
//! ```text
//! π(S)              = 1 − q^S                            one allocation of S bytes is sampled
//! hit probability   = 1 − q^N                            at least one sample, however N is cut
//! expected samples  = n·π(S) + π(r)
//! variance          = n·S²·(1−π(S))/π(S) + r²·(1−π(r))/π(r)   ≤ N·q/p
//! relative error    = E|T − N| / N                       T the weighted estimate
//! if seen           = (relative error − q^N) / (1 − q^N)
//! ```
//!
//! Source of π, the variance and its bound (which one-byte allocations reach): "Randomized
//! Allocation Sampling", design document of the .NET runtime. jemalloc's "profiling internals" has
//! the same terms. Source of the rest: "heapprofd: Sampling for Memory Profiles". It shows that the
//! hit probability depends on N alone, and derives the mean absolute error, also given that there
//! is a sample. Without a sample T is 0 and off by N, hence the last line.
//!
//! T = K·S/π(S) plus r/π(r) if the rest is sampled, K binomial. With m = ⌊c⌋ + 1 and
//! X = T − N = w·(K − c)
//!
//! ```text
//! E|K − c| = c − nπ + 2·[(nπ − c)·P(K ≥ m) + m·(1−π)·P(K = m)]
//! ```
//!
//! from Σ_{k≥m} k·P(K=k) = nπ·P(K ≥ m) + m(1−π)·P(K = m); for c = nπ it is de Moivre's
//! 2m(1−π)·P(K = m). With S = 1 and R large it is heapprofd's: the number of its sample points is
//! Poisson, times R.

use super::binomial::Binomial;
use super::domain::{DomainError, MAX_BYTES, interval};

/// Number of allocations from which the mean absolute error omits the rest, which is less than one
/// more allocation. The rest changes the error by less than 10⁻⁶ of it, and P(K ≥ m) would take
/// long.
const MAX_SUMMED_ALLOCATIONS: u64 = 1 << 20;

/// Bytes that are allocated in blocks of one size and sampled at one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Mean bytes between samples, R.
    interval: f64,
    /// N.
    bytes: u64,
    /// S.
    size: u64,
}

impl Plan {
    /// `bytes` in allocations of `size` bytes (the last one may be smaller), sampled once per
    /// `interval_bytes` on average.
    ///
    /// A `size` of 1 is the worst case: the smaller the allocations, the larger the error. Below a
    /// tenth of the interval the error hardly grows.
    ///
    /// # Errors
    ///
    /// An interval outside 1 … 2^32, `bytes` outside 1 … 2^63, `size` outside 1 … `bytes`.
    pub fn new(interval_bytes: u64, bytes: u64, size: u64) -> Result<Plan, DomainError> {
        let interval = interval(interval_bytes)?;
        if !(1..=MAX_BYTES).contains(&bytes) {
            return Err(DomainError::Bytes(bytes));
        }
        if !(1..=bytes).contains(&size) {
            return Err(DomainError::Size { size, bytes });
        }
        Ok(Plan { interval, bytes, size })
    }

    /// Expected number of samples.
    pub fn expected_samples(&self) -> f64 {
        let (count, size, rest) = self.pieces();
        count * self.sampled(size) + self.sampled(rest)
    }

    /// Probability of at least one sample of all the bytes, in (0, 1].
    pub fn hit_probability(&self) -> f64 {
        self.sampled(self.bytes as f64)
    }

    /// Probability that one allocation of the size is sampled, in (0, 1].
    pub fn allocation_hit_probability(&self) -> f64 {
        self.sampled(self.size as f64)
    }

    /// Mean absolute error of the estimated bytes, as a share of the true bytes.
    pub fn relative_error(&self) -> f64 {
        let (count, size, rest) = self.pieces();
        let (hit, total) = (self.sampled(size), self.bytes as f64);
        if hit >= 1.0 && rest == 0.0 {
            return 0.0;
        }
        let of = Binomial { trials: count, hit, miss: self.missed(size) };
        if rest == 0.0 || count >= MAX_SUMMED_ALLOCATIONS as f64 {
            return deviation(&of, count * hit) / (count * hit);
        }
        let (weight, hit_rest) = (size / hit, self.sampled(rest));
        let without = deviation(&of, total / weight);
        let with = deviation(&of, (total - rest / hit_rest) / weight);
        ((1.0 - hit_rest) * without + hit_rest * with) * weight / total
    }

    /// The relative error, given that there is at least one sample: the expected error of what a
    /// profile shows.
    pub fn relative_error_if_seen(&self) -> f64 {
        let unseen = self.missed(self.bytes as f64);
        ((self.relative_error() - unseen) / self.hit_probability()).max(0.0)
    }

    /// Variance of the estimated bytes, in bytes².
    pub fn variance(&self) -> f64 {
        let (count, size, rest) = self.pieces();
        let of = |size: f64| match size {
            0.0 => 0.0,
            _ => size * (size * self.missed(size) / self.sampled(size)),
        };
        count * of(size) + of(rest)
    }

    /// N·q/p: the bound of the variance for any sizes.
    pub fn variance_bound(&self) -> f64 {
        self.bytes as f64 * (self.interval - 1.0)
    }

    /// Standard deviation of the estimated bytes, as a share of the true bytes.
    pub fn relative_deviation(&self) -> f64 {
        self.variance().sqrt() / self.bytes as f64
    }

    /// n, S, r.
    fn pieces(&self) -> (f64, f64, f64) {
        let (count, rest) = (self.bytes / self.size, self.bytes % self.size);
        (count as f64, self.size as f64, rest as f64)
    }

    /// 1 − q^size.
    fn sampled(&self, size: f64) -> f64 {
        hit_probability(size, self.interval)
    }

    /// q^size.
    fn missed(&self, size: f64) -> f64 {
        (size * (-1.0 / self.interval).ln_1p()).exp()
    }
}

/// 1 − q^size; 0 for no bytes, whatever the interval.
fn hit_probability(size: f64, interval: f64) -> f64 {
    match size {
        0.0 => 0.0,
        1.0 => 1.0 / interval, // without intermediate rounding
        _ => -(size * (-1.0 / interval).ln_1p()).exp_m1(),
    }
}

/// E|K − c|.
fn deviation(of: &Binomial, c: f64) -> f64 {
    let mean = of.trials * of.hit;
    if c <= 0.0 {
        return mean - c;
    }
    if c >= of.trials && c != mean {
        return c - mean;
    }
    // Nearly certain hits: the mean rounds to n.
    let m = (c.floor() + 1.0).min(of.trials);
    let central = 2.0 * m * of.miss * of.exactly(m);
    if c == mean {
        return central;
    }
    (c - mean + 2.0 * (mean - c) * of.at_least(m) + central).max(0.0)
}

/// The smallest number of bytes that is seen with `probability` or more: ln(1 − P)/ln q, rounded
/// up. Coverage only grows with the bytes.
///
/// # Errors
///
/// An interval outside 1 … 2^32; a probability outside (0, 1).
pub fn bytes_seen(interval_bytes: u64, probability: f64) -> Result<u64, DomainError> {
    let interval = interval(interval_bytes)?;
    // Written so that NaN fails too.
    if !(probability > 0.0 && probability < 1.0) {
        return Err(DomainError::Probability(probability));
    }
    let bytes = (-probability).ln_1p() / (-1.0 / interval).ln_1p();
    Ok((bytes.ceil() as u64).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_equals_the_summed_deviation() {
        for (trials, hit) in [(1.0, 0.4), (6.0, 0.5), (30.0, 0.07), (9.0, 0.999)] {
            let of = Binomial { trials, hit, miss: 1.0 - hit };
            for c in [-1.0, 0.0, 0.3, 1.0, trials * hit, 2.9, 4.0, trials, trials + 3.0] {
                let sum: f64 = (0..=trials as u32)
                    .map(|hits| of.exactly(f64::from(hits)) * (f64::from(hits) - c).abs())
                    .sum();
                let got = deviation(&of, c);
                assert!((got - sum).abs() < 1e-12 * (1.0 + c.abs()), "{of:?} {c}: {got} {sum}");
            }
        }
    }
}
