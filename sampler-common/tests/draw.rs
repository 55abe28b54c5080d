//! The draw against the exponential and geometric distributions: Kolmogorov–Smirnov, χ², moments.

mod common;

use common::{KS_LIMIT, SplitMix, kolmogorov_smirnov};
use sampler_common::sampling::rate::HAZARD_ONE;
use sampler_common::sampling::{Random, Rate, draw};

const DRAWS: usize = 2_000_000;

/// 1 − e^(−hazard).
fn below(raw: f64) -> f64 {
    -(-raw / HAZARD_ONE as f64).exp_m1()
}

#[test]
fn draws_are_exponential() {
    let mut random = SplitMix(1);
    let values: Vec<f64> = (0..DRAWS).map(|_| draw(random.next()) as f64).collect();
    let n = DRAWS as f64;

    // Mean 1, variance 1. The fourth central moment is 9, so the square's variance is 8.
    let mean = values.iter().sum::<f64>() / n / HAZARD_ONE as f64;
    assert!((mean - 1.0).abs() * n.sqrt() < 5.0, "mean {mean}");
    let variance = values.iter().map(|v| (v / HAZARD_ONE as f64 - 1.0).powi(2)).sum::<f64>() / n;
    assert!((variance - 1.0).abs() * (n / 8.0).sqrt() < 5.0, "variance {variance}");

    // χ² over 1,000 equally probable cells.
    const CELLS: usize = 1000;
    let mut counts = [0u64; CELLS];
    for value in &values {
        counts[((below(*value) * CELLS as f64) as usize).min(CELLS - 1)] += 1;
    }
    let expected = n / CELLS as f64;
    let chi_square: f64 = counts.iter().map(|c| (*c as f64 - expected).powi(2) / expected).sum();
    let freedom = (CELLS - 1) as f64;
    assert!((chi_square - freedom).abs() < 5.5 * (2.0 * freedom).sqrt(), "χ² {chi_square}");

    let distance = kolmogorov_smirnov(values.into_iter().map(below).collect());
    assert!(distance < KS_LIMIT, "√n·D = {distance}");
}

#[test]
fn gaps_in_bytes_are_geometric_at_every_interval() {
    const EACH: usize = 200_000;
    for (seed, interval) in [2u64, 3, 64, 4096, 512 << 10, 1 << 24, 1 << 32].into_iter().enumerate()
    {
        let raw = Rate::from_interval(interval).unwrap().raw();
        let mut random = SplitMix(100 + seed as u64);
        let (mut sum, mut values) = (0.0, Vec::with_capacity(EACH));
        for _ in 0..EACH {
            // The sampled byte, counted from 1: at least 1, P(gap ≤ k) = 1 − e^(−λk).
            let gap = draw(random.next()).div_ceil(raw);
            assert!(gap >= 1);
            sum += gap as f64;
            let (low, high) =
                (below((gap - 1) as f64 * raw as f64), below(gap as f64 * raw as f64));
            values.push(low + random.uniform() * (high - low));
        }
        let p = 1.0 / interval as f64;
        let z = (sum / EACH as f64 * p - 1.0) * (EACH as f64 / (1.0 - p)).sqrt();
        assert!(z.abs() < 5.0, "interval {interval}: mean is off by {z} standard deviations");
        let distance = kolmogorov_smirnov(values);
        assert!(distance < KS_LIMIT, "interval {interval}: √n·D = {distance}");
    }
}
