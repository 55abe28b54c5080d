//! A line of the list, and the order of lines.

use crate::args::Sort;
use sampler_common::estimate::Estimate;
use sampler_common::profile::Quantities;
use sampler_common::units::grouped;
use sampler_daemon::rpc::v1::{Cost, Exact, Process, ProcessGroup};
use std::cmp::Reverse;

/// A process or a group.
pub(super) struct Entry {
    /// Pid, or number of processes.
    pub(super) number: u64,
    pub(super) name: String,
    /// `None` where it is not known.
    pub(super) allocated: Option<u64>,
    /// Whether that is estimated, because it is not known exactly.
    pub(super) is_estimate: bool,
    /// `None` where it is not known.
    pub(super) held: Option<Estimate>,
    /// Of what it holds, or of what it has allocated where nothing else is known.
    pub(super) spread: Option<Estimate>,
    pub(super) rss: Option<u64>,
    pub(super) samples: u64,
    /// Mean bytes between samples; 0 for a group.
    pub(super) interval: u64,
    /// When it, or the newest of it, came.
    pub(super) came: u64,
    /// Share of its CPU time that was spent in probes.
    pub(super) share: Option<f64>,
}

impl Entry {
    pub(super) fn of_process(of: &Process, totals: &Option<Quantities>) -> Entry {
        Entry {
            number: u64::from(of.pid),
            name: match of.folded {
                0 => of.comm.clone(),
                folded => format!("{} × {}", of.comm, grouped(folded)),
            },
            allocated: allocated(of.exact.as_ref(), totals),
            is_estimate: of.exact.is_none(),
            held: held(totals),
            spread: spread(totals),
            rss: of.memory.map(|memory| memory.rss_bytes),
            samples: of.samples,
            interval: of.interval_bytes,
            came: of.attached_unix_ns,
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
            came: of.newest_unix_ns,
            share: share(of.cost.as_ref()),
        }
    }

    fn held_bytes(&self) -> u64 {
        self.held.map_or(0, |held| held.value as u64)
    }
}

/// Where no window has seen an allocation it is not known that there was none.
fn allocated(exact: Option<&Exact>, totals: &Option<Quantities>) -> Option<u64> {
    let estimate = || {
        let estimate = totals.as_ref()?.alloc_space.estimate;
        let is_known = estimate.value > 0.0 || estimate.has_interval();
        is_known.then_some(estimate.value as u64)
    };
    exact.map(|exact| exact.alloc_space).or_else(estimate)
}

/// Where frees are not seen, or allocations in windows only, nobody knows what is held: it is shown as anything from 0.
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

/// In the order asked for; equal ones by what they allocated, then as they came.
pub(super) fn sorted(entries: impl Iterator<Item = Entry>, by: Sort) -> Vec<Entry> {
    let mut entries: Vec<Entry> = entries.collect();
    entries.sort_by_key(|of| Reverse(of.allocated.unwrap_or(0)));
    match by {
        Sort::Held => entries.sort_by_key(|of| Reverse(of.held_bytes())),
        Sort::Allocated => {}
        Sort::Rss => entries.sort_by_key(|of| Reverse(of.rss)),
        Sort::Samples => entries.sort_by_key(|of| Reverse(of.samples)),
        Sort::Newest => entries.sort_by_key(|of| Reverse(of.came)),
        Sort::Name => entries.sort_by(|a, b| (&a.name, a.number).cmp(&(&b.name, b.number))),
    }
    entries
}
