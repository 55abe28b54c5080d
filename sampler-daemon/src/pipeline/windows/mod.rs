//! `--windows`: the probes of a process are attached for short windows of its progress.
//!
//! The process's clock ([`sampler_common::wire::WindowState`]) says when a window opens, the
//! planner ([`sampler_common::windows::Planner`]) how often and for how long. Between two windows
//! nothing is attached.
//!
//! ```text
//! Waiting ──clock──▶ Due ──attach──▶ Ready ──clock──▶ Open ──clock──▶ Over ──detach, plan──▶ Waiting
//! ```

mod expansion;
mod window;

pub(super) use expansion::Expansions;
pub(super) use window::Reading;

use super::worker::Worker;
use crate::bpf::maps::windows::WindowGates;
use crate::inspect::placement::probe_addresses;
use crate::inspect::process::processor;
use crate::pipeline::records::ingest::Ingest;
use crate::store::{ProcessId, Sampling};
use sampler_common::windows::{Budget, Clock, Group, Ledger, Planner, Window};
use sampler_common::wire::Gate;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The interval is changed if it differs by this factor.
const INTERVAL_CHANGE: f64 = 1.25;
/// Assumed progress during an attach before one is measured, nanoseconds.
const FIRST_LEAD_NS: f64 = 5e6;
/// With each window, the longest attach so far shrinks by this part.
const LEAD_DECAY: u64 = 8;

/// The windows of a process.
pub(super) struct Cycle {
    planner: Planner,
    window: Window,
    /// Tick at which the stratum began.
    began: u64,
    /// Tick at which the window is to open.
    open_at: u64,
    /// Ticks before `open_at` at which the daemon is woken. Attaching usually takes less.
    /// So the place of a window does not depend on how fast the program is while it is being
    /// attached.
    lead: u64,
    /// The kernel side's counts when the last window ended.
    last: Reading,
    /// CPU time of attaching for the current window, nanoseconds.
    attach_ns: u64,
    /// CPU time of detaching, summed over all windows, nanoseconds; closing links add to it.
    detach_ns: Arc<AtomicU64>,
    /// The value of `detach_ns` at the last window.
    detached_ns: u64,
    /// CPU time of attaching and detaching, of all windows, nanoseconds.
    fixed_ns: f64,
}

impl Cycle {
    /// Records that attaching has taken `ticks` ticks.
    fn attached_in(&mut self, ticks: u64) {
        self.lead = (ticks + 1).max(self.lead - self.lead / LEAD_DECAY);
    }
}

impl Worker {
    /// Plans the first window of a process.
    pub(super) fn begin_windows(&mut self, slot: u32, budget: Budget) {
        let Some(gates) = &self.kernel.windows else { return };
        let lead = (FIRST_LEAD_NS / gates.clock().own_ns()).ceil() as u64;
        let mut planner = Planner::new(budget, gates.clock());
        let window = planner.next(&Ledger::default(), fastrand::f64());
        let cycle = Cycle {
            planner,
            window,
            began: gates.ticks(slot),
            open_at: 0,
            lead,
            last: Reading::default(),
            attach_ns: 0,
            detach_ns: Arc::default(),
            detached_ns: 0,
            fixed_ns: 0.0,
        };
        if let Some(profiled) = self.ingest.table.get_mut(slot) {
            profiled.cycle = Some(cycle);
        }
        self.set_probe_addresses(slot);
        self.await_window(slot);
    }

    /// Opens the windows that are due, and ends those that are over.
    pub(super) fn open_and_end_windows(&mut self) {
        self.end_windows();
        for slot in self.slots_with(Gate::Due) {
            self.open_window(slot);
            // Attaching takes a while, and every call pays until the probes of an ended window are
            // gone.
            self.end_windows();
        }
        if let Some(gates) = &mut self.kernel.windows {
            gates.follow_cpus();
        }
    }

    fn end_windows(&mut self) {
        for slot in self.slots_with(Gate::Over) {
            self.detach_after_window(slot);
            self.read_ring();
            self.end_window(slot);
        }
    }

    fn slots_with(&self, gate: Gate) -> Vec<u32> {
        let Some(gates) = &self.kernel.windows else { return Vec::new() };
        self.ingest.with_windows().filter(|slot| gates.gate(*slot) == gate).collect()
    }

    /// Waits until the clock reaches the planned window.
    fn await_window(&mut self, slot: u32) {
        let (Some(gates), Some(cycle)) =
            (&mut self.kernel.windows, self.ingest.table.cycle_mut(slot))
        else {
            return;
        };
        cycle.open_at = cycle.began + cycle.window.offset;
        gates.wait_for(slot, cycle.open_at.saturating_sub(cycle.lead));
        let interval = cycle.window.interval_bytes;
        self.change_interval(slot, interval);
    }

    /// Plans the next window. Its stratum begins where the last stratum ends.
    fn plan_window(&mut self, slot: u32) {
        let ledger = self.ledger(slot);
        let (Some(cycle), Some(gates)) = (self.ingest.table.cycle_mut(slot), &self.kernel.windows)
        else {
            return;
        };
        // If the daemon was late, the ticks since then belong to no stratum.
        cycle.began = (cycle.began + cycle.window.length).max(gates.ticks(slot));
        cycle.window = cycle.planner.next(&ledger, fastrand::f64());
        self.await_window(slot);
    }

