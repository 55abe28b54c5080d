//! A sample as estimates use it: what the sample stands for, and how uncertain that is.
//!
//! # Poisson
//!
//! K ~ Poisson(m) sample points fall into a request of s bytes, m = s/R; each point stands for R
//! bytes. The estimate K·R has mean s and variance m·R². Each point is a Poisson event of weight R,
//! so Σ K·R² estimates the variance without bias. Source: heapprofd's design document "Sampling for
//! heap profiles".
//!
//! If a sample was afterwards kept with probability κ only (a thinned live set), K·R/κ is unbiased
//! and its variance is R²((m + m²)/κ − m²). Given that the sample was kept, K²/κ² estimates
//! (m + m²)/κ and K(K − 1)/κ estimates m², both without bias, so
//!
//! ```text
//! v = R²(K²/κ² − K(K − 1)/κ)
//! ```
//!
//! # Stride
//!
//! Nothing is random but the position of the program when counting began. One run gives no
//! variance, so the variance is infinite here. Sums of it stay infinite, and their interval has no
//! upper end.

use super::moments::{Moments, RowMoments};
use super::trials::Trials;
use crate::sampling::{Design, Rate, Strategy, class};

/// A sampled allocation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Requested bytes.
    pub size: u64,
    /// The design that the allocation was charged with.
    pub design: Design,
    /// Sample points in the allocation (poisson, stride); 1 for the other strategies.
    pub hits: u32,
    /// The sampled byte and the bytes behind it, size − offset, if the offset is known.
    pub tail: Option<u64>,
    /// Probability in (0, 1] that the sample was kept after it was taken (admission to a nearly
    /// full live set, thinning).
    pub kept: f64,
}

impl Sample {
    /// A sample with one point, kept with certainty.
    pub fn new(size: u64, design: Design) -> Sample {
        Sample { size, design, hits: 1, tail: None, kept: 1.0 }
    }

    /// A sample of a geometric countdown, kept with certainty.
    pub fn geometric(size: u64, rate: Rate) -> Sample {
        Sample::new(size, Design::new(Strategy::Geometric, rate))
    }

    /// Probability that the allocation was sampled and kept. `None` if there is no such probability
    /// (stride), or if more than one point counts (poisson).
    pub fn inclusion(&self) -> Option<f64> {
        let inclusion = self.design.inclusion(self.size)?;
        let counted = self.design.strategy() == Some(Strategy::Poisson) && inclusion < 1.0;
        if counted { None } else { Some(inclusion * self.kept) }
    }

    /// Most objects of the size class that go unseen per unit of hazard, at the rate and the
    /// keeping probability of this sample.
    pub(super) fn max_unseen(&self) -> f64 {
        let (objects, _) = self.design.unseen(class(self.size));
        objects / self.kept
    }

    /// Bytes that one sample point stands for, poisson and stride.
    fn point(&self) -> f64 {
        self.design.interval()
    }

    /// Bytes that the sample stands for.
    pub fn bytes(&self) -> f64 {
        self.moments(self.size as f64).sum
    }

    /// Moments of a quantity `own` of the allocation: its bytes, or 1, or its bytes times the
    /// seconds that it was held.
    pub fn moments(&self, own: f64) -> Moments {
        let mut moments = Moments::default();
        if let Some(inclusion) = self.inclusion() {
            moments.add_sample(own, inclusion);
            return moments;
        }
        let share = own / self.size.max(1) as f64;
        let (weight, hits, kept) = (self.point() * share, f64::from(self.hits.max(1)), self.kept);
        let variance = match self.design.strategy() {
            Some(Strategy::Poisson) => {
                weight * weight * (hits * hits / (kept * kept) - hits * (hits - 1.0) / kept)
            }
            _ => f64::INFINITY,
        };
        let sum = hits * weight / kept;
        moments.add(&Moments {
            samples: 1,
            sum,
            variance: if own > 0.0 { variance } else { 0.0 },
            largest: weight / kept,
            largest_inclusion: 0.0,
            own: own.min(sum),
        });
        moments
    }
}

impl RowMoments {
    /// Adds a sampled allocation. A request of 0 bytes was sampled as one byte; the row counts 0
    /// bytes and 1 object.
    pub fn add_allocation(&mut self, sample: &Sample) {
        self.alloc_space.add(&sample.moments(sample.size as f64));
        self.alloc_objects.add(&sample.moments(1.0));
        self.alloc_trials.add(&Trials::of(sample));
        self.alloc_max_unseen = self.alloc_max_unseen.max(sample.max_unseen());
    }

    /// Adds a sampled block that is held.
    pub fn add_live(&mut self, sample: &Sample) {
        self.inuse_space.add(&sample.moments(sample.size as f64));
        self.inuse_objects.add(&sample.moments(1.0));
        self.inuse_trials.add(&Trials::of(sample));
        self.inuse_max_unseen = self.inuse_max_unseen.max(sample.max_unseen());
    }

    /// Adds `count` sampled allocations that were lost on the way, of mean size `bytes`/`count`.
    ///
    /// `hits` is the number of points in all of them, `tails` the bytes from their hits to their
    /// ends.
    pub fn add_lost(&mut self, design: Design, count: u64, bytes: u64, hits: u64, tails: u64) {
        if count == 0 {
            return;
        }
        let mean = bytes as f64 / count as f64;
        let one = Sample { hits: 1, tail: Some(0), ..Sample::new(mean.round() as u64, design) };
        match one.inclusion() {
            Some(inclusion) => {
                self.alloc_space.add_samples(count, mean, inclusion);
                self.alloc_objects.add_samples(count, 1.0, inclusion);
            }
            None => {
                for (to, own) in [(&mut self.alloc_space, mean), (&mut self.alloc_objects, 1.0)] {
                    let mut each = one.moments(own);
                    let points = hits as f64;
                    each.samples = count;
                    each.sum *= points;
                    each.variance *= points;
                    each.own = (own * count as f64).min(each.sum);
                    to.add(&each);
                }
            }
        }
        let mut trials = Trials::of(&one);
        trials.scale(count as f64);
        trials.tail += tails as f64;
        self.alloc_trials.add(&trials);
        self.alloc_max_unseen = self.alloc_max_unseen.max(one.max_unseen());
    }
}
