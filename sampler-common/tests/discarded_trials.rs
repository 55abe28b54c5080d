//! Trials may be discarded, unless their results decide which ones.
//!
//! The .NET document: trials are independent, so a batch of their results may be cut short and
//! drawn again, if the results are not inspected. Here the countdown is drawn again at random
//! times, after every request of some size, and after every miss. What is left of the countdown has
//! the distribution of a fresh draw anyway. A countdown that is drawn again because the next
//! request would hit is the selective removal that the document warns of.

mod common;

use common::{KS_LIMIT, Local, SplitMix, deviations, kolmogorov_smirnov};
use sampler_common::sampling::{Cell, Random, Rate, Trial, offset, trial};

/// Whether to draw again before a request. The arguments are the rest of the countdown, the
/// previous request and its result, and a random source.
type Discard = fn(left: i64, last: u64, result: Trial, random: &mut SplitMix) -> bool;

const SIZES: [u64; 5] = [16, 100, 900, 3000, 9000];

/// The error in the sampled requests and the sampled bytes, if there is one.
fn judge(discard: Discard, seed: u64) -> Result<(), String> {
    const CALLS: u64 = 400_000;
    let rate = Rate::from_interval(3000).expect("in the domain");
    let (mut random, mut chance, countdown) =
        (SplitMix(seed), SplitMix(seed + 100), Local::default());
    let (mut hits, mut calls, mut pairs, mut offsets) = ([0; 5], [0; 5], 0, Vec::new());
    let (mut last, mut result, mut expected_pairs) = (0, Trial::Miss, 0.0);
    for _ in 0..CALLS {
        if discard(countdown.value(), last, result, &mut chance) {
            countdown.swap(0);
        }
        let index = chance.below(SIZES.len());
        let size = SIZES[index];
        let hit_before = result != Trial::Miss;
        result = trial(&countdown, rate.charge(size), &mut random);
        calls[index] += 1;
        let pi = rate.inclusion(size);
        expected_pairs += if hit_before { pi } else { 0.0 };
        if let Trial::Hit { rest } = result {
            hits[index] += 1;
            pairs += u64::from(hit_before);
            // Position of the hit as a uniform number: the geometric law, cut at the size.
            let at = offset(rest, rate.raw(), size) as f64 + random.uniform();
            let before = -(-at / 3000.0).exp_m1();
            if index == 4 {
                offsets.push(before / pi);
            }
        }
        last = size;
    }
    for (index, size) in SIZES.into_iter().enumerate() {
        let z = deviations(hits[index], calls[index], rate.inclusion(size));
        if z.abs() > 5.5 {
            return Err(format!("size {size}: {z:.1} standard deviations"));
        }
    }
    let z = (pairs as f64 - expected_pairs) / expected_pairs.sqrt();
    if z.abs() > 5.5 {
        return Err(format!("hits one after the other: {z:.1} standard deviations"));
    }
    let distance = kolmogorov_smirnov(offsets);
    if distance > KS_LIMIT { Err(format!("offsets: {distance:.2}")) } else { Ok(()) }
}

#[test]
fn discarding_trials_independently_causes_no_bias() {
    let never: Discard = |_, _, _, _| false;
    let at_random: Discard = |_, _, _, random| random.next() & 3 == 0;
    let after_large: Discard = |_, last, _, _| last >= 3000;
    // Past results carry no information about future ones.
    let after_misses: Discard = |_, last, result, _| result == Trial::Miss && last >= 900;
    for (seed, discard) in [never, at_random, after_large, after_misses].into_iter().enumerate() {
        judge(discard, seed as u64).unwrap_or_else(|wrong| panic!("rule {seed}: {wrong}"));
    }
}

#[test]
fn discarding_trials_by_their_distance_is_detected() {
    // Rules that depend on whether the sampled byte is near, or far.
    let near: Discard = |left, _, _, _| {
        left > 0 && left < Rate::from_interval(3000).map_or(0, |r| r.charge(100)) as i64
    };
    let far: Discard = |left, _, _, random| {
        left > Rate::from_interval(3000).map_or(0, |r| r.charge(9000)) as i64
            && random.next() & 1 == 0
    };
    for discard in [near, far] {
        assert!(judge(discard, 7).is_err());
    }
}
