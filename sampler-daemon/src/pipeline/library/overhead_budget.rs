//! `--max-overhead`: an injected process sends at most as many samples as a share of its CPU time
//! pays for.
//!
//! ```text
//! samples a second = share · CPUs in use / CPU time that a sample costs
//! ```
//!
//! The price is measured on this machine ([`crate::pipeline::cost`]), and the upper end of its interval is
//! used.
//! The process enforces the limit by itself ([`sampler_common::sampling::token_bucket`]): it raises
//! its interval when it allocates more.
//! The cost of its hooks in each call is not included: that cost is fixed.

use crate::inspect::process::processor::processor_ns;
use crate::pipeline::worker::Worker;
use sampler_common::cost::{Events, Placed, Work};
use sampler_common::estimate::Confidence;
use sampler_common::wire::Role;
use std::time::{Duration, Instant, SystemTime};

/// Assumed cost of a sample where prices could not be measured, nanoseconds.
const UNMEASURED_NS: f64 = 10_000.0;
/// Assumed stack of a sample before the first sample, bytes.
const USUAL_STACK_BYTES: u64 = 4096;
/// Shortest time over which CPU use is measured: CPU time is counted in ticks of 10 ms.
const SHORTEST: Duration = Duration::from_millis(900);
/// Samples per second that an idle process may send. When it wakes up, its first samples come
/// before the next inspection.
const MIN_PER_SECOND: f64 = 20.0;

/// Number of CPUs that a process uses.
#[derive(Clone, Copy)]
pub(super) struct CpusInUse {
    since: Instant,
    used_ns: u64,
    cpus: f64,
}

impl CpusInUse {
    /// The mean over the process's life, until the first measurement.
    fn begin(used_ns: u64, age: Duration) -> CpusInUse {
        let cpus = used_ns as f64 / age.as_nanos().max(1) as f64;
        CpusInUse { since: Instant::now(), used_ns, cpus }
    }

    /// Updates the CPU use from `used_ns` and the time since the last measurement.
    fn update(&mut self, used_ns: u64) {
        let watched = self.since.elapsed();
        if watched >= SHORTEST {
            let used = used_ns.saturating_sub(self.used_ns) as f64;
            let cpus = used / watched.as_nanos() as f64;
            *self = CpusInUse { since: Instant::now(), used_ns, cpus };
        }
    }
}

impl Worker {
    /// Sets the limit of a process with our library by its budget and its current CPU use.
    pub(in crate::pipeline) fn keep_budget(&mut self, slot: u32) {
        if self.config.max_overhead.is_none() {
            return;
        }
        let Some(profiled) = self.ingest.table.get_mut(slot) else { return };
        let process = profiled.attached.as_ref().and_then(|attached| attached.process.as_ref());
        let (Some(process), Some(library)) = (process, &mut profiled.library) else { return };
        let Some(used_ns) = processor_ns(process.pid, process.start_ticks) else { return };
        match &mut library.cpus {
            Some(cpus) => cpus.update(used_ns),
            none => {
                let age = SystemTime::now().duration_since(process.started()).unwrap_or_default();
                *none = Some(CpusInUse::begin(used_ns, age));
            }
        }
        self.limit_library(slot);
    }

    /// Samples per second that a process can pay for.
    pub(super) fn affordable_per_second(&self, slot: u32) -> f64 {
        let library = self.ingest.table.get(slot).and_then(|profiled| profiled.library.as_ref());
        let cpus = library.and_then(|library| library.cpus);
        let (Some(budget), Some(cpus)) = (self.config.max_overhead, cpus) else {
            return f64::INFINITY;
        };
        (budget.share() * cpus.cpus * 1e9 / self.sample_ns(slot)).max(MIN_PER_SECOND)
    }

    /// The largest CPU time that a sample costs its process, with the end of its block,
    /// nanoseconds.
    fn sample_ns(&self, slot: u32) -> f64 {
        let record = self.ingest.table.get(slot).map(|of| self.ingest.processes.get(of.id));
        let spending = record.map(|record| record.spending).unwrap_or_default();
        let stack_bytes = spending.stack_bytes.checked_div(spending.samples);
        let mut work = Work::default();
        work.hit(Role::OtelAlloc, Placed::Emulated, Events::exact(1));
        work.sampled(Events::exact(1), stack_bytes.unwrap_or(USUAL_STACK_BYTES));
        work.hit(Role::OtelFree, Placed::Emulated, Events::exact(1));
        let spent = self.prices.charge(&work);
        spent.map_or(UNMEASURED_NS, |spent| spent.cpu.range(Confidence::DEFAULT).high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_in_use_are_those_of_the_last_period() {
        let second = Duration::from_secs(1);
        let mut cpus = CpusInUse::begin(3_000_000_000, 6 * second);
        assert_eq!(cpus.cpus, 0.5);
        // Too early for a measurement.
        cpus.update(9_000_000_000);
        assert_eq!(cpus.cpus, 0.5);
        cpus.since -= 2 * second;
        cpus.update(7_000_000_000);
        assert!((1.9..=2.0).contains(&cpus.cpus), "{}", cpus.cpus);
        cpus.since -= second;
        cpus.update(7_000_000_000);
        assert_eq!(cpus.cpus, 0.0);
        assert!(CpusInUse::begin(0, Duration::ZERO).cpus == 0.0);
    }
}