    /// Skips a window: its samples are dropped and counted as dropped.
    pub(super) fn skip_window(&mut self, slot: u32) {
        if self.ingest.table.cycle(slot).is_none() {
            return;
        }
        if let Some(gates) = &mut self.kernel.windows {
            gates.shut(slot);
        }
        if let Some(id) = self.ingest.table.id_of(slot) {
            self.take_lost(slot, id);
            self.ingest.cut_window(id);
        }
        let now = self.kernel.totals.read(slot).map(|totals| self.reading(slot, totals));
        if let (Some(cycle), Ok(now)) = (self.ingest.table.cycle_mut(slot), now) {
            // The cost of the skipped window is charged to the next one.
            cycle.last = now.with_work_of(&cycle.last);
        }
        self.detach_after_window(slot);
        // The skipped stratum represents nothing: the next one begins now.
        if let (Some(cycle), Some(gates)) =
            (self.ingest.table.cycle_mut(slot), &self.kernel.windows)
        {
            cycle.began = gates.ticks(slot);
            cycle.window.length = 0;
        }
        self.plan_window(slot);
    }

    /// The process executes another program. A window with attached probes belongs to the old
    /// program and is skipped. Strata go on.
    pub(super) fn cut_window(&mut self, slot: u32) {
        if self.kernel.windows.as_ref().is_some_and(|gates| gates.gate(slot) != Gate::Waiting) {
            self.skip_window(slot);
        }
    }

    /// Records an empty window: a process without an allocator has no allocations to see.
    fn pass_window(&mut self, slot: u32) {
        let Some(id) = self.ingest.table.id_of(slot) else { return };
        if let Some(Cycle { window, .. }) = self.ingest.table.cycle(slot) {
            let empty = Group { length: window.length as f64, ..Group::default() };
            self.ingest.window_samples.groups_mut(id).add(&empty, window.kappa());
        }
        self.plan_window(slot);
    }

    /// Ends an open window: the process of the slot has exited, or is about to.
    pub(super) fn end_open_window(&mut self, slot: u32) {
        let Some(gates) = &mut self.kernel.windows else { return };
        let has_windows = self.ingest.table.cycle(slot).is_some();
        if has_windows && matches!(gates.gate(slot), Gate::Open | Gate::Over) {
            gates.shut(slot);
            self.end_window(slot);
        }
    }

    /// Ends the windows of a process that has exited. A waiting window never opens.
    pub(super) fn end_cycle(&mut self, slot: u32) {
        let tail = self.tail(slot);
        if let Some(profiled) = self.ingest.table.get_mut(slot) {
            profiled.cycle = None;
        }
        let (Some(gates), Some(id)) = (&mut self.kernel.windows, self.ingest.table.id_of(slot))
        else {
            return;
        };
        let ticks = gates.ticks(slot);
        gates.shut(slot);
        let own_ns = ticks as f64 * gates.clock().own_ns();
        self.ingest.processes.get_mut(id).spending.used_at_least(own_ns as u64);
        self.ingest.cut_window(id);
        self.ingest.window_samples.end(id, ticks, tail);
    }

    /// Ticks of the present stratum until now; negative if the last stratum has not ended yet.
    fn tail(&self, slot: u32) -> f64 {
        let (Some(gates), Some(cycle)) = (&self.kernel.windows, self.ingest.table.cycle(slot))
        else {
            return 0.0;
        };
        gates.ticks(slot) as f64 - cycle.began as f64
    }

    /// CPU time that a process has used and that profiling has cost it.
    fn ledger(&self, slot: u32) -> Ledger {
        let (Some(cycle), Some(gates)) = (self.ingest.table.cycle(slot), &self.kernel.windows)
        else {
            return Ledger::default();
        };
        let probes_ns =
            self.prices.charge(&self.work_of_slot(slot)).map_or(0.0, |spent| spent.cpu.ns);
        let ticks = gates.ticks(slot);
        let process = self.ingest.table.attached(slot).and_then(|of| of.process.as_ref());
        let now = process.and_then(|of| processor::processor_ns(of.pid, of.start_ticks));
        let id = self.ingest.table.id_of(slot);
        let before = id.and_then(|id| self.ingest.processes.get(id).spending.processor_before_ns);
        let used = now.zip(before).map_or(0.0, |(now, before)| now.saturating_sub(before) as f64);
        Ledger {
            ticks,
            own_ns: (used - probes_ns).max(ticks as f64 * gates.clock().own_ns()),
            spent_ns: probes_ns + cycle.fixed_ns,
        }
    }

    /// Sets the interval of the next windows.
    fn change_interval(&mut self, slot: u32, interval_bytes: u64) {
        let Some(record) = self.ingest.sampling_of(slot) else { return };
        let ratio = interval_bytes as f64 / record.requested.interval_bytes as f64;
        if !(1.0 / INTERVAL_CHANGE..=INTERVAL_CHANGE).contains(&ratio) {
            let requested = Sampling { interval_bytes, ..record.requested };
            self.request_sampling(slot, requested);
        }
    }

    /// Gives the clock the addresses of a process's probes.
    pub(super) fn set_probe_addresses(&mut self, slot: u32) {
        let (Some(gates), Some(profiled)) = (&mut self.kernel.windows, self.ingest.table.get(slot))
        else {
            return;
        };
        gates.set_probes(slot, &probe_addresses::of_process(profiled.pid, &profiled.allocators));
    }

    /// The timer of windows; `None` without windows.
    pub(super) fn window_clock(&self) -> Option<Clock> {
        self.kernel.windows.as_ref().map(WindowGates::clock)
    }
}

impl Ingest {
    /// Slots of processes with windows.
    fn with_windows(&self) -> impl Iterator<Item = u32> {
        self.table.iter().filter(|(_, of)| of.cycle.is_some()).map(|(slot, _)| slot)
    }

    /// CPU time that a running process needs for one more window, nanoseconds.
    pub(in crate::pipeline) fn next_window_ns(&self, id: ProcessId) -> Option<f64> {
        Some(self.table.cycle(self.slot_of(id)?)?.planner.period_ns())
    }
}
