//! Sums over samples, from which every estimate and its interval are computed.
//!
//! Plainly: an allocation that is sampled with probability π stands for 1/π allocations like it. So
//! a sample of quantity x (its bytes, or 1 for the object) adds x/π to the estimate. The sum over
//! the samples is unbiased for any π, as long as each π is the probability of this very sample:
//! E[Σ_sampled x/π] = Σ_all π·x/π = Σ_all x. Unbias each sample, then sum; the other order is
//! biased as soon as sizes differ.
//!
//! The variance is Σ_all x²(1−π)/π. Each term is estimated by dividing it by π where the sample
//! exists: Σ_sampled x²(1−π)/π² = Σw²(1−π) with w = x/π. Allocations are sampled independently of
//! each other ([`crate::sampling::countdown`]), so there are no covariance terms.
//!
//! Source: D. G. Horvitz and D. J. Thompson, "A generalization of sampling without replacement from
//! a finite universe", JASA 47 (1952), equations 5 and 9 with independent trials (Poisson
//! sampling). The weight s/(1−e^(−s/R)) and the bias of the other order: "jemalloc profiling
//! internals" (PROFILING_INTERNALS.md in its doc_internal).

use super::trials::Trials;

/// Moments of one quantity (bytes or objects) over a set of samples. Moments of disjoint sets add.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    /// n, the number of samples.
    pub samples: u64,
    /// Σw, w = x/π with x the sample's own quantity (its bytes, or 1 object).
    pub sum: f64,
    /// Σw²(1−π), the Horvitz–Thompson estimate of the variance of Σw.
    pub variance: f64,
    /// The largest w(1−π) of the samples.
    pub largest: f64,
    /// π of the sample with the largest w(1−π); 1 without samples.
    pub largest_inclusion: f64,
    /// Σx over the samples themselves, which certainly exist.
    pub own: f64,
}

impl Default for Moments {
    /// The moments of no samples.
    fn default() -> Moments {
        Moments {
            samples: 0,
            sum: 0.0,
            variance: 0.0,
            largest: 0.0,
            largest_inclusion: 1.0,
            own: 0.0,
        }
    }
}

impl Moments {
    /// Adds one sample of quantity `own` that had inclusion probability `inclusion` in (0, 1].
    ///
    /// A sample outside that domain stands for itself only (no sample can come from a probability
    /// of 0).
    pub fn add_sample(&mut self, own: f64, inclusion: f64) {
        self.add_samples(1, own, inclusion);
    }

    /// Adds `count` equal samples, each of quantity `own`.
    pub fn add_samples(&mut self, count: u64, own: f64, inclusion: f64) {
        if count == 0 {
            return;
        }
        // Rates come from the kernel; an impossible rate must not make the sums infinite.
        let inclusion = if inclusion > 0.0 && inclusion < 1.0 { inclusion } else { 1.0 };
        let weight = own / inclusion;
        let excess = weight * (1.0 - inclusion);
        let number = count as f64;
        self.add(&Moments {
            samples: count,
            sum: number * weight,
            variance: number * weight * excess,
            largest: excess,
            largest_inclusion: inclusion,
            own: number * own,
        });
    }

    /// Multiplies the sums by `factor`: from a part to the whole.
    fn extend(&mut self, factor: f64) {
        self.sum *= factor;
        self.variance *= factor * factor;
        self.largest *= factor;
    }

    /// The moments of the samples that are not in `part`.
    #[must_use]
    pub fn less(&self, part: &Moments) -> Moments {
        let samples = self.samples.saturating_sub(part.samples);
        if samples == 0 {
            return Moments::default();
        }
        let own = (self.own - part.own).max(0.0);
        // Points of a stride have no variance to subtract.
        let variance = match self.variance.is_finite() {
            true => (self.variance - part.variance).max(0.0),
            false => self.variance,
        };
        // The largest sample may belong to either set: the larger value is on the safe side.
        Moments { samples, sum: (self.sum - part.sum).max(own), variance, own, ..*self }
    }

