//! Ring pressure: lower rates for a process whose records wait in the ring buffer, so that the ring
//! buffer does not fill.
//!
//! Plainly: the more bytes of a process wait, compared with the free bytes, the rarer the process
//! is sampled from the next call on. The level is 0 up to half of the free bytes. From there it
//! grows up to twice the free bytes, which is a process's share (dynamic thresholds: Choudhury and
//! Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). This range is divided into 32 levels, or
//! fewer for smaller ring buffers. Each level halves the rate, until the interval is the larger of
//! [`FINE_INTERVAL_BYTES`] and [`MAX_FACTOR`] times the interval in force.
//!
//! The rise is bounded because a block that was sampled at a long interval keeps its weight as long
//! as it is held. Ring pressure multiplies the variance by at most [`MAX_FACTOR`]: an interval of
//! what is held is at most √8 = 2.8 times as wide as without it. Intervals shorter than
//! [`FINE_INTERVAL_BYTES`] may rise to that value: most stacks would be lost otherwise. There 10
//! MiB still give some 160 samples, ± 15 %. If the ring buffer is full even so, samples lose their
//! stacks and keep their sizes.
//!
//! Between two levels there is room for some ten records of the largest stacks and a hundred of
//! usual stacks ([`highest`]). So each level has enough samples for an estimate whose interval is
//! right. A ring buffer that is too small for many levels gets few.
//!
//! The level is computed from past records and decides how the *next* calls are charged. Every
//! sample carries the design that it was charged with. Trials are memoryless, so nothing is biased.

use super::design::Design;
use super::rate::{HAZARD_ONE, MAX_INTERVAL_BYTES, Rate};
use super::strategy::Strategy;

/// The largest factor on the interval in force.
pub const MAX_FACTOR: u64 = 1 << MAX_DOUBLINGS;
const MAX_DOUBLINGS: u32 = 3;

/// The interval in bytes that any shorter interval may rise to.
pub const FINE_INTERVAL_BYTES: u64 = 64 << 10;

/// The highest level.
pub const MAX_LEVEL: u32 = 32;

/// Bytes of a ring buffer for each level. Half of them lie between the level and the next.
const RING_BYTES_PER_LEVEL: u64 = 512 << 10;

/// The highest level that a ring buffer of `size` bytes has room for.
#[inline(always)]
pub const fn highest(size: u64) -> u32 {
    let most = size / RING_BYTES_PER_LEVEL;
    if most > MAX_LEVEL as u64 { MAX_LEVEL } else { most as u32 }
}

/// λ of interval 2, ln 2: the first level of "always" and of every rate close to it.
const HALF: u64 = 0xB172_17F7_D1CF;

/// λ of [`MAX_INTERVAL_BYTES`].
const LOWEST: u64 = HAZARD_ONE / MAX_INTERVAL_BYTES;

/// λ of [`FINE_INTERVAL_BYTES`].
const FINE: u64 = HAZARD_ONE / FINE_INTERVAL_BYTES;

/// Level of a process that has `own` of the `waiting` bytes in a ring buffer of `size` bytes. The
/// last sixteenth of the ring buffer is for other processes.
#[inline(always)]
pub const fn level(own: u64, waiting: u64, size: u64) -> u32 {
    let (free, most) = ((size - size / 16).saturating_sub(waiting), highest(size));
    // `own` can be more than `size` only if the two counts were read at different times.
    if own <= free / 2 || own > size || most == 0 {
        return 0;
    }
    let Some(steps) = (own - free / 2).wrapping_mul(2 * most as u64).checked_div(3 * free) else {
        return most;
    };
    if steps >= most as u64 { most } else { steps as u32 + 1 }
}

