//! Rates: the kernel's charge matches the estimator's inclusion probability.

mod common;

use common::SplitMix;
use proptest::prelude::*;
use sampler_common::sampling::rate::{HAZARD_CERTAIN, HAZARD_ONE, MAX_INTERVAL_BYTES};
use sampler_common::sampling::{Random, Rate, draw};

/// Intervals spread evenly in their logarithm.
fn interval() -> impl Strategy<Value = u64> {
    (0u32..=32, any::<u64>())
        .prop_map(|(bits, low)| (1u64 << bits) | (low & ((1u64 << bits) - 1)))
        .prop_filter("in the domain", |r| *r <= MAX_INTERVAL_BYTES)
}

/// Sizes spread evenly in their logarithm.
fn size() -> impl Strategy<Value = u64> {
    (0u32..64, any::<u64>()).prop_map(|(shift, size)| size >> shift)
}

#[test]
fn the_domain_is_1_byte_to_4_gib() {
    assert_eq!(Rate::from_interval(0), None);
    assert_eq!(Rate::from_interval(MAX_INTERVAL_BYTES + 1), None);
    assert_eq!(Rate::from_interval(1), Some(Rate::ALWAYS));
    assert_eq!(Rate::from_interval(MAX_INTERVAL_BYTES), Some(Rate::LOWEST));
    assert_eq!(Rate::from_interval(2).map(Rate::raw), Some(0xB172_17F7_D1CF)); // ln 2
    assert_eq!(Rate::from_raw(u64::MAX), Rate::ALWAYS);
}

#[test]
fn interval_1_always_samples_and_never_does_not() {
    for size in [0, 1, 100, u64::MAX] {
        assert_eq!(Rate::ALWAYS.charge(size), HAZARD_CERTAIN);
        assert_eq!(Rate::ALWAYS.inclusion(size), 1.0);
        assert_eq!(Rate::NEVER.charge(size), 0);
        assert_eq!(Rate::NEVER.inclusion(size), 0.0);
    }
    assert_eq!(Rate::ALWAYS.interval_bytes(), 1.0);
    assert_eq!(Rate::NEVER.interval_bytes(), f64::INFINITY);
}

#[test]
fn halving_ends_at_the_largest_interval() {
    let (mut rate, mut steps) = (Rate::ALWAYS, 0);
    while rate != Rate::LOWEST {
        let next = rate.halved();
        assert!(next < rate && next.raw() <= rate.raw() / 2 || next == Rate::LOWEST);
        (rate, steps) = (next, steps + 1);
    }
    assert!((32..=34).contains(&steps), "{steps} steps");
    assert_eq!(Rate::LOWEST.halved(), Rate::LOWEST);
    assert_eq!(Rate::NEVER.halved(), Rate::NEVER);
    assert!((Rate::ALWAYS.halved().interval_bytes() - 2.0).abs() < 1e-12, "always to every second");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_charge_is_the_saturated_product(raw in size(), size in size()) {
        let rate = Rate::from_raw(raw);
        let exact = u128::from(rate.raw()) * u128::from(size.max(1));
        prop_assert_eq!(u128::from(rate.charge(size)), exact.min(u128::from(HAZARD_CERTAIN)));
    }

    #[test]
    fn the_charge_grows_with_size_and_rate(interval in interval(), a in size(), b in size()) {
        let rate = Rate::from_interval(interval).unwrap();
        let (small, large) = (a.min(b), a.max(b));
        prop_assert!(rate.charge(small) <= rate.charge(large));
        prop_assert!(rate.inclusion(small) <= rate.inclusion(large));
        prop_assert!(rate.halved().charge(large) <= rate.charge(large));
    }

    #[test]
    fn inclusion_is_one_less_the_probability_of_all_misses(interval in interval(), size in size()) {
        let rate = Rate::from_interval(interval).unwrap();
        // 1 − (1 − 1/R)^s by logarithms, from R itself.
        let bytes = size.max(1) as f64;
        let expected = -(bytes * (-1.0 / interval as f64).ln_1p()).exp_m1();
        // λ is rounded to 2⁻⁴⁸: a relative error of 2⁻¹⁷ at 4 GiB.
        let rounding = 0.5 / rate.raw() as f64 + 1e-14;
        prop_assert!((rate.inclusion(size) - expected).abs() <= expected * rounding);
        prop_assert!((rate.interval_bytes() / interval as f64 - 1.0).abs() <= rounding * 1.5 + 1e-14);
    }

    #[test]
    fn the_charge_decides_with_the_probability_of_the_inclusion(interval in interval(), size in size()) {
        // Share of all random numbers whose draw is at most the charge, found by bisection.
        let rate = Rate::from_interval(interval).unwrap();
        let charge = rate.charge(size);
        let (mut misses, mut hits) = (0u64, u64::MAX);
        prop_assert!(draw(hits) <= charge);
        if draw(misses) <= charge {
            prop_assert!(rate.inclusion(size) > 1.0 - 1e-15);
        } else {
            while hits - misses > 1 {
                let middle = misses + (hits - misses) / 2;
                if draw(middle) <= charge { hits = middle } else { misses = middle }
            }
            let share = (u64::MAX - hits) as f64 / 2f64.powi(64) + 2f64.powi(-64);
            // The difference is within 2⁻⁵ of a raw unit of hazard.
            let slack = 0.03 / charge as f64 + 1e-15;
            prop_assert!((share / rate.inclusion(size) - 1.0).abs() <= slack, "{} {}", share, rate.inclusion(size));
        }
    }

    #[test]
    fn draws_are_in_range(random: u64) {
        prop_assert!((1..HAZARD_CERTAIN).contains(&draw(random)));
        prop_assert!(draw(random | 1 << 63) <= (HAZARD_ONE as f64 * std::f64::consts::LN_2) as u64 + 1);
    }
}

#[test]
fn the_generator_agrees_with_its_reference() {
    // SplitMix's first output for seed 0, from its reference implementation.
    assert_eq!(SplitMix(0).next(), 0xE220_A839_7B1D_CDAF);
}
