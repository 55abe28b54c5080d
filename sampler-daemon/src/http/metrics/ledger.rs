//! The costs and counts of all processes as counters that only grow, although only a few processes
//! have series.
//!
//! Plainly: a process has its own series while it runs and is among the costliest. The series
//! counts since the attach, as `ps` does. The series `other` grows by everything that comes from
//! processes without series. So the growth of all series together is the growth of the total,
//! whichever process gets a series, loses it or exits. No series ever falls. A process may count in
//! `other` before it gets a series. Its earlier amounts are then in both series.

use crate::pipeline::{MetricsReport, ProcessMetrics};
use sampler_common::cost::{Range, Tariff, Work};
use sampler_common::estimate::Confidence;
use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

/// Maximum number of processes with their own series.
pub(super) const MAX_NAMED: usize = 50;

/// Identifies a process, even if its pid is reused.
type Key = (u32, SystemTime);

/// Counts of one process or of several.
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

/// Numbers as the page shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Shown {
    /// CPU time spent in probes, in nanoseconds; `None` if there are no prices.
    pub(super) spent_ns: Option<Range>,
    /// Number of samples.
    pub(super) samples: u64,
    /// Whether `bytes` and `objects` are all that was allocated.
    pub(super) is_counted: bool,
    /// Allocated bytes.
    pub(super) bytes: u64,
    /// Number of allocations.
    pub(super) objects: u64,
}

impl Shown {
    /// Raises the numbers to those of `amounts`; no number falls, although failed calls are
    /// subtracted from counts. The ends of the range stay in order, because the maximum of each end
    /// is taken.
    fn rise(&mut self, amounts: &Amounts, tariff: Option<&Tariff>) {
        let now = tariff.map(|tariff| tariff.charge(&amounts.work).cpu.range(Confidence::DEFAULT));
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

/// A process with its own series.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) pid: u32,
    pub(super) comm: String,
    pub(super) shown: Shown,
}

/// The numbers of a page.
#[derive(Clone, Debug)]
pub(super) struct Accounts {
    /// Processes with their own series, the costliest first.
    pub(super) named: Vec<Named>,
    /// All other processes.
    pub(super) other: Shown,
    /// All processes.
    pub(super) total: Shown,
}

/// The numbers of the last page.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    named: HashMap<Key, (Amounts, Shown)>,
    known: HashSet<Key>,
    other: (Amounts, Shown),
    total: (Amounts, Shown),
}

impl Ledger {
    /// Returns the numbers of the next page.
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
        let mut added = total.since(&self.total.0);
        let mut named = HashMap::new();
        let mut accounts = Vec::new();
        for process in costliest(processes, tariff, most) {
            let amounts = Amounts::of(process);
            let (before, mut shown) = match self.named.get(&key(process)) {
                Some((before, shown)) => (Some(*before), *shown),
                None if self.known.contains(&key(process)) => (None, Shown::default()),
                // The process is new, so all its amounts are new.
                None => (Some(Amounts::default()), Shown::default()),
            };
            if let Some(before) = before {
                added = added.since(&amounts.since(&before));
            }
            shown.rise(&amounts, tariff);
            shown.is_counted = process.is_counted;
            named.insert(key(process), (amounts, shown));
            accounts.push(Named { pid: process.pid, comm: process.comm.clone(), shown });
        }
        self.named = named;
        self.known = processes.iter().map(key).collect();
        self.other.0.add(&added);
        self.total.0 = total;
        for (amounts, shown) in [&mut self.other, &mut self.total] {
            shown.rise(amounts, tariff);
            shown.is_counted = true;
        }
        Accounts { named: accounts, other: self.other.1, total: self.total.1 }
    }
}

/// Returns the running processes on which most CPU time was spent.
fn costliest<'p>(
    processes: &'p [ProcessMetrics],
    tariff: Option<&Tariff>,
    most: usize,
) -> Vec<&'p ProcessMetrics> {
    let cost = |of: &ProcessMetrics| match tariff {
        Some(tariff) => tariff.charge(&of.work).cpu.ns,
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
