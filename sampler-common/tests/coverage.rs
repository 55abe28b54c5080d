//! Coverage of the gamma interval: the share of runs whose interval covers the truth, for common
//! size mixes and numbers of samples. `cargo test --test coverage -- --nocapture` prints the
//! tables.

mod common;
#[path = "common/population.rs"]
mod population;

use common::SplitMix;
use population::{INTERVAL, Population};
use sampler_common::estimate::{Confidence, Estimate, weighted};

/// Shares of runs.
struct Coverage {
    /// Runs whose interval covers the true bytes.
    space: f64,
    /// Runs whose interval covers the true objects.
    objects: f64,
    /// Mean width of the bytes' interval divided by that of y ± z√v.
    width: f64,
}

/// Measures the coverage at `level`; `deviations` is the z of `level`.
fn coverage(
    population: &Population,
    level: f64,
    deviations: f64,
    runs: u32,
    seed: u64,
) -> Coverage {
    let confidence = Confidence::new(level).expect("between 0 and 1");
    let mut random = SplitMix(seed);
    let (bytes, objects) = population.truth();
    let holds = |estimate: &Estimate, truth: f64| {
        // Sums of floats: an exact total is equal up to rounding.
        u32::from(estimate.low <= truth * (1.0 + 1e-12) && truth * (1.0 - 1e-12) <= estimate.high)
    };
    let (mut space_held, mut objects_held, mut width, mut normal) = (0, 0, 0.0, 0.0);
    for _ in 0..runs {
        let row = population.moments(&mut random);
        let space = weighted(&row.alloc_space, INTERVAL as f64, confidence);
        let number = weighted(&row.alloc_objects, INTERVAL as f64, confidence);
        space_held += holds(&space, bytes);
        objects_held += holds(&number, objects);
        width += space.high - space.low;
        normal += 2.0 * deviations * row.alloc_space.variance.sqrt();
    }
    let share = |held: u32| f64::from(held) / f64::from(runs);
    Coverage { space: share(space_held), objects: share(objects_held), width: width / normal }
}

/// 4,000 runs: the share has a standard deviation of 0.0035. The bounds are for 95 %.
#[test]
fn intervals_of_95_percent_have_their_coverage() {
    println!("{:12} {:>8} {:>8} {:>8} {:>8}", "sizes", "samples", "bytes", "objects", "width");
    for (index, expected) in [2.0, 5.0, 10.0, 30.0, 100.0].into_iter().enumerate() {
        for population in Population::all(expected) {
            let got = coverage(&population, 0.95, 1.959964, 4000, 40 + index as u64);
            let name = population.name;
            println!(
                "{name:12} {expected:8} {:8.4} {:8.4} {:8.3}",
                got.space, got.objects, got.width
            );
            // With few samples the interval errs on the safe side.
            let least = if expected < 10.0 { 0.96 } else { 0.945 };
            assert!(got.space >= least, "{name} at {expected}: bytes {}", got.space);
            assert!(!population.uniform() || got.objects >= least, "{name}: {}", got.objects);
            assert!(expected < 10.0 || got.space <= 0.998, "{name} at {expected}: {}", got.space);
            assert!(expected < 10.0 || got.width < 1.15, "{name} at {expected}: {}", got.width);
        }
    }
}

/// Coverage deep in the tails, where the width depends on the shape of the distribution.
#[test]
fn intervals_of_999_permille_have_their_coverage() {
    println!("{:12} {:>8} {:>8} {:>8}", "sizes", "samples", "missed", "width");
    for (index, expected) in [10.0, 30.0, 100.0].into_iter().enumerate() {
        for population in Population::all(expected) {
            let got = coverage(&population, 0.999, 3.290527, 20_000, 50 + index as u64);
            let (name, missed) = (population.name, 1.0 - got.space);
            println!("{name:12} {expected:8} {missed:8.1e} {:8.3}", got.width);
            assert!(missed <= 1.5e-3, "{name} at {expected}: missed {missed}");
        }
    }
}

#[test]
fn few_samples_next_to_certain_ones_count_as_few() {
    // 20 certain blocks of 16 MiB carry no information about the small ones next to them.
    let population =
        Population { name: "small and huge", groups: vec![(64, 82_000), (16 << 20, 20)] };
    let got = coverage(&population, 0.95, 1.959964, 4000, 60);
    assert!(got.space > 0.95, "bytes {}", got.space);
}
