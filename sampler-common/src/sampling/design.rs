//! Sampling designs: a strategy and its rate in one word.
//!
//! In the theory of sampling a design gives every unit its chance. Here a design is one 64-bit word
//! for each size class. The eBPF program thus sees strategy and rate change at once, and every
//! sample can carry the design that it was charged with.
//!
//! Plainly, for a request of s bytes (0 counts as 1):
//!
//! ```text
//! geometric, adaptive   hazard λs, λ = −ln(1 − 1/R)     sampled with π = 1 − e^(−λs)
//! poisson               hazard λs, λ = 1/R              k ~ Poisson(λs) points; certain from λs ≥ ln 100
//! bernoulli             hazard λ,  λ = −ln(1 − p)       sampled with π = p
//! stride                s of every R bytes              ⌊(x + s)/R⌋ − ⌊x/R⌋ points, x the bytes before
//! external              none: w bytes are given         sampled with π = s/w
//! ```
//!
//! Sources: .NET's "Randomized Allocation Sampling" (geometric); heapprofd's "Sampling for heap
//! profiles" (Poisson, and its cut-off at 99 %); "jemalloc profiling internals" (one trial per
//! allocation, as an alternative); PyPy's allocation sampling for VMProf (stride).

use super::rate::{HAZARD_CERTAIN, MAX_INTERVAL_BYTES, Rate};
use super::strategy::Strategy;
#[cfg(feature = "std")]
use super::{class_bounds, rate::HAZARD_ONE};

/// The tag starts at this bit of the word.
const TAG_SHIFT: u32 = 56;
/// The bits below the tag: the value.
const VALUE: u64 = (1 << TAG_SHIFT) - 1;

/// Hazard from which the Poisson strategy samples a request for certain: ln 100, a chance of 99 %
/// of at least one point.
pub const POISSON_CERTAIN: u64 = 1_296_240_170_849_606; // ⌈ln 100 · 2⁴⁸⌉

/// Bounds of [`Design::fast_charge`]: a product within them needs no check.
pub(super) const USUAL_RATE: u64 = 1 << 36;
pub(super) const USUAL_BYTES: u64 = 256 << 10;
const _: () = assert!(USUAL_RATE * USUAL_BYTES <= HAZARD_CERTAIN);

/// The smallest stride, bytes.
pub const MIN_STRIDE_BYTES: u64 = 64;

/// A strategy and its rate: λ in raw units ([`Rate`]), the interval in bytes of a stride, or the
/// bytes that an external sample stands for.
///
/// The word of a geometric design is the raw rate itself. The word 0 samples nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Design(u64);

impl Design {
    /// Nothing is sampled.
    pub const NEVER: Design = Design(0);

    /// The design of a word as the eBPF program holds it.
    #[inline(always)]
    pub const fn from_word(word: u64) -> Design {
        Design(word)
    }

    /// The word.
    #[inline(always)]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// A design of λ per byte (geometric, adaptive, poisson) or per request (bernoulli).
    pub const fn new(strategy: Strategy, rate: Rate) -> Design {
        Design((strategy as u64) << TAG_SHIFT | rate.raw())
    }

    /// The design that samples every `interval_bytes`-th byte ([`MIN_STRIDE_BYTES`] … 2^32); `None`
    /// outside the domain.
    pub const fn stride(interval_bytes: u64) -> Option<Design> {
        if interval_bytes < MIN_STRIDE_BYTES || interval_bytes > MAX_INTERVAL_BYTES {
            return None;
        }
        Some(Design((Strategy::Stride as u64) << TAG_SHIFT | interval_bytes))
    }

    /// The strategy's number.
    #[inline(always)]
    pub const fn tag(self) -> u8 {
        (self.0 >> TAG_SHIFT) as u8
    }

    /// The strategy; `None` if the word is no design.
    pub const fn strategy(self) -> Option<Strategy> {
        Strategy::from_number(self.tag())
    }

    /// The result of [`Design::charge`] for nearly every request: less than 256 KiB, charged per
    /// byte, at one sample in 4 KiB or fewer. `None` for any other request.
    #[inline(always)]
    pub const fn fast_charge(self, size: u64) -> Option<u64> {
        let rate = self.0 & VALUE;
        if rate.wrapping_sub(1) >= USUAL_RATE || size >= USUAL_BYTES || !self.is_per_byte() {
            return None;
        }
        Some(rate.wrapping_mul(if size == 0 { 1 } else { size }))
    }

