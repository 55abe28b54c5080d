//! The limit of samples a second that a process keeps which samples by itself.
//!
//! Plainly: the process has a bucket of tokens, which fills at the limit and holds [`BURST_NS`] of it. Every sample takes a token. Where the
//! bucket is empty, the process owes tokens, and the rate of sampling is halved once for every [`DOUBLING_NS`] of the limit that it owes. The
//! debt is paid by time alone, so that the rate is the one that was asked for again within [`DOUBLING_NS`] · log₂(factor) of the flood's end.
//!
//! In virtual time (the generic cell rate algorithm, ITU-T I.371): a sample takes T = 1/limit,
//!
//! ```text
//! until ← max(until, now) + T        level = ⌊(until − now − burst)/doubling⌋, 0 … 32        rate = rate asked for / 2^level
//! ```
//!
//! A flood of r samples a second at the rate that was asked for settles at the limit, with level ≈ log₂(r/limit). In any time t no more than
//! t + burst + 33 doublings of the limit come, however large the flood is, as long as [`MAX_LEVEL`] halvings can stem it.
//!
//! The level is made of samples before, and says how *later* requests are charged. Each sample carries the rate that its request was
//! charged with. What is left of a countdown is hazard, not bytes, and memoryless ([`mod@super::countdown`]): it needs no new draw, and nothing
//! is biased.

use super::Rate;
use super::brake::MAX_LEVEL;

/// What the bucket holds, nanoseconds of the limit.
pub const BURST_NS: u64 = 500_000_000;
/// What is owed for each halving of the rate, nanoseconds of the limit.
pub const DOUBLING_NS: u64 = 15_625_000;
/// The same of a small limit, samples: a single one is not to say much.
const MIN_BURST_SAMPLES: u64 = 16;
const MIN_DOUBLING_SAMPLES: u64 = 8;
/// A limit is at least one sample in so many nanoseconds (17 minutes): no sum here overflows.
pub const MAX_PERIOD_NS: u64 = 1 << 40;

const fn burst_ns(period_ns: u64) -> u64 {
    let samples = period_ns * MIN_BURST_SAMPLES;
    if samples > BURST_NS { samples } else { BURST_NS }
}

const fn doubling_ns(period_ns: u64) -> u64 {
    let samples = period_ns * MIN_DOUBLING_SAMPLES;
    if samples > DOUBLING_NS { samples } else { DOUBLING_NS }
}

/// Takes a token: until when those that were taken are paid, if they were until `until_ns` before. `period_ns` is from one token to the
/// next, at most [`MAX_PERIOD_NS`].
pub const fn take(until_ns: u64, now_ns: u64, period_ns: u64) -> u64 {
    // Further ahead is only a clock that went back, or a limit that was lower.
    let most = now_ns + burst_ns(period_ns) + (MAX_LEVEL as u64 + 1) * doubling_ns(period_ns);
    let until = if until_ns > most { most } else { until_ns };
    (if until < now_ns { now_ns } else { until }) + period_ns
}

/// How often the rate is halved then, at most [`MAX_LEVEL`].
pub const fn level(until_ns: u64, now_ns: u64, period_ns: u64) -> u32 {
    let owed = until_ns.saturating_sub(now_ns).saturating_sub(burst_ns(period_ns));
    let level = owed / doubling_ns(period_ns);
    if level > MAX_LEVEL as u64 { MAX_LEVEL } else { level as u32 }
}

/// The rate at a level. Other than the brake's it is not bounded: a limit is kept, however large the flood is.
pub const fn rate(asked: Rate, level: u32) -> Rate {
    asked.halved_times(level)
}

#[cfg(test)]
mod tests;
