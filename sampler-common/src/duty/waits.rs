//! Ticks that come by chance, for tests.

/// A generator of D. H. Lehmer's kind with the multiplier of D. E. Knuth's MMIX, and its state.
pub(super) struct Waits(pub(super) u64);

impl Waits {
    /// Uniform in (0, 1).
    fn uniform(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// How long it takes until so many have come, in mean distances of a Poisson process.
    pub(super) fn of(&mut self, ticks: u64) -> f64 {
        (0..ticks).map(|_| -self.uniform().ln()).sum()
    }
}
