//! One process under back-pressure.

use super::MIN_SAMPLES_FOR_RATE;
use super::bucket::Bucket;

/// Steps in a doubling of the interval.
const PER_DOUBLING: f64 = 4.0;
/// Most steps: a raise of 2^32 is beyond every interval.
pub const MAX_STEPS: u32 = 128;
/// Fewest and most steps of one raise.
const RAISE_STEPS: std::ops::RangeInclusive<u32> = 2..=24;
/// Steps of one recovery: √2.
const RECOVERY_STEPS: u32 = 2;
/// Seconds from a change to the next recovery.
const RECOVERY_PAUSE_SECONDS: f64 = 0.25;
/// Seconds that rates are smoothed over.
const SMOOTHING_SECONDS: f64 = 0.25;
/// Lower rates count as none: a process without a raise and without a rate is forgotten.
const MIN_SAMPLES_PER_SECOND: f64 = 1e-3;

/// Which limit caused a raise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// The process's own limit.
    #[default]
    Process,
    /// The daemon's limit, of which the process had more than its share.
    Daemon,
}

/// How far the interval of a process is raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raised {
    /// Height of the raise, in quarters of a doubling.
    pub steps: u32,
    /// Number of raises.
    pub raises: u64,
    /// When the last raise from zero happened, by the caller's clock; 0: never.
    pub since_ns: u64,
    /// Cause of the last raise.
    pub cause: Cause,
}

impl Raised {
    /// The steps that multiply an interval by about `factor`.
    pub fn steps_of(factor: f64) -> u32 {
        (PER_DOUBLING * factor.max(1.0).log2()).round() as u32
    }

    /// The factor on the interval.
    pub fn factor(&self) -> f64 {
        (f64::from(self.steps) / PER_DOUBLING).exp2()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) bucket: Bucket,
    pub(super) raised: Raised,
    /// Samples of this turn.
    taken: f64,
    /// Samples per second, smoothed.
    smoothed: f64,
    /// Samples per second in the last turn; `None` if they were too few.
    last: Option<f64>,
    /// Seconds since the last change.
    rested: f64,
}

impl Process {
    pub(super) fn new(limit: f64) -> Process {
        Process {
            bucket: Bucket::new(limit),
            raised: Raised::default(),
            taken: 0.0,
            smoothed: 0.0,
            last: None,
            rested: 0.0,
        }
    }

    /// Changes the limit, when it becomes known who enforces it.
    pub(super) fn limit_to(&mut self, limit: f64) {
        if self.limit() != limit {
            self.bucket = Bucket::new(limit);
        }
    }

    /// The limit, samples per second.
    pub(super) fn limit(&self) -> f64 {
        self.bucket.limit
    }

    pub(super) fn take(&mut self, expected: f64) {
        self.bucket.take(expected);
        self.taken += expected;
    }

    pub(super) fn measure(&mut self, elapsed: f64) {
        self.bucket.fill(elapsed);
        let rate = self.taken / elapsed;
        self.last = (self.taken >= MIN_SAMPLES_FOR_RATE).then_some(rate);
        let keep = (-elapsed / SMOOTHING_SECONDS).exp();
        self.smoothed = self.smoothed * keep + rate * (1.0 - keep);
        self.taken = 0.0;
    }

    /// Samples per second, as far as known.
    pub(super) fn rate(&self) -> f64 {
        self.smoothed.max(self.last.unwrap_or(0.0))
    }

    /// Raises the interval so that the rate becomes `wanted`; false if the interval is already at
    /// its maximum.
    pub(super) fn raise(&mut self, wanted: f64, cause: Cause, now_ns: u64) -> bool {
        self.bucket.forgive();
        let over = (self.rate() / wanted).max(1.0);
        let steps = (PER_DOUBLING * over.log2()).ceil() as u32;
        let before = self.raised.steps;
        let after = (before + steps.clamp(*RAISE_STEPS.start(), *RAISE_STEPS.end())).min(MAX_STEPS);
        if before == after {
            return false;
        }
        if before == 0 {
            self.raised.since_ns = now_ns;
        }
        self.raised.cause = cause;
        self.raised.raises += 1;
        self.set(after);
        true
    }

    pub(super) fn may_recover(&mut self, elapsed: f64, wanted: f64) -> bool {
        self.rested += elapsed;
        self.raised.steps > 0
            && self.rested >= RECOVERY_PAUSE_SECONDS
            && self.bucket.is_half_full()
            && self.rate() + self.more_after_recovery() <= wanted
    }

    /// Samples per second that a recovery adds.
    pub(super) fn more_after_recovery(&self) -> f64 {
        self.rate() * ((f64::from(RECOVERY_STEPS) / PER_DOUBLING).exp2() - 1.0)
    }

    pub(super) fn recover(&mut self) {
        self.set(self.raised.steps.saturating_sub(RECOVERY_STEPS));
    }

    fn set(&mut self, steps: u32) {
        let change = (f64::from(self.raised.steps) - f64::from(steps)) / PER_DOUBLING;
        self.smoothed *= change.exp2();
        self.last = self.last.map(|rate| rate * change.exp2());
        self.raised.steps = steps;
        self.rested = 0.0;
    }

    /// Whether the process can be forgotten.
    pub(super) fn is_idle(&self) -> bool {
        self.raised.raises == 0 && self.smoothed < MIN_SAMPLES_PER_SECOND
    }
}
