//! The limit of samples per second for a process that samples by itself.
//!
//! Plainly: the process has a bucket of tokens, which fills at the limit and holds [`BURST_NS`]
//! worth of tokens. Every sample takes a token. If the bucket is empty, the process owes tokens.
//! The rate of sampling is halved once for every [`DOUBLING_NS`] of the limit that the process
//! owes. Time alone pays the debt. So the rate is the requested one again within
//! [`DOUBLING_NS`] · log₂(factor) of the flood's end.
//!
//! In virtual time (the generic cell rate algorithm, ITU-T I.371): a sample takes T = 1/limit,
//!
//! ```text
//! until ← max(until, now) + T        level = ⌊(until − now − burst)/doubling⌋, 0 … 32        rate = rate asked for / 2^level
//! ```
//!
//! A flood of r samples a second at the requested rate settles at the limit, with
//! level ≈ log₂(r/limit). In any time t the samples are at most those of t + burst + 33 doublings
//! of the limit. This bound holds for every flood that [`MAX_LEVEL`] halvings can stem.
//!
//! The level is computed from earlier samples and decides how *later* requests are charged. Each
//! sample carries the rate that its request was charged with. What is left of a countdown is
//! hazard, not bytes, and memoryless ([`mod@super::countdown`]): it needs no new draw, and nothing
//! is biased.

use super::Rate;
use super::ring_pressure::MAX_LEVEL;

/// The size of the bucket, nanoseconds of the limit.
pub const BURST_NS: u64 = 500_000_000;
/// The debt for each halving of the rate, nanoseconds of the limit.
pub const DOUBLING_NS: u64 = 15_625_000;
/// Minimum of the burst and of a doubling at a small limit, in samples: a single sample must not
/// change the level much.
const MIN_BURST_SAMPLES: u64 = 16;
const MIN_DOUBLING_SAMPLES: u64 = 8;
/// The longest period of a limit, one sample in 17 minutes: no sum here overflows.
pub const MAX_PERIOD_NS: u64 = 1 << 40;

const fn burst_ns(period_ns: u64) -> u64 {
    let samples = period_ns * MIN_BURST_SAMPLES;
    if samples > BURST_NS { samples } else { BURST_NS }
}

const fn doubling_ns(period_ns: u64) -> u64 {
    let samples = period_ns * MIN_DOUBLING_SAMPLES;
    if samples > DOUBLING_NS { samples } else { DOUBLING_NS }
}

/// Takes a token: returns the time at which all taken tokens are paid, which was `until_ns` before.
///
/// `period_ns` is the time from one token to the next, at most [`MAX_PERIOD_NS`].
pub const fn take(until_ns: u64, now_ns: u64, period_ns: u64) -> u64 {
    // `until_ns` is further ahead only if the clock went back or the limit was lower before.
    let most = now_ns + burst_ns(period_ns) + (MAX_LEVEL as u64 + 1) * doubling_ns(period_ns);
    let until = if until_ns > most { most } else { until_ns };
    (if until < now_ns { now_ns } else { until }) + period_ns
}

/// The time at which all taken tokens are paid if the period becomes shorter: the process owes as
/// many tokens as before. With a longer period the time stays, and the process owes fewer.
pub const fn with_period(until_ns: u64, now_ns: u64, before_ns: u64, after_ns: u64) -> u64 {
    if until_ns <= now_ns || after_ns >= before_ns {
        return until_ns;
    }
    let owed = (until_ns - now_ns) as u128 * after_ns as u128 / before_ns as u128;
    now_ns + owed as u64
}

/// How often the rate is halved at this debt, at most [`MAX_LEVEL`].
pub const fn level(until_ns: u64, now_ns: u64, period_ns: u64) -> u32 {
    let owed = until_ns.saturating_sub(now_ns).saturating_sub(burst_ns(period_ns));
    let level = owed / doubling_ns(period_ns);
    if level > MAX_LEVEL as u64 { MAX_LEVEL } else { level as u32 }
}

/// The rate at a level. Unlike ring pressure's rate it has no bound: a limit is kept, however large
/// the flood is.
pub const fn rate(requested: Rate, level: u32) -> Rate {
    requested.halved_times(level)
}

#[cfg(test)]
mod tests;
