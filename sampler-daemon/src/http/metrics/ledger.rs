//! What every process has spent, so that it can be reported as counters that only grow although only a few processes have a series.
//!
//! Plainly: a process has a series of its own while it runs and is among the costliest; it counts since its attach, as `ps` does.
//! `other` grows by whatever comes that has no series of its own. So the growth of all series together is the
//! growth of the total, whoever gets a series, loses it or exits; and none of them ever falls. A process that came into `other` before it got a
//! series is in both with what it had spent by then.

use crate::pipeline::{MetricsReport, ProcessMetrics};
use sampler_common::cost::{Range, Tariff, Work};
use sampler_common::estimate::Confidence;
use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

/// Processes with series of their own, at most.
pub(super) const MAX_NAMED: usize = 50;

/// Who a process is, whoever may have its pid later.
type Key = (u32, SystemTime);

/// Counts of a process, or of some.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Amounts {
    work: Work,
    samples: u64,
    bytes: u64,
    objects: u64,
}

impl Amounts {
    fn of(process: &ProcessMetrics) -> Amounts {
        Amounts {
            work: process.work,
            samples: process.samples,
            bytes: process.exact.alloc_space,
            objects: process.exact.alloc_objects,
        }
    }

    fn add(&mut self, other: &Amounts) {
        self.work.add(&other.work);
        self.samples += other.samples;
        self.bytes += other.bytes;
        self.objects += other.objects;
    }

    fn since(&self, earlier: &Amounts) -> Amounts {
        Amounts {
            work: self.work.since(&earlier.work),
            samples: self.samples.saturating_sub(earlier.samples),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            objects: self.objects.saturating_sub(earlier.objects),
        }
    }
}

/// Numbers as they are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Shown {
    /// CPU time spent in probes, nanoseconds; `None`: there are no prices.
    pub(super) spent_ns: Option<Range>,
    /// Samples.
    pub(super) samples: u64,
    /// Whether what follows is all that was allocated.
    pub(super) is_counted: bool,
    /// Bytes allocated.
    pub(super) bytes: u64,
    /// Allocations.
    pub(super) objects: u64,
}

impl Shown {
    /// What `amounts` are by now, and nothing less than it was: prices fall, and calls that failed are taken back. Maxima of ends
    /// that were in order are in order.
    fn rise(&mut self, amounts: &Amounts, tariff: Option<&Tariff>) {
        let now = tariff.map(|tariff| tariff.charge(&amounts.work).range(Confidence::DEFAULT));
        let most = |a: Range, b: Range| Range {
            value: a.value.max(b.value),
            low: a.low.max(b.low),
            high: a.high.max(b.high),
        };
        self.spent_ns = match (self.spent_ns, now) {
            (Some(shown), Some(now)) => Some(most(shown, now)),
            (shown, now) => shown.or(now),
        };
        self.samples = self.samples.max(amounts.samples);
        self.bytes = self.bytes.max(amounts.bytes);
        self.objects = self.objects.max(amounts.objects);
    }
}

/// A process with a series of its own.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) pid: u32,
    pub(super) comm: String,
    pub(super) shown: Shown,
}

/// A page's numbers.
#[derive(Clone, Debug)]
pub(super) struct Accounts {
    /// Processes with series of their own, the costliest first.
    pub(super) named: Vec<Named>,
    /// All others.
    pub(super) other: Shown,
    /// Everything.
    pub(super) total: Shown,
}

/// What the last page reported.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    named: HashMap<Key, (Amounts, Shown)>,
    known: HashSet<Key>,
    other: (Amounts, Shown),
    total: (Amounts, Shown),
}

impl Ledger {
    /// The numbers of the next page.
    pub(super) fn enter(&mut self, report: &MetricsReport) -> Accounts {
        let prices = &report.status.prices;
        let tariff = prices.why.is_empty().then_some(&prices.tariff);
        self.enter_processes(&report.processes, tariff, MAX_NAMED)
    }

    fn enter_processes(
        &mut self,
        processes: &[ProcessMetrics],
        tariff: Option<&Tariff>,
        most: usize,
    ) -> Accounts {
        let key = |of: &ProcessMetrics| (of.pid, of.attached);
        let mut total = Amounts::default();
        processes.iter().for_each(|process| total.add(&Amounts::of(process)));
        let mut came = total.since(&self.total.0);
        let mut named = HashMap::new();
        let mut accounts = Vec::new();
        for process in costliest(processes, tariff, most) {
            let amounts = Amounts::of(process);
            let (before, mut shown) = match self.named.get(&key(process)) {
                Some((before, shown)) => (Some(*before), *shown),
                None if self.known.contains(&key(process)) => (None, Shown::default()),
                // All of it came just now.
                None => (Some(Amounts::default()), Shown::default()),
            };
            if let Some(before) = before {
                came = came.since(&amounts.since(&before));
            }
            shown.rise(&amounts, tariff);
            shown.is_counted = process.is_counted;
            named.insert(key(process), (amounts, shown));
            accounts.push(Named { pid: process.pid, comm: process.comm.clone(), shown });
        }
        self.named = named;
        self.known = processes.iter().map(key).collect();
        self.other.0.add(&came);
        self.total.0 = total;
        for (amounts, shown) in [&mut self.other, &mut self.total] {
            shown.rise(amounts, tariff);
            shown.is_counted = true;
        }
        Accounts { named: accounts, other: self.other.1, total: self.total.1 }
    }
}

/// Those of the processes that run on which most was spent.
fn costliest<'p>(
    processes: &'p [ProcessMetrics],
    tariff: Option<&Tariff>,
    most: usize,
) -> Vec<&'p ProcessMetrics> {
    let cost = |of: &ProcessMetrics| match tariff {
        Some(tariff) => tariff.charge(&of.work).ns,
        None => of.work.all_hits(),
    };
    let running = processes.iter().filter(|process| process.is_running);
    let mut by_cost: Vec<(f64, &ProcessMetrics)> = running.map(|of| (cost(of), of)).collect();
    by_cost.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.pid.cmp(&b.1.pid)));
    by_cost.truncate(most);
    by_cost.into_iter().map(|(_, process)| process).collect()
}

#[cfg(test)]
mod tests;
