//! Lifetimes as people request them: a row for each stack, symbolized, ready for any format.
//!
//! Pure data, like [`crate::profile`]. Shares and medians are of bytes: see
//! [`crate::estimate::survival`].

use crate::estimate::{Confidence, Estimate, Median, Moments, Share, Step, Survival, weighted};
use crate::note::Note;

/// A millisecond: a block that is freed within it is a temporary that might have been on the stack.
pub const SHORT_NS: f64 = 1e6;
/// A second.
pub const LONG_NS: f64 = 1e9;

/// Lifetimes of the blocks of some stacks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lifetime {
    /// Samples behind the numbers.
    pub samples: u64,
    /// Samples that were freed. The others are held, or were held until their program ended.
    pub freed: u64,
    /// Samples that are held.
    pub held: u64,
    /// Bytes × seconds until now: what an earlier free would save.
    pub byte_seconds: Estimate,
    /// The moments of `byte_seconds`. Summed over stacks, they give an interval of the sum.
    pub moments: Moments,
    /// The age that half of the bytes outlive.
    pub median: Median,
    /// The share of bytes that are freed within a millisecond.
    pub within_1ms: Share,
    /// The share of bytes that are freed within a second.
    pub within_1s: Share,
}

impl Lifetime {
    /// The lifetimes of sampled blocks, from their `steps`.
    ///
    /// Ages of freed blocks are known to within a factor of √`bucket` on either side. The median's
    /// interval is widened by this factor.
    pub fn new(
        steps: Vec<Step>,
        byte_seconds: &Moments,
        (freed, held): (u64, u64),
        bucket: f64,
        confidence: Confidence,
    ) -> Lifetime {
        let curve = Survival::new(steps);
        let median = curve.median(confidence);
        Lifetime {
            samples: byte_seconds.samples,
            freed,
            held,
            byte_seconds: weighted(byte_seconds, 1.0, confidence),
            moments: *byte_seconds,
            median: Median {
                low: median.low / bucket.sqrt(),
                high: median.high.map(|high| high * bucket.sqrt()),
                ..median
            },
            within_1ms: curve.within(SHORT_NS, confidence),
            within_1s: curve.within(LONG_NS, confidence),
        }
    }
}

/// A stack with its lifetimes.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// Process that allocated.
    pub pid: u32,
    /// Function names, root first, with inlined functions.
    pub frames: Vec<String>,
    /// Lifetimes of the stack's blocks.
    pub lifetime: Lifetime,
}

/// Lifetimes of some processes.
#[derive(Clone, Debug, PartialEq)]
pub struct Lifetimes {
    /// Confidence of every interval.
    pub confidence: Confidence,
    /// When the lifetimes were computed, nanoseconds since the Unix epoch.
    pub time_unix_ns: u64,
    /// All stacks together.
    pub total: Lifetime,
    /// Stacks in falling order of bytes × seconds.
    pub stacks: Vec<Stack>,
    /// Number of stacks before the cut to the top ones.
    pub stacks_total: u64,
    /// Notes that limit what the numbers mean.
    pub notes: Vec<Note>,
}
