//! The interval of a ratio has the stated coverage.

mod common;

use common::SplitMix;
use sampler_common::estimate::Confidence;
use sampler_common::estimate::ratio::RatioSums;

/// glibc's usable bytes of a request.
fn usable(size: u64) -> u64 {
    ((size + 8).next_multiple_of(16)).max(32) - 8
}

#[test]
fn ratio_intervals_have_their_coverage() {
    const RUNS: u32 = 500;
    let mut random = SplitMix(7);
    // Mostly small sizes with a heavy tail; one size; large sizes, of which most are sampled.
    let mut heavy = || 8u64 << SplitMix::below(&mut random, 12);
    let mixes: [(Vec<u64>, f64); 3] = [
        ((0..20_000).map(|_| heavy() + 1).collect(), 4096.0),
        (vec![40; 200_000], 2048.0),
        ((0..3000).map(|at| 5000 + at % 300 * 37).collect(), 16384.0),
    ];
    for (at, (sizes, interval)) in mixes.iter().enumerate() {
        let sum = |of: &dyn Fn(u64) -> u64| sizes.iter().map(|size| of(*size)).sum::<u64>() as f64;
        let truth = sum(&usable) / sum(&|size| size);
        let (mut covered, mut made) = (0, 0);
        for _ in 0..RUNS {
            let mut sums = RatioSums::default();
            for size in sizes {
                let inclusion = -(-(*size as f64) / interval).exp_m1();
                if random_hit(&mut random, inclusion) {
                    sums.add_sample(usable(*size) as f64, *size as f64, inclusion);
                }
            }
            let Some(ratio) = sums.ratio(1.0, Confidence::DEFAULT) else { continue };
            made += 1;
            let slack = 1e-9 * truth;
            covered += u32::from(ratio.low <= truth + slack && truth - slack <= ratio.high);
        }
        let share = f64::from(covered) / f64::from(made);
        println!("mix {at}: truth {truth:.4}, covered {share:.4} of {made}");
        assert!(made == RUNS && share > 0.93, "mix {at}: {share} of {made}");
    }
}

fn random_hit(random: &mut SplitMix, inclusion: f64) -> bool {
    random.uniform() <= inclusion
}
