//! Sizes of allocations.

/// Number of allocations in a run.
const ALLOCATIONS: usize = 1 << 20;

/// Sizes in the order of the requests.
pub(crate) struct Mix {
    /// The name in tables.
    pub(crate) name: &'static str,
    /// The sizes, bytes.
    pub(crate) sizes: Vec<u64>,
}

impl Mix {
    /// The mixes: equal sizes, an everyday mix, a heavy tail, and large sizes of which most are
    /// sampled.
    pub(crate) fn all(random: &mut fastrand::Rng) -> Vec<Mix> {
        let small = [16u64, 24, 32, 48, 64, 128, 512];
        let mut mix = |name, size: &mut dyn FnMut(&mut fastrand::Rng) -> u64| Mix {
            name,
            sizes: (0..ALLOCATIONS).map(|_| size(random)).collect(),
        };
        vec![
            mix("all 64 B", &mut |_| 64),
            mix("16 B to 512 B", &mut |random| small[random.usize(..small.len())]),
            mix("log-normal", &mut |random| {
                // Box and Muller's method; median 512 bytes, σ = 2.5.
                let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
                let z = radius * (std::f64::consts::TAU * random.f64()).cos();
                (512.0 * (2.5 * z).exp()).ceil() as u64
            }),
            mix("all 1 MiB", &mut |_| 1 << 20),
        ]
    }
}