    /// Whether λ is charged per byte and the request sampled once (geometric, adaptive).
    #[inline(always)]
    pub const fn is_per_byte(self) -> bool {
        (self.0 as i64) >= 0
    }

    /// λ; without meaning for a stride.
    #[inline(always)]
    pub const fn rate(self) -> Rate {
        Rate::from_raw(self.0 & VALUE)
    }

    /// The bytes from one point of a stride to the next; without meaning for another strategy.
    #[inline(always)]
    pub const fn stride_bytes(self) -> u64 {
        self.0 & VALUE
    }

    /// The design of one sample that a process took by itself and that stands for `weighted_bytes`.
    pub(super) const fn external(weighted_bytes: u64) -> Design {
        Design((Strategy::External as u64) << TAG_SHIFT | weighted_bytes & VALUE)
    }

    /// The bytes that an external sample stands for; without meaning for another strategy.
    #[inline(always)]
    pub const fn weighted_bytes(self) -> u64 {
        self.0 & VALUE
    }

    /// Whether the design belongs to a sample that a process took by itself.
    #[inline(always)]
    pub const fn is_external(self) -> bool {
        self.tag() == Strategy::External as u8
    }

    /// Hazard of a request of `size` bytes, at most [`HAZARD_CERTAIN`]; 0 for a stride, for an
    /// external sample and for a word that is no design, which have none.
    #[inline(always)]
    pub const fn charge(self, size: u64) -> u64 {
        if self.is_per_byte() {
            return self.rate().charge(size);
        }
        match self.strategy() {
            Some(Strategy::Poisson) => {
                let hazard = self.rate().charge(size);
                if hazard >= POISSON_CERTAIN { HAZARD_CERTAIN } else { hazard }
            }
            Some(Strategy::Bernoulli) => self.rate().charge(1),
            _ => 0,
        }
    }
}

#[cfg(feature = "std")]
impl Design {
    /// The design that is expected to take as many samples as one sample per `interval_bytes`
    /// bytes, the same for every size class. `None` outside the strategy's domain (1 … 2^32 bytes,
    /// a stride from 64 bytes on).
    ///
    /// A Bernoulli trial also needs the mean size: `mean_bytes` (at least 1) makes p = mean size/R,
    /// at most 1. Adaptive starts as geometric.
    pub fn from_interval(
        strategy: Strategy,
        interval_bytes: u64,
        mean_bytes: f64,
    ) -> Option<Design> {
        if interval_bytes == 0 || interval_bytes > MAX_INTERVAL_BYTES {
            return None;
        }
        match strategy {
            Strategy::Geometric | Strategy::Adaptive => {
                Some(Design::new(strategy, Rate::from_interval(interval_bytes)?))
            }
            Strategy::Poisson => {
                let raw = (HAZARD_ONE as f64 / interval_bytes as f64).round() as u64;
                // Interval 1 is "always" under every strategy.
                let rate = if interval_bytes == 1 { Rate::ALWAYS } else { Rate::from_raw(raw) };
                Some(Design::new(strategy, rate))
            }
            Strategy::Bernoulli => {
                let probability = mean_bytes.max(1.0) / interval_bytes as f64;
                Some(Design::new(strategy, Rate::from_probability(probability)?))
            }
            Strategy::Stride => Design::stride(interval_bytes),
            Strategy::External => None,
        }
    }

    /// Probability that a request of `size` bytes is sampled, computed from the hazard that is
    /// really charged. `None` for a stride, whose probability depends on all requests before.
    pub fn inclusion(self, size: u64) -> Option<f64> {
        match self.strategy()? {
            Strategy::Stride => None,
            Strategy::External => Some(match self.weighted_bytes() {
                0 => 1.0,
                weighted => (size as f64 / weighted as f64).min(1.0),
            }),
            _ => Some(match self.charge(size) {
                HAZARD_CERTAIN => 1.0,
                hazard => -(-(hazard as f64) / HAZARD_ONE as f64).exp_m1(),
            }),
        }
    }

