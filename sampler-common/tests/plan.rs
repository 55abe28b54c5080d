//! Plans against the statements of heapprofd's document, against direct sums and against laws.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use proptest::prelude::*;
use sampler_common::estimate::plan::bytes_seen;
use sampler_common::estimate::{DomainError, Plan};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn plan(interval: u64, bytes: u64, size: u64) -> Plan {
    Plan::new(interval, bytes, size).unwrap()
}

#[track_caller]
fn close(got: f64, expected: f64, within: f64) {
    assert!((got - expected).abs() <= within * expected.abs(), "{got} instead of {expected}");
}

#[test]
fn coverage_is_as_heapprofd_states() {
    // From 32 KiB to 512 KiB the chance is still 95 % for anything above 1.5 MiB.
    for (interval, bytes, at_least) in
        [(32 * KIB, 1536 * KIB, 0.95), (512 * KIB, 1536 * KIB, 0.95), (2048 * KIB, 3584 * KIB, 0.8)]
    {
        for size in [1, 48, 4096, bytes] {
            for more in [0, 1, bytes] {
                let seen = plan(interval, bytes + more, size).hit_probability();
                assert!(seen >= at_least, "{interval} {bytes}: {seen}");
            }
        }
        // "Anything above" begins slightly lower.
        let from = bytes_seen(interval, at_least).unwrap();
        assert!(from <= bytes, "{interval}: {from}");
        assert!(plan(interval, from, 1).hit_probability() >= at_least);
        assert!(plan(interval, from - 1, 1).hit_probability() < at_least);
    }
    close(plan(512 * KIB, 1536 * KIB, 1).hit_probability(), 1.0 - (-3f64).exp(), 1e-6);
    close(plan(2 * MIB, 3584 * KIB, 1).hit_probability(), 1.0 - (-1.75f64).exp(), 1e-6);
    // An allocation as large as the interval. Older versions sampled it for certain.
    close(plan(MIB, MIB, MIB).hit_probability(), 0.632, 1e-3);
    // One allocation of 2 MiB has the chance that two of 1 MiB have together.
    let (one, two) = (plan(MIB, 2 * MIB, 2 * MIB), plan(MIB, 2 * MIB, MIB));
    assert_eq!(one.hit_probability(), two.hit_probability());
}

#[test]
fn errors_are_those_of_poisson_sample_points() {
    // E|K − μ| = 2·e^(−μ)·μ^(⌊μ⌋+1)/⌊μ⌋! for K Poisson of mean μ.
    for (bytes, mean) in [(MIB / 4, 0.25f64), (MIB, 1.0), (5 * MIB / 2, 2.5), (8 * MIB, 8.0)] {
        let factorial: f64 = (1..=mean as u32).map(f64::from).product();
        let error = 2.0 * (-mean).exp() * mean.powi(mean as i32) / factorial;
        let of = plan(MIB, bytes, 1);
        close(of.relative_error(), error, 1e-5);
        let unseen = (-mean).exp();
        close(of.relative_error_if_seen(), (error - unseen) / (1.0 - unseen), 1e-5);
    }
}

/// Sums over the number of samples, for whole allocations and a rest.
fn summed(interval: f64, bytes: u64, size: u64) -> [f64; 4] {
    let (count, rest) = (bytes / size, bytes % size);
    let hit = |size: u64| 1.0 - (1.0 - 1.0 / interval).powi(size as i32);
    let (of_size, of_rest, total) = (hit(size), hit(rest), bytes as f64);
    let [mut samples, mut error, mut unseen, mut variance] = [0.0; 4];
    let mut chance = (1.0 - of_size).powi(count as i32);
    for hits in 0..=count {
        for (more, of_it) in [(0u32, 1.0 - of_rest), (1, of_rest)] {
            let k = hits as f64 + f64::from(more);
            let of_all = chance * of_it;
            let value = hits as f64 * size as f64 / of_size
                + if more == 1 && rest > 0 { rest as f64 / of_rest } else { 0.0 };
            samples += of_all * k;
            error += of_all * (value - total).abs() / total;
            variance += of_all * (value - total).powi(2);
            if k == 0.0 {
                unseen += of_all;
            }
        }
        chance *= (count - hits) as f64 / (hits + 1) as f64 * of_size / (1.0 - of_size);
    }
    [samples, error, (error - unseen) / (1.0 - unseen), variance]
}