impl Design {
    /// The same design at 1/2^`level` of its rate.
    ///
    /// The interval becomes at most the larger of [`FINE_INTERVAL_BYTES`] and [`MAX_FACTOR`] times
    /// the interval, and never more than [`MAX_INTERVAL_BYTES`]. [`FINE_INTERVAL_BYTES`] does not
    /// apply to a rate per call. A design that samples nothing, and an external design, stay.
    #[inline(always)]
    pub const fn at_ring_level(self, level: u32) -> Design {
        let level = level & 63;
        if level == 0 || self.is_external() {
            return self;
        }
        if self.tag() == Strategy::Stride as u8 {
            let bytes = self.stride_bytes();
            let most = larger(bytes.saturating_mul(MAX_FACTOR), FINE_INTERVAL_BYTES);
            let most = smaller(most, MAX_INTERVAL_BYTES);
            let bytes = if bytes > most >> level { most } else { bytes << level };
            return Design::from_word(self.word() - self.stride_bytes() + bytes);
        }
        let raw = self.rate().raw();
        let most = smaller(raw, 2 * HALF);
        let least = larger(most >> MAX_DOUBLINGS, LOWEST);
        // A rate per call is no rate per byte.
        let is_of_calls = self.tag() == Strategy::Bernoulli as u8;
        let least = if is_of_calls { least } else { smaller(least, FINE) };
        let rate = smaller(larger(most >> level, least), raw);
        Design::from_word(self.word() - raw + rate)
    }
}

#[inline(always)]
const fn smaller(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
}

#[inline(always)]
const fn larger(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}

const _: () = assert!(Rate::ALWAYS.raw() > 2 * HALF);

#[cfg(test)]
mod tests {
    use super::super::strategy::Strategy;
    use super::{Design, FINE_INTERVAL_BYTES, MAX_FACTOR, MAX_INTERVAL_BYTES, MAX_LEVEL, level};
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    const RING: u64 = 16 << 20;

    #[test]
    fn a_single_process_is_raised_from_a_third_of_the_ring() {
        let alone = |bytes| level(bytes, bytes, RING);
        assert_eq!(alone(RING / 4), 0);
        assert_eq!(alone(RING * 15 / 16 / 3 + 16), 1);
        assert!((14..=18).contains(&alone(RING / 2)));
        assert_eq!(alone(RING * 5 / 8 + 1024), MAX_LEVEL);
        assert_eq!(alone(RING), MAX_LEVEL);
    }

    #[test]
    fn a_small_ring_has_few_levels() {
        for (size, most) in [(64 << 10, 0), (512 << 10, 1), (4 << 20, 8), (256 << 20, MAX_LEVEL)] {
            assert_eq!((level(size, size, size), level(size * 3 / 4, size, size)), (most, most));
        }
    }

    #[test]
    fn a_quiet_process_keeps_its_rate_in_a_full_ring() {
        assert_eq!(level(16 << 10, RING / 2, RING), 0);
        assert_eq!(level(0, RING, RING), 0);
        assert_eq!(level(1, RING, RING), MAX_LEVEL);
        // Read before it was written: level 0.
        assert_eq!(level(0u64.wrapping_sub(4096), 0, RING), 0);
    }

    #[test]
    fn never_and_external_designs_are_not_raised() {
        for design in [Design::NEVER, Design::from_word((Strategy::External as u64) << 56 | 77)] {
            assert_eq!(design.at_ring_level(9), design);
        }
    }

    proptest! {
        #[test]
        fn more_waiting_bytes_never_lower_the_ring_level(
            own in 0u64..RING, more in 0u64..4096, others in 0u64..RING, size in 12u32..30,
        ) {
            let size = 1 << size;
            let (own, more, others) = (own % size, more % size, others % size);
            prop_assert!(level(own, own + others, size) <= level(own + more, own + more + others, size)
                || own + more > size);
        }

        #[test]
        fn a_level_halves_the_rate(interval in 1u64..1 << 32, level in 0u32..=MAX_LEVEL, which in 0usize..5) {
            let strategy = Strategy::ALL[which];
            let Some(design) = Design::from_interval(strategy, interval, 1.0) else { return Ok(()) };
            let raised = design.at_ring_level(level);
            prop_assert_eq!(raised.strategy(), design.strategy());
            let most = match strategy {
                Strategy::Bernoulli => MAX_FACTOR as f64 * design.interval(),
                _ => (MAX_FACTOR as f64 * design.interval()).max(FINE_INTERVAL_BYTES as f64),
            };
            let most = most.min(MAX_INTERVAL_BYTES as f64);
            let wanted = (design.interval() * f64::from(level).exp2()).min(most);
            // Close to "always", half the rate gives more than half of the samples: within a factor
            // of 1.5 there.
            let ratio = raised.interval() / wanted;
            prop_assert!((0.65..1.5).contains(&ratio), "{interval} at {level}: {ratio}");
            if interval > 1000 {
                prop_assert!((0.99..1.01).contains(&ratio), "{interval} at {level}: {ratio}");
            }
            prop_assert!(raised.interval() >= design.interval() * 0.999_999);
        }
    }
}