    /// The most objects and bytes of size class `class` that go unseen per unit of hazard.
    ///
    /// These numbers times ln(1/α) leave no sample with probability α. They are 0 if every request
    /// of the class is certain. They are infinite if none is sampled, if the rate is unknown, and
    /// for a stride, which may miss anything.
    pub fn unseen(self, class: usize) -> (f64, f64) {
        let (smallest, largest) = class_bounds(class);
        let per_hazard = |size: u64| match self.charge(size) {
            HAZARD_CERTAIN => 0.0,
            0 => f64::INFINITY,
            hazard => HAZARD_ONE as f64 / hazard as f64,
        };
        // Bytes per hazard are the same for all sizes, or grow with the size.
        let bytes = [smallest, largest.min(1 << 48)].map(|size| size as f64 * per_hazard(size));
        (per_hazard(smallest), bytes[0].max(bytes[1]))
    }

    /// Mean bytes from one sample point to the next: 1/p of a byte (geometric, adaptive), 1/λ
    /// (poisson), the stride.
    ///
    /// For bernoulli: mean *requests* from one sample to the next. Infinite if nothing is sampled
    /// or the interval is unknown.
    pub fn interval(self) -> f64 {
        match self.strategy() {
            Some(Strategy::External) => f64::INFINITY,
            Some(Strategy::Stride) => self.stride_bytes() as f64,
            Some(Strategy::Poisson) if self.rate() != Rate::ALWAYS => {
                HAZARD_ONE as f64 / self.rate().raw() as f64
            }
            _ => self.rate().interval_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_carry_strategy_and_rate() {
        for strategy in Strategy::ALL {
            let design = Design::from_interval(strategy, 4096, 64.0).unwrap();
            assert_eq!(design.strategy(), Some(strategy));
            assert_eq!(Strategy::from_number(strategy as u8), Some(strategy));
            assert_eq!(Strategy::from_name(strategy.name()), Some(strategy));
            assert_eq!(Design::from_word(design.word()), design);
            let interval = if strategy == Strategy::Bernoulli { 64.0 } else { 4096.0 };
            assert!((design.interval() / interval - 1.0).abs() < 1e-9, "{strategy:?}");
        }
        let rate = Rate::from_interval(4096).unwrap();
        assert_eq!(Design::new(Strategy::Geometric, rate).word(), rate.raw());
    }

    #[test]
    fn the_fast_charge_equals_the_charge() {
        for strategy in Strategy::ALL {
            for interval in [1, 2, 4095, 4096, 4097, 1 << 16, 1 << 19, 1 << 32] {
                let Some(design) = Design::from_interval(strategy, interval, 64.0) else {
                    continue;
                };
                for size in [0, 1, 63, 4096, (256 << 10) - 1, 256 << 10, 1 << 40, u64::MAX] {
                    let usual = design.fast_charge(size);
                    assert!(usual.is_none_or(|hazard| hazard == design.charge(size)));
                    let expected = interval > 4096
                        && size < 256 << 10
                        && matches!(strategy, Strategy::Geometric | Strategy::Adaptive);
                    assert_eq!(usual.is_some(), expected, "{strategy:?} {interval} {size}");
                }
            }
        }
        assert_eq!(Design::NEVER.fast_charge(1), None);
    }

    #[test]
    fn intervals_outside_the_domain_are_refused() {
        assert_eq!(Design::stride(63), None);
        assert_eq!(Design::stride((1 << 32) + 1), None);
        for strategy in Strategy::ALL {
            assert_eq!(Design::from_interval(strategy, 0, 1.0), None);
            assert_eq!(Design::from_interval(strategy, (1 << 32) + 1, 1.0), None);
        }
        assert_eq!(Design::from_word(0x7f << TAG_SHIFT).strategy(), None);
    }

    #[test]
    fn inclusion_probabilities_are_those_of_the_strategy() {
        let design = |strategy| Design::from_interval(strategy, 1000, 50.0).unwrap();
        let bernoulli = design(Strategy::Bernoulli);
        assert!((bernoulli.inclusion(1).unwrap() - 0.05).abs() < 1e-12);
        assert_eq!(bernoulli.inclusion(1), bernoulli.inclusion(1 << 40));
        assert_eq!(design(Strategy::Stride).inclusion(5), None);
        // The cut-off at 99 %: 1 − e^(−4.605) lies just below, 1 − e^(−4.606) above.
        let poisson = design(Strategy::Poisson);
        assert!((poisson.inclusion(4605).unwrap() - 0.99).abs() < 1e-5);
        assert!(poisson.inclusion(4605).unwrap() < 0.99);
        assert_eq!(poisson.inclusion(4606), Some(1.0));
        assert_eq!(POISSON_CERTAIN, (100f64.ln() * HAZARD_ONE as f64).ceil() as u64);
    }
}
