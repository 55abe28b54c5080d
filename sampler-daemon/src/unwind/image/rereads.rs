//! When the mappings of a process are read again: how often, and at what cost.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Shortest mean time between reads for unknown addresses.
const MIN_REREAD_PERIOD: Duration = Duration::from_millis(10);

/// Reads for unknown addresses cost at most 0.5 % of the time, so a process with many mappings
/// waits longer.
const UNKNOWN_COST_FACTOR: u32 = 200;

/// Most reads that may follow each other without a pause, for a library that has just been loaded
/// and for libraries that it loads. Together they cost at most [`AT_ONCE_COST`].
const AT_ONCE: u32 = 16;
const AT_ONCE_COST: Duration = Duration::from_millis(16);

/// The age at which mappings are read again, because another library may have replaced one at the
/// same address. Such reads cost at most a thousandth of the time, so slow reads are rarer.
const OLD_AFTER: Duration = Duration::from_secs(1);
const OLD_COST_FACTOR: u32 = 1000;

/// Addresses at which a program may have code. The first page stands for wrong pointers. Programs
/// get addresses beyond user space with four levels of page tables only on request.
const CODE: std::ops::RangeInclusive<u64> = 4096..=(1 << 47) - 1;

/// When the mappings of one process were read, the CPU time of that read, and how many reads are
/// left.
#[derive(Debug)]
pub(super) struct Rereads {
    read_at: Instant,
    took: Duration,
    left: u32,
}

impl Rereads {
    /// Begins after the first read.
    pub(in crate::unwind) fn begin() -> Rereads {
        Rereads { read_at: Instant::now(), took: Duration::ZERO, left: AT_ONCE }
    }

    /// Whether the mappings may be read again for an address that no mapping contains. If so, one
    /// read is used up.
    pub(super) fn may_find(&mut self, address: u64) -> bool {
        CODE.contains(&address) && self.take(self.read_at.elapsed())
    }

    /// Uses up one read, `since` the last read; false if none is left.
    fn take(&mut self, since: Duration) -> bool {
        let pause = MIN_REREAD_PERIOD.max(self.took * UNKNOWN_COST_FACTOR);
        let regained = u32::try_from(since.as_micros() / pause.as_micros()).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(regained).min(self.at_once());
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        true
    }

    fn at_once(&self) -> u32 {
        let reads = AT_ONCE_COST.as_micros() / self.took.as_micros().max(1);
        u32::try_from(reads).unwrap_or(AT_ONCE).clamp(1, AT_ONCE)
    }

    /// Whether the mappings are read again because of their age.
    pub(super) fn are_old(&self) -> bool {
        self.read_at.elapsed() > OLD_AFTER.max(self.took * OLD_COST_FACTOR)
    }

    /// Records a read; [`processor_time`] was `begin` before the read.
    pub(in crate::unwind) fn read(&mut self, begin: Duration) {
        self.read_at = Instant::now();
        self.took = processor_time().saturating_sub(begin);
    }

    /// Records that events gave the mappings without a read.
    pub(super) fn note_event(&mut self) {
        self.read_at = Instant::now();
    }
}

/// CPU time of this thread. On a busy machine reading takes longer, but costs no more CPU time.
pub(super) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_rereads_are_done_rarely() {
        let mut cheap = Rereads { left: 0, ..Rereads::begin() };
        assert!(!cheap.take(Duration::from_millis(9)));
        assert!(cheap.take(Duration::from_millis(10)));
        let took = Duration::from_millis(3);
        let mut dear = Rereads { took, left: 0, ..Rereads::begin() };
        assert!(!dear.take(Duration::from_millis(599)));
        assert!(dear.take(Duration::from_millis(600)));
        // Unused reads are saved up only to a bound, which is lower if reads are slow.
        let at_once = |rereads: &mut Rereads| {
            assert!(rereads.take(Duration::from_secs(3600)));
            1 + (0..100).filter(|_| rereads.take(Duration::ZERO)).count()
        };
        assert_eq!((at_once(&mut cheap), at_once(&mut dear)), (16, 5));
    }

    #[test]
    fn impossible_addresses_cause_no_reread() {
        let mut rereads = Rereads::begin();
        for address in [0, 0x10, 0x4141_4141_0000_0000, u64::MAX] {
            assert!((0..100).all(|_| !rereads.may_find(address)));
        }
        assert!(rereads.may_find(0x5555_0000_0000));
    }
}
