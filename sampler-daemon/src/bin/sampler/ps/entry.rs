//! A line of the list, and the order of lines.

use crate::args::Sort;
use sampler_common::estimate::Estimate;
use sampler_common::profile::Quantities;
use sampler_common::units::grouped;
use sampler_daemon::rpc::v1::{Cost, Exact, Process, ProcessGroup};
use std::cmp::Reverse;

/// A process or a group.
pub(super) struct Entry {
    /// The pid, or the number of processes.
    pub(super) number: u64,
    pub(super) name: String,
    /// Allocated bytes; `None` if unknown.
    pub(super) allocated: Option<u64>,
    /// Whether `allocated` is an estimate, because the exact number is not known.
    pub(super) is_estimate: bool,
    /// Held bytes; `None` if unknown.
    pub(super) held: Option<Estimate>,
    /// The estimate whose interval is shown: of held bytes, or of allocated bytes if `held` is
    /// unknown.
    pub(super) spread: Option<Estimate>,
    pub(super) rss: Option<u64>,
    pub(super) samples: u64,
    /// Mean bytes between samples; 0 for a group.
    pub(super) interval: u64,
    /// The time at which the process, or the newest process of the group, appeared.
    pub(super) arrived: u64,
    /// Share of the CPU time that was spent in probes.
    pub(super) share: Option<f64>,
}

impl Entry {
    pub(super) fn of_process(of: &Process, totals: &Option<Quantities>) -> Entry {
        Entry {
            number: u64::from(of.pid),
            name: match of.exited_count {
                0 => of.comm.clone(),
                exited_count => format!("{} × {}", of.comm, grouped(exited_count)),
            },
            allocated: allocated(of.exact.as_ref(), totals),
            is_estimate: of.exact.is_none(),
            held: held(totals),
            spread: spread(totals),
            rss: of.memory.map(|memory| memory.rss_bytes),
            samples: of.samples,
            interval: of.interval_bytes,
            arrived: of.attached_unix_ns,
            share: share(of.cost.as_ref()),
        }
    }

    pub(super) fn of_group(of: &ProcessGroup, totals: &Option<Quantities>) -> Entry {
        Entry {
            number: of.processes,
            name: of.key.clone(),
            allocated: allocated(of.exact.as_ref(), totals),
            is_estimate: of.exact.is_none(),
            held: held(totals),
            spread: spread(totals),
            rss: of.memory.map(|memory| memory.rss_bytes),
            samples: of.samples,
            interval: 0,
            arrived: of.newest_unix_ns,
            share: share(of.cost.as_ref()),
        }
    }

    fn held_bytes(&self) -> u64 {
        self.held.map_or(0, |held| held.value as u64)
    }
}

/// Returns the allocated bytes. If no window saw an allocation, the number is unknown and may not
/// be 0.
fn allocated(exact: Option<&Exact>, totals: &Option<Quantities>) -> Option<u64> {
    let estimate = || {
        let estimate = totals.as_ref()?.alloc_space.estimate;
        let is_known = estimate.value > 0.0 || estimate.has_interval();
        is_known.then_some(estimate.value as u64)
    };
    exact.map(|exact| exact.alloc_space).or_else(estimate)
}

/// Returns the held bytes; `None` if frees are not seen, or allocations are seen only in windows.
/// samplerd then reports an interval from 0 to infinity.
fn held(totals: &Option<Quantities>) -> Option<Estimate> {
    let held = totals.as_ref()?.inuse_space.estimate;
    (held.value > 0.0 || held.high.is_finite()).then_some(held)
}

fn spread(totals: &Option<Quantities>) -> Option<Estimate> {
    held(totals).or_else(|| Some(totals.as_ref()?.alloc_space.estimate))
}

fn share(of: Option<&Cost>) -> Option<f64> {
    Some(of?.share?.value)
}

/// Sorts the entries by `by`. Equal entries are sorted by allocated bytes, then keep their order.
pub(super) fn sorted(entries: impl Iterator<Item = Entry>, by: Sort) -> Vec<Entry> {
    let mut entries: Vec<Entry> = entries.collect();
    entries.sort_by_key(|of| Reverse(of.allocated.unwrap_or(0)));
    match by {
        Sort::Held => entries.sort_by_key(|of| Reverse(of.held_bytes())),
        Sort::Allocated => {}
        Sort::Rss => entries.sort_by_key(|of| Reverse(of.rss)),
        Sort::Samples => entries.sort_by_key(|of| Reverse(of.samples)),
        Sort::Newest => entries.sort_by_key(|of| Reverse(of.arrived)),
        Sort::Name => entries.sort_by(|a, b| (&a.name, a.number).cmp(&(&b.name, b.number))),
    }
    entries
}