#[test]
fn plans_agree_with_the_sum_over_all_outcomes() {
    for (interval, bytes, size) in [
        (1000, 1, 1),
        (1000, 500, 1),
        (1000, 4000, 16),
        (1000, 4000, 999),
        (1000, 3999, 1000),
        (1000, 10_000, 3333),
        (1000, 7000, 7000),
        (7, 100, 30),
        (2, 40, 9),
        (65_536, 1 << 20, 100_000),
    ] {
        let of = plan(interval, bytes, size);
        let [samples, error, seen, variance] = summed(interval as f64, bytes, size);
        close(of.expected_samples(), samples, 1e-9);
        close(of.relative_error(), error, 1e-9);
        close(of.relative_error_if_seen(), seen, 1e-8);
        close(of.variance(), variance, 1e-8);
    }
}

#[test]
fn errors_of_large_plans_are_those_of_a_normal_distribution() {
    let of = plan(512 * KIB, 1 << 30, 1);
    assert_eq!(of.expected_samples(), 2048.0);
    assert_eq!(of.hit_probability(), 1.0);
    // The mean absolute deviation of a normal distribution is √(2/π) of its standard deviation.
    close(of.relative_deviation(), 1.0 / 2048f64.sqrt(), 1e-5);
    close(of.relative_error(), (2.0 / std::f64::consts::PI / 2048.0).sqrt(), 1e-3);
    for interval in [1, 2, 3, 512 * KIB, 1 << 32] {
        for bytes in [1, 1 << 20, 1 << 53, 1 << 63] {
            for size in [1, 7, 64 * KIB, 1 << 40].into_iter().filter(|size| *size <= bytes) {
                let of = plan(interval, bytes, size);
                let deviation = of.relative_deviation();
                let error = of.relative_error();
                let line = format!("{interval} {bytes} {size}: {error} ± {deviation}");
                assert!(error >= 0.0 && error <= deviation * (1.0 + 1e-9), "{line}");
                if of.expected_samples() > 1e6 && size < interval {
                    close(error / deviation, (2.0 / std::f64::consts::PI).sqrt(), 1e-3);
                }
            }
        }
    }
}

#[test]
fn an_interval_of_1_is_exact() {
    let of = plan(1, 1000, 300);
    assert_eq!((of.expected_samples(), of.hit_probability()), (4.0, 1.0));
    assert_eq!((of.relative_error(), of.relative_error_if_seen()), (0.0, 0.0));
    assert_eq!((of.variance(), of.variance_bound()), (0.0, 0.0));
}

#[test]
fn arguments_outside_the_domain_are_errors() {
    for (interval, bytes, size, words) in [
        (0, 1, 1, "between 1 and 4GiB (try 512KiB)"),
        ((1 << 32) + 1, 1, 1, "between 1 and 4GiB"),
        (1, 0, 1, "total of 0 bytes"),
        (1, (1 << 63) + 1, 1, "between 1 and 2^63"),
        (1, 10, 0, "less than 1 byte"),
        (1, 1024, 2048, "size 2KiB is larger than the total of 1KiB"),
    ] {
        let error = Plan::new(interval, bytes, size).unwrap_err().to_string();
        assert!(error.contains(words) && error.ends_with(')') && !error.contains('\n'), "{error}");
    }
    for probability in [0.0, 1.0, -1.0, 2.0, f64::NAN] {
        assert!(matches!(bytes_seen(512, probability), Err(DomainError::Probability(_))));
    }
    assert!(bytes_seen(0, 0.5).is_err());
}

proptest! {
    #[test]
    fn figures_of_plans_stay_in_their_ranges(
        interval in 1u64..=1 << 32,
        shift in 0u32..63,
        bytes in 1u64..=1 << 63,
        part in 0f64..1.0,
    ) {
        let bytes = (bytes >> shift).max(1);
        let size = ((bytes as f64).powf(part) as u64).clamp(1, bytes);
        let of = Plan::new(interval, bytes, size).unwrap();
        let (hit, once) = (of.hit_probability(), of.allocation_hit_probability());
        prop_assert!(hit > 0.0 && hit <= 1.0 && once > 0.0 && once <= hit);
        prop_assert!(of.expected_samples() >= hit * (1.0 - 1e-12));
        prop_assert!(of.expected_samples() <= bytes as f64 / interval as f64 * (1.0 + 1e-12));
        prop_assert!(of.variance() <= of.variance_bound() * (1.0 + 1e-9));
        let (error, seen) = (of.relative_error(), of.relative_error_if_seen());
        prop_assert!((0.0..=2.0).contains(&error), "{}", error);
        prop_assert!(error <= of.relative_deviation() * (1.0 + 1e-6) + 1e-9, "{}", error);
        prop_assert!(seen >= 0.0 && seen.is_finite());
    }
}
