//! Sums over samples from which every estimate and its interval are made.

use crate::sampling::Rate;

/// Moments of one quantity (bytes or objects) over a set of samples. Moments of disjoint sets add.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    /// n, the number of samples.
    pub samples: u64,
    /// Σw, w = x/π with x the sample's own quantity (its bytes, or 1 object).
    pub sum: f64,
    /// Σw²(1−π), the Horvitz–Thompson estimate of the variance of Σw.
    pub variance: f64,
    /// The largest w(1−π) of the set.
    pub largest: f64,
    /// π of the sample with the largest w(1−π) (1 when there is none).
    pub largest_inclusion: f64,
    /// Σx over the samples themselves: they certainly exist.
    pub own: f64,
}

impl Moments {
    /// Adds one sample of quantity `own` that had inclusion probability `inclusion` in (0, 1].
    pub fn add_sample(&mut self, own: f64, inclusion: f64) {
        let _ = (own, inclusion);
        todo!()
    }

    /// Adds `count` equal samples, each of quantity `own`.
    pub fn add_samples(&mut self, count: u64, own: f64, inclusion: f64) {
        let _ = (count, own, inclusion);
        todo!()
    }

    /// Adds the moments of a disjoint set.
    pub fn add(&mut self, other: &Moments) {
        let _ = other;
        todo!()
    }
}

/// The four quantities of a row.
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
}

impl RowMoments {
    /// Adds a sampled allocation of `size` bytes that was charged with `rate`.
    pub fn add_allocation(&mut self, size: u64, rate: Rate) {
        let _ = (size, rate);
        todo!()
    }

    /// Adds a sampled block of `size` bytes that is held and was (or, after thinning, counts as) charged with `rate`.
    pub fn add_live(&mut self, size: u64, rate: Rate) {
        let _ = (size, rate);
        todo!()
    }

    /// Adds the moments of a disjoint row.
    pub fn add(&mut self, other: &RowMoments) {
        let _ = other;
        todo!()
    }
}
