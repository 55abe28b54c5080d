//! The countdown of one thread: every size has the probability of its rate.

mod common;

use std::cell::Cell as Slot;

use common::{KS_LIMIT, Local, SplitMix, deviations, kolmogorov_smirnov};
use proptest::prelude::*;
use sampler_common::sampling::rate::{HAZARD_CERTAIN, HAZARD_ONE};
use sampler_common::sampling::{Rate, Trial, draw, offset, trial};

#[test]
fn a_charge_of_0_leaves_the_countdown() {
    let cell = Local(Slot::new(-5));
    assert_eq!(trial(&cell, Rate::NEVER.charge(1 << 40), &mut SplitMix(1)), Trial::Miss);
    assert_eq!(cell.0.get(), -5);
}

#[test]
fn interval_1_samples_everything() {
    let (cell, mut random) = (Local::default(), SplitMix(2));
    for size in 0..100_000 {
        let result = trial(&cell, Rate::ALWAYS.charge(size), &mut random);
        assert!(matches!(result, Trial::Hit { .. }), "size {size}");
        assert!(cell.0.get() > -2 * HAZARD_CERTAIN as i64, "the cell does not drift away");
    }
}

/// One stream of mixed sizes whose rate changes all the time, with one cell that starts at 0.
#[test]
fn the_share_of_hits_is_the_inclusion_of_the_rate() {
    let (cell, mut random) = (Local::default(), SplitMix(3));
    let sizes = [0u64, 1, 7, 64, 100, 1 << 12, 1 << 16, 3 << 20];
    let rates = [2u64, 64, 4096, 512 << 10, 1 << 32].map(|r| Rate::from_interval(r).unwrap());
    let mut hits = [[(0u64, 0u64); 8]; 5];
    for _ in 0..4_000_000 {
        let (s, r) = (random.below(8), random.below(5));
        hits[r][s].1 += 1;
        if let Trial::Hit { .. } = trial(&cell, rates[r].charge(sizes[s]), &mut random) {
            hits[r][s].0 += 1;
        }
    }
    for (rate, row) in rates.iter().zip(hits) {
        for (size, (hits, trials)) in sizes.iter().zip(row) {
            let p = rate.inclusion(*size);
            let (n, few) = (trials as f64, trials as f64 * p.min(1.0 - p) < 10.0);
            if few {
                // Poisson with mean below 10: more than 40 has a chance below 10⁻¹².
                assert!((hits as f64 - n * p).abs() < 30.0, "{rate:?} size {size}: {hits} hits");
            } else {
                let z = deviations(hits, trials, p);
                assert!(z.abs() < 6.3, "{rate:?} size {size}: {z} standard deviations");
            }
        }
    }
}

/// Bytes between sampled bytes of a stream of mixed sizes are geometric with p = 1/R.
#[test]
fn gaps_between_sampled_bytes_are_geometric() {
    for (interval, seed) in [(3u64, 1), (64, 2), (1000, 3), (4096, 4)] {
        let rate = Rate::from_interval(interval).unwrap();
        let (cell, mut random) = (Local::default(), SplitMix(seed));
        let (mut bytes, mut last, mut gaps) = (0u64, 0u64, Vec::new());
        while gaps.len() < 100_000 {
            // The size is small against R. Otherwise a second sampled byte of one request would
            // matter.
            let size = 1 + random.below(4) as u64 % interval;
            if let Trial::Hit { rest } = trial(&cell, rate.charge(size), &mut random) {
                let at = bytes + offset(rest, rate.raw(), size);
                // The value is spread over the step of the discrete distribution function, and so
                // is uniform.
                let below =
                    |gap: u64| -(-(gap as f64) * rate.raw() as f64 / HAZARD_ONE as f64).exp_m1();
                let gap = at + 1 - last;
                gaps.push(below(gap - 1) + random.uniform() * (below(gap) - below(gap - 1)));
                // The rest of this request is skipped. The process is memoryless, so the next gap
                // starts after it.
                last = bytes + size;
            }
            bytes += size;
        }
        let distance = kolmogorov_smirnov(gaps);
        assert!(distance < KS_LIMIT, "interval {interval}: {distance}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_offset_lies_in_the_request(random: u64, raw in 1..=HAZARD_CERTAIN, size: u64) {
        let rate = Rate::from_raw(raw);
        let rest = draw(random).min(rate.charge(size));
        let at = offset(rest, raw, size);
        prop_assert!(at < size.max(1));
        // The byte's own share of the hazard contains the rest.
        let before = u128::from(at) * u128::from(raw);
        prop_assert!(before < u128::from(rest));
        prop_assert!(u128::from(rest) <= before + u128::from(raw));
    }

    #[test]
    fn the_offset_of_garbage_lies_in_the_request(rest: u64, raw: u64, size: u64) {
        prop_assert!(offset(rest, raw, size) < size.max(1));
    }
}
