//! The time before a window in which calls of a process's markers are counted alone ([`super::markers`]).

use super::patched::ensure_intact;
use super::worker::Worker;
use crate::bpf::Points;
use crate::store::ProcessId;
use crate::target::hazard;
use crate::target::spots::{self, Spot};
use sampler_common::duty::{Counted, Groups};
use sampler_common::wire::Cookie;

/// Time between two calls: at least as many times what a lone trap adds, so that it adds a part of 13 % at most.
const LEAST_GAPS: f64 = 8.0;
/// As many times that between calls that are chosen for how often they come.
const WISHED_GAPS: f64 = 1.5;
/// As many times the calls of the least gap end the count before a window, from when they are probed on, and there are no markers.
const MOST_CALLS: f64 = 3.0;

impl Worker {
    /// Whether calls of functions are to be counted before the next window of a process: its markers', or those of some that may be.
    pub(super) fn choose_markers(&mut self, slot: u32) -> bool {
        let least_ns = self.least_gap_ns();
        let Worker { cycles, ingest, .. } = self;
        let (Some(cycle), Some(source)) = (cycles.get_mut(&slot), ingest.sources.get(&slot)) else {
            return false;
        };
        let (id, markers) = (source.process, &mut cycle.markers);
        if !markers.is_wanted {
            return false;
        }
        let groups = ingest.clustered.groups(id);
        if groups.is_some_and(Groups::follows_tally) {
            return false;
        }
        let windows = groups.map_or(0, Groups::windows);
        if markers.is_out(windows) {
            let allocators = source.allocators.clone();
            let pid = source.pid;
            let each_ns = groups.and_then(Groups::own_ns).unwrap_or(0.0);
            let most_part = each_ns / (WISHED_GAPS * least_ns);
            let has_shadow_stack = hazard::has_shadow_stack(pid);
            let listed = ingest.candidates(id, &allocators, has_shadow_stack, most_part);
            let spots = spots::mapped_in(pid, listed);
            tracing::debug!(slot, candidates = spots.len(), each_ns, most_part, "markers");
            markers.list(spots);
        }
        markers.choose()
    }

    /// Time between two calls of markers of a process at least, nanoseconds.
    fn least_gap_ns(&self) -> f64 {
        LEAST_GAPS * self.ingest.clustered.usual().lone_ns().0
    }

    /// Before the window of a process its markers are probed alone; false: they cannot be, or there are none.
    pub(super) fn open_marking(&mut self, slot: u32) -> bool {
        let (Some(cycle), Some(source)) = (self.cycles.get(&slot), self.ingest.sources.get(&slot))
        else {
            return false;
        };
        let (ticks, pid) = (cycle.window.marking, source.pid);
        let probed = cycle.markers.probed().to_vec();
        if ticks == 0 || probed.is_empty() {
            return false;
        }
        self.set_spots(slot);
        let least_ns = self.least_gap_ns();
        let Some(duties) = &mut self.kernel.duties else { return false };
        let alone_ns = ticks as f64 * duties.timers().unit(true);
        duties.lead(slot, 1, true);
        duties.begin_marks(slot, (MOST_CALLS * alone_ns / least_ns).max(64.0) as i64);
        let before = self.attaching_ns();
        let attached = self.attach_markers(slot, pid, &probed);
        let attach_ns = self.attaching_ns().saturating_sub(before);
        let is_attached = attached.is_ok();
        if let Err(error) = attached
            && self.attached.get(&slot).is_some_and(|of| of.is_running())
        {
            tracing::warn!(pid, "no calls are counted before a window: {error:#}");
        }
        let (Some(cycle), Some(duties)) = (self.cycles.get_mut(&slot), &self.kernel.duties) else {
            return false;
        };
        cycle.attach_ns += attach_ns;
        if is_attached {
            cycle.markers.is_marking = true;
            duties.ready(slot, ticks, true, None);
        } else {
            cycle.markers.fail();
            self.detach_after_window(slot);
            self.await_without_markers(slot);
        }
        true
    }

    /// Probes functions of a process as its markers; some may be, where it fails.
    fn attach_markers(&mut self, slot: u32, pid: u32, markers: &[Spot]) -> anyhow::Result<()> {
        ensure_intact(pid, markers)?;
        let point = |(number, spot): (u8, &Spot)| (spot.offset, Cookie::marker(slot, number).0);
        let numbered: Vec<(u8, &Spot)> = (0..).zip(markers).collect();
        for of_file in numbered.chunk_by(|(_, a), (_, b)| a.is_in_same_file(b)) {
            let marking = of_file.iter().copied().map(point).collect();
            let points = Points { marking, ..Points::default() };
            let links = self.kernel.attach(&of_file[0].1.file, Some(pid), &points)?;
            self.attached.entry(slot).and_modify(|of| of.links.add_for_window(links));
        }
        Ok(())
    }

    /// The count before the window of a process is over: the window is next, or where the count has ended too early, waits for its time.
    pub(super) fn end_marking(&mut self, slot: u32) {
        let least_ns = self.least_gap_ns();
        let (Some(cycle), Some(duties)) = (self.cycles.get_mut(&slot), &self.kernel.duties) else {
            return;
        };
        let (calls, is_cut) = duties.marks(slot);
        let late = duties.late(slot);
        cycle.window = cycle.window.marking_late_by(late);
        if is_cut {
            cycle.window.marking = cycle.window.marking.saturating_sub(duties.left(slot));
        }
        let timers = duties.timers();
        // What was cut is known to half a tick.
        let half = if is_cut { 0.5 * timers.unit(true) } else { 0.0 };
        let alone_ns = cycle.window.marking_ns(timers) + half;
        let markers = &mut cycle.markers;
        markers.is_marking = false;
        let names = || markers.probed().iter().map(|of| of.name.clone()).collect::<Vec<_>>();
        tracing::debug!(slot, ?calls, is_cut, alone_ns, late, probed = ?names(), "markers");
        // What was only tried is not counted in the window.
        let is_counted = markers.counted(&calls, is_cut, alone_ns, least_ns);
        if !is_cut {
            duties.come(slot);
        }
        if !is_counted {
            self.detach_after_window(slot);
        }
        if is_cut {
            return self.await_without_markers(slot);
        }
        // The count may have taken longer than anybody stays ahead.
        self.get_ahead_again(slot);
        self.open_window(slot);
    }

    /// What its tallies and calls of its markers tell of the window of a process that has ended, in which so many bytes were
    /// allocated by so many allocations.
    pub(super) fn counted(&mut self, slot: u32, allocated: [f64; 2]) -> Counted {
        let tallied = self.tallied(slot, allocated);
        let (Some(cycle), Some(duties), Some(source)) =
            (self.cycles.get_mut(&slot), &self.kernel.duties, self.ingest.sources.get(&slot))
        else {
            return Counted::default();
        };
        let groups = self.ingest.clustered.groups_mut(source.process);
        let markers = &mut cycle.markers;
        // For good: were it to depend on what the program does just now, so would how its windows are met.
        markers.is_wanted = markers.is_wanted || groups.want_marks();
        let (calls, _) = duties.marks(slot);
        let (calls, verdict) = markers.told(&calls, allocated[1]);
        groups.judge_marks(verdict, markers.model());
        Counted { calls, tallied, stepped: None }
    }

    /// A process's markers, where they tell something.
    pub(super) fn marker_names(&self, id: ProcessId) -> Option<String> {
        self.cycles.get(&self.slot_of(id)?)?.markers.names()
    }
}
