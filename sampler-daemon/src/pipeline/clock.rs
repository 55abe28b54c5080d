//! The two clocks: `CLOCK_MONOTONIC`, by which records are stamped, and the one that people read.

use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// `CLOCK_MONOTONIC` now, nanoseconds.
pub(super) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Both clocks at one moment, to turn times of one into times of the other. A clock that was set meanwhile moves what people read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    /// `CLOCK_MONOTONIC`
    pub(super) now_ns: u64,
    /// Since the Unix epoch.
    unix_ns: u64,
}

impl Clocks {
    pub(super) fn now() -> Clocks {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        Clocks {
            now_ns: monotonic_ns(),
            unix_ns: unix.map_or(0, |duration| duration.as_nanos() as u64),
        }
    }

    /// Since the Unix epoch.
    pub(super) fn to_unix(self, monotonic_ns: u64) -> u64 {
        self.unix_ns.saturating_add(monotonic_ns).saturating_sub(self.now_ns)
    }

    /// `CLOCK_MONOTONIC`; 0 for what was before it began.
    pub(super) fn at_unix(self, unix_ns: u64) -> u64 {
        self.now_ns.saturating_add(unix_ns).saturating_sub(self.unix_ns)
    }
}
