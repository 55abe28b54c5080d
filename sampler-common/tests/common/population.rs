//! Populations of allocations whose truth is known, and samples drawn from them.
#![allow(dead_code, reason = "each test binary uses its own part")]

use sampler_common::estimate::RowMoments;
use sampler_common::sampling::Rate;

use crate::common::SplitMix;

/// The interval of FACTS and of the default: 512 KiB.
pub(crate) const INTERVAL: u64 = 512 << 10;

/// Allocations: sizes, and the number of each.
pub(crate) struct Population {
    /// Name in tables.
    pub(crate) name: &'static str,
    /// (size, count).
    pub(crate) groups: Vec<(u64, u64)>,
}

impl Population {
    /// Sizes in the proportions of `shares`, as many as give `expected` samples at [`INTERVAL`].
    pub(crate) fn new(name: &'static str, shares: &[(u64, f64)], expected: f64) -> Population {
        let rate = rate();
        let unit: f64 = shares.iter().map(|(size, share)| share * rate.inclusion(*size)).sum();
        // The counts are rounded so that remainders carry over to the next sizes.
        let (mut wanted, mut given) = (0.0, 0);
        let mut groups = Vec::new();
        for (size, share) in shares {
            wanted += share * expected / unit;
            let count = (wanted - given as f64).round() as u64;
            given += count;
            if count > 0 {
                groups.push((*size, count));
            }
        }
        Population { name, groups }
    }

    /// The six mixes on which the method was chosen.
    pub(crate) fn all(expected: f64) -> Vec<Population> {
        let mixed = [16u64, 256, 4 << 10, 64 << 10, 512 << 10, 4 << 20];
        let equal_bytes = mixed.map(|size| (size, 1.0 / size as f64));
        let mut normal = SplitMix(77);
        let log_normal: Vec<(u64, f64)> = (0..1000)
            .map(|_| {
                // Box and Muller's method; median 512 bytes, σ = 2.5: a factor of 10⁶ between 1 %
                // and 99 %.
                let radius = (-2.0 * normal.uniform().ln()).sqrt();
                let z = radius * (std::f64::consts::TAU * normal.uniform()).cos();
                ((512.0 * (2.5 * z).exp()).ceil() as u64, 1.0)
            })
            .collect();
        vec![
            Population::new("all 64 B", &[(64, 1.0)], expected),
            Population::new("all 16 KiB", &[(16 << 10, 1.0)], expected),
            Population::new("all 512 KiB", &[(512 << 10, 1.0)], expected),
            Population::new("all 2 MiB", &[(2 << 20, 1.0)], expected),
            Population::new("six sizes", &equal_bytes, expected),
            Population::new("log-normal", &log_normal, expected),
        ]
    }

    /// Whether all blocks have one size.
    pub(crate) fn uniform(&self) -> bool {
        self.groups.len() == 1
    }

    /// True bytes and objects.
    pub(crate) fn truth(&self) -> (f64, f64) {
        let bytes = self.groups.iter().map(|(size, count)| size * count).sum::<u64>();
        (bytes as f64, self.groups.iter().map(|(_, count)| count).sum::<u64>() as f64)
    }

    /// True variance of the weighted estimate of bytes: Σ x²(1−π)/π over all allocations.
    pub(crate) fn variance(&self) -> f64 {
        let term = |(size, count): &(u64, u64)| {
            let inclusion = rate().inclusion(*size);
            *count as f64 * (*size as f64).powi(2) * (1.0 - inclusion) / inclusion
        };
        self.groups.iter().map(term).sum()
    }

    /// One run: the number of sampled blocks of each size. Each allocation is sampled
    /// independently. Gaps between sampled ones are drawn, so the cost is that of the samples.
    pub(crate) fn sample(&self, random: &mut SplitMix, mut each: impl FnMut(u64, u64)) {
        for (size, count) in &self.groups {
            let miss = (-rate().inclusion(*size)).ln_1p();
            let (mut at, mut hits) = (0.0, 0);
            loop {
                at += (random.uniform().ln() / miss).floor() + 1.0;
                if at > *count as f64 {
                    break;
                }
                hits += 1;
            }
            if hits > 0 {
                each(*size, hits);
            }
        }
    }

    /// The moments of one run.
    pub(crate) fn moments(&self, random: &mut SplitMix) -> RowMoments {
        let mut row = RowMoments::default();
        self.sample(random, |size, hits| {
            let inclusion = rate().inclusion(size);
            row.alloc_space.add_samples(hits, size as f64, inclusion);
            row.alloc_objects.add_samples(hits, 1.0, inclusion);
        });
        row
    }
}

/// The rate of [`INTERVAL`].
pub(crate) fn rate() -> Rate {
    Rate::from_interval(INTERVAL).expect("512 KiB is in the domain")
}
