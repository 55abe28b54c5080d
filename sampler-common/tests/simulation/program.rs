//! Programs: the sizes that each stack allocates, and the designs by which they are sampled.

use sampler_common::limits::CLASSES;
use sampler_common::sampling::{ClassUse, Design, Strategy, adapt, class};
use statrs::function::erf::erf_inv;

/// The interval of every simulation: the default, 512 KiB.
pub(crate) const INTERVAL: u64 = 512 << 10;

/// Sizes with their proportions.
#[derive(Clone)]
pub(crate) struct Mix {
    /// Name in tables.
    pub(crate) name: &'static str,
    shares: Vec<(u64, f64)>,
}

impl Mix {
    /// All small, all large, heavy-tailed and mixed.
    pub(crate) fn all() -> Vec<Mix> {
        // A log-normal distribution of median 512 B and σ = 2.5, by 64 of its quantiles: mostly 2.5
        // B … 100 KiB, up to 1.2 MiB.
        let quantile = |step: i32| {
            let z = std::f64::consts::SQRT_2 * erf_inv((2.0 * f64::from(step) + 1.0) / 64.0 - 1.0);
            ((512.0 * (2.5 * z).exp()).ceil() as u64, 1.0)
        };
        let sizes = [16u64, 256, 4 << 10, 64 << 10, 512 << 10, 4 << 20];
        let equal_bytes = sizes.iter().map(|size| (*size, 1.0 / *size as f64)).collect();
        vec![
            Mix { name: "small", shares: vec![(48, 1.0), (64, 1.0), (100, 1.0)] },
            Mix { name: "large", shares: vec![(512 << 10, 2.0), (2 << 20, 1.0)] },
            Mix { name: "heavy", shares: (0..64).map(quantile).collect() },
            Mix { name: "mixed", shares: equal_bytes },
        ]
    }

    /// Mean size.
    fn mean(&self) -> f64 {
        let (bytes, objects) =
            self.shares.iter().fold((0.0, 0.0), |(bytes, objects), (size, share)| {
                (bytes + *size as f64 * share, objects + share)
            });
        bytes / objects
    }

    /// The designs of a strategy for the mix, by size class.
    pub(crate) fn designs(&self, strategy: Strategy) -> [Design; CLASSES] {
        if strategy == Strategy::Adaptive {
            // The uses assume that larger blocks live longer.
            let mut uses = [ClassUse::default(); CLASSES];
            for (size, share) in &self.shares {
                let of = &mut uses[class(*size)];
                of.objects += share;
                of.bytes += share * *size as f64;
                of.live_objects += share * (class(*size) as f64 / 24.0).powi(2).min(1.0);
            }
            return adapt(&uses, INTERVAL as f64);
        }
        let design = Design::from_interval(strategy, INTERVAL, self.mean());
        [design.expect("in the domain"); CLASSES]
    }

    /// Sizes with counts that have `expected` samples in all: (size, count).
    pub(crate) fn counts(&self, designs: &[Design; CLASSES], expected: f64) -> Vec<(u64, u64)> {
        let chance = |size: u64| designs[class(size)].inclusion(size).expect("not a stride");
        let unit: f64 = self.shares.iter().map(|(size, share)| share * chance(*size)).sum();
        // The counts are rounded so that remainders carry over to the next sizes.
        let (mut wanted, mut given, mut counts) = (0.0, 0, Vec::new());
        for (size, share) in &self.shares {
            wanted += share * expected / unit;
            let count = (wanted - given as f64).round().max(0.0) as u64;
            given += count;
            if count > 0 {
                counts.push((*size, count));
            }
        }
        counts
    }
}
