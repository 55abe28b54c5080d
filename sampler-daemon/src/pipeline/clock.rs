//! The two clocks: `CLOCK_MONOTONIC`, which stamps records, and wall-clock time (`CLOCK_REALTIME`).

use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;

/// A step of the wall clock from which on it counts as set. Smaller differences are a delay between
/// two readings: both clocks are slewed alike.
const STEP_NS: u64 = 20_000_000;

/// `CLOCK_MONOTONIC` now, nanoseconds.
pub(super) fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// CPU time of this process, nanoseconds.
pub(super) fn processor_ns() -> u64 {
    read(ClockId::ProcessCPUTime)
}

/// CPU time of this thread, nanoseconds.
pub(super) fn thread_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Converts times between the clocks, always in the same way. So a border of windows from an
/// earlier answer is found again to the nanosecond, unless the clock was set meanwhile.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// How far the time since the Unix epoch is ahead of `CLOCK_MONOTONIC`; 0 before the first
    /// reading.
    ahead_ns: Cell<u64>,
}

impl Clock {
    pub(super) fn now(&self) -> Clocks {
        // A delay between the two readings increases the difference, so the least difference is
        // right.
        let read_both = |_| {
            let now_ns = monotonic_ns();
            (read(ClockId::Realtime).saturating_sub(now_ns), now_ns)
        };
        let (ahead_ns, now_ns) = (0..3).map(read_both).min().unwrap_or_default();
        if self.ahead_ns.get().abs_diff(ahead_ns) >= STEP_NS {
            self.ahead_ns.set(ahead_ns);
        }
        Clocks { now_ns, ahead_ns: self.ahead_ns.get() }
    }
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    /// `CLOCK_MONOTONIC`
    pub(super) now_ns: u64,
    ahead_ns: u64,
}

impl Clocks {
    /// A time of `CLOCK_MONOTONIC` as nanoseconds since the Unix epoch.
    pub(super) fn to_unix(self, monotonic_ns: u64) -> u64 {
        monotonic_ns.saturating_add(self.ahead_ns)
    }

    /// A time since the Unix epoch as `CLOCK_MONOTONIC`; 0 for times before that clock began.
    pub(super) fn at_unix(self, unix_ns: u64) -> u64 {
        unix_ns.saturating_sub(self.ahead_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_converts_back() {
        let clock = Clock::default();
        let unix = clock.now().to_unix(12_345);
        for _ in 0..1000 {
            assert_eq!(clock.now().at_unix(unix), 12_345);
        }
        assert_eq!(clock.now().at_unix(3), 0);
    }

    #[test]
    fn a_clock_that_was_set_is_followed() {
        let clock = Clock::default();
        let ahead = clock.now().ahead_ns;
        clock.ahead_ns.set(ahead + 3_600_000_000_000);
        assert!(clock.now().ahead_ns.abs_diff(ahead) < STEP_NS);
        clock.ahead_ns.set(ahead + STEP_NS / 4);
        assert_eq!(clock.now().ahead_ns, ahead + STEP_NS / 4);
    }
}