    /// Adds the moments of a disjoint set.
    pub fn add(&mut self, other: &Moments) {
        self.samples += other.samples;
        self.sum += other.sum;
        self.variance += other.variance;
        self.own += other.own;
        // Among equal values the smaller π wins: the order in which rows are added must not matter.
        let larger = other.largest > self.largest;
        let rarer =
            other.largest == self.largest && other.largest_inclusion < self.largest_inclusion;
        if other.largest > 0.0 && (larger || rarer) {
            self.largest = other.largest;
            self.largest_inclusion = other.largest_inclusion;
        }
    }
}

/// The four quantities of a row, and their failed trials. The module [`super::sample`] adds
/// samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RowMoments {
    /// Bytes allocated.
    pub alloc_space: Moments,
    /// Objects allocated.
    pub alloc_objects: Moments,
    /// Bytes held.
    pub inuse_space: Moments,
    /// Objects held.
    pub inuse_objects: Moments,
    /// Failed trials of what was allocated.
    pub alloc_trials: Trials,
    /// Failed trials of what is held.
    pub inuse_trials: Trials,
    /// The rarest rate of the sampled allocations ([`super::epoch`]): most objects that go unseen
    /// per unit of hazard; 0 if rates are not distinguished.
    pub alloc_max_unseen: f64,
    /// The rarest rate of the held samples, each with its probability of being kept.
    pub inuse_max_unseen: f64,
}

impl RowMoments {
    /// The row with its allocations multiplied by `factor`: from a part to the whole.
    #[must_use]
    pub fn extended(mut self, factor: f64) -> RowMoments {
        self.alloc_space.extend(factor);
        self.alloc_objects.extend(factor);
        self.alloc_trials.scale(factor);
        self
    }

    /// Adds the moments of a disjoint row.
    pub fn add(&mut self, other: &RowMoments) {
        self.alloc_space.add(&other.alloc_space);
        self.alloc_objects.add(&other.alloc_objects);
        self.inuse_space.add(&other.inuse_space);
        self.inuse_objects.add(&other.inuse_objects);
        self.alloc_trials.add(&other.alloc_trials);
        self.inuse_trials.add(&other.inuse_trials);
        self.alloc_max_unseen = self.alloc_max_unseen.max(other.alloc_max_unseen);
        self.inuse_max_unseen = self.inuse_max_unseen.max(other.inuse_max_unseen);
    }

    /// Forgets the rates of the samples.
    pub(super) fn forget_rates(&mut self) {
        (self.alloc_max_unseen, self.inuse_max_unseen) = (0.0, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Sample;
    use crate::sampling::Rate;

    #[test]
    fn a_sample_is_weighted_by_its_inclusion() {
        let mut moments = Moments::default();
        moments.add_sample(100.0, 0.25);
        moments.add_sample(10.0, 1.0);
        assert_eq!(
            moments,
            Moments {
                samples: 2,
                sum: 410.0,
                variance: 400.0 * 400.0 * 0.75,
                largest: 300.0,
                largest_inclusion: 0.25,
                own: 110.0,
            }
        );
    }

    #[test]
    fn equal_samples_are_added_at_once_as_one_by_one() {
        let (mut one_by_one, mut at_once) = (Moments::default(), Moments::default());
        for _ in 0..8 {
            one_by_one.add_sample(3.0, 0.5);
        }
        at_once.add_samples(8, 3.0, 0.5);
        at_once.add_samples(0, 1e9, 1e-9);
        assert_eq!(one_by_one, at_once);
    }

    #[test]
    fn certain_samples_leave_no_variance() {
        let mut row = RowMoments::default();
        row.add_allocation(&Sample::geometric(0, Rate::ALWAYS));
        row.add_allocation(&Sample::geometric(7, Rate::ALWAYS));
        let certain = |own| Moments { samples: 2, sum: own, own, ..Moments::default() };
        assert_eq!((row.alloc_space, row.alloc_objects), (certain(7.0), certain(2.0)));
        assert_eq!(row.inuse_space, Moments::default());
    }

    #[test]
    fn a_sample_with_an_impossible_rate_has_weight_1() {
        let mut row = RowMoments::default();
        row.add_live(&Sample::geometric(64, Rate::NEVER));
        assert_eq!((row.inuse_space.sum, row.inuse_space.variance), (64.0, 0.0));
        let mut moments = Moments::default();
        moments.add_sample(1.0, f64::NAN);
        assert_eq!(moments.sum, 1.0);
    }
}
