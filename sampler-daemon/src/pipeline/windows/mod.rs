//! `--windows`: the probes of a process are attached for short windows of its progress.
//!
//! The clock of a process says when ([`sampler_common::wire::WindowState`]), the planner how often and how long
//! ([`sampler_common::windows::Planner`]). Nothing is attached between two windows.
//!
//! ```text
//! Waiting ──clock──▶ Due ──attach──▶ Ready ──clock──▶ Open ──clock──▶ Over ──detach, plan──▶ Waiting
//! ```

mod expansion;
mod window;

pub(super) use expansion::Expansions;
pub(super) use window::Reading;

use super::worker::Worker;
use crate::bpf::windows::WindowGates;
use crate::inspect::{probe_addresses, processor};
use crate::store::{ProcessId, Sampling};
use sampler_common::windows::{Budget, Clock, Group, Ledger, Planner, Window};
use sampler_common::wire::Gate;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// An interval is changed when it differs by this factor.
const INTERVAL_CHANGE: f64 = 1.25;
/// Progress that attaching takes before it is known, nanoseconds.
const FIRST_LEAD_NS: f64 = 5e6;
/// Of the longest attaching so far, this part is forgotten with each window.
const LEAD_DECAY: u64 = 8;

/// The windows of a process.
pub(super) struct Cycle {
    planner: Planner,
    window: Window,
    /// Tick at which the stratum began.
    began: u64,
    /// Tick at which the window is to open.
    open_at: u64,
    /// Ticks before `open_at` at which the daemon is woken. Attaching usually takes less, so that the place of a window does not depend on how fast the
    /// program is while it is being attached.
    lead: u64,
    /// What the kernel side had counted when the last window ended.
    last: Reading,
    /// CPU time of attaching for this window, nanoseconds.
    attach_ns: u64,
    /// CPU time of detaching, of all windows, nanoseconds; links that are being closed add to it.
    detach_ns: Arc<AtomicU64>,
    /// The same up to the last window.
    detached_ns: u64,
    /// CPU time of attaching and detaching, of all windows, nanoseconds.
    fixed_ns: f64,
}

impl Cycle {
    /// Attaching has taken so many ticks.
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
            // Attaching takes its time, and every call pays until the probes of a window that is over are gone.
            self.end_windows();
        }
        if let Some(gates) = &mut self.kernel.windows {
            gates.follow_cpus();
        }
    }

    fn end_windows(&mut self) {
        for slot in self.slots_with(Gate::Over) {
            self.detach_after_window(slot);
            self.drain();
            self.end_window(slot);
        }
    }

    fn slots_with(&self, gate: Gate) -> Vec<u32> {
        let Some(gates) = &self.kernel.windows else { return Vec::new() };
        self.with_windows().filter(|slot| gates.gate(*slot) == gate).collect()
    }

    /// Whether no window is open or about to open.
    pub(super) fn is_between_windows(&self) -> bool {
        let Some(gates) = &self.kernel.windows else { return true };
        self.with_windows().all(|slot| gates.gate(slot) == Gate::Waiting)
    }

    /// Slots of processes that have windows.
    fn with_windows(&self) -> impl Iterator<Item = u32> {
        self.ingest.table.iter().filter(|(_, of)| of.cycle.is_some()).map(|(slot, _)| slot)
    }

    /// Waits for the clock to come to the planned window.
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

    /// Plans the next window; its stratum begins where the last one ends.
    fn plan_window(&mut self, slot: u32) {
        let ledger = self.ledger(slot);
        let (Some(cycle), Some(gates)) = (self.ingest.table.cycle_mut(slot), &self.kernel.windows)
        else {
            return;
        };
        // Where the daemon was late, the ticks since then belong to no stratum.
        cycle.began = (cycle.began + cycle.window.length).max(gates.ticks(slot));
        cycle.window = cycle.planner.next(&ledger, fastrand::f64());
        self.await_window(slot);
    }

    /// Gives a window up: its samples count for nothing, and are counted as such.
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
            // The cost of the window is charged all the same, to the next one.
            cycle.last = now.with_work_of(&cycle.last);
        }
        self.detach_after_window(slot);
        // Its stratum stands for nothing: the next one begins now.
        if let (Some(cycle), Some(gates)) =
            (self.ingest.table.cycle_mut(slot), &self.kernel.windows)
        {
            cycle.began = gates.ticks(slot);
            cycle.window.length = 0;
        }
        self.plan_window(slot);
    }

    /// The process executes another program: a window whose probes are attached is of the old one. Strata go on.
    pub(super) fn cut_window(&mut self, slot: u32) {
        if self.kernel.windows.as_ref().is_some_and(|gates| gates.gate(slot) != Gate::Waiting) {
            self.skip_window(slot);
        }
    }

    /// A process without an allocator allocates nothing that could be seen in its window.
    fn pass_window(&mut self, slot: u32) {
        let Some(id) = self.ingest.table.id_of(slot) else { return };
        if let Some(Cycle { window, .. }) = self.ingest.table.cycle(slot) {
            let empty = Group { length: window.length as f64, ..Group::default() };
            self.ingest.window_samples.groups_mut(id).add(&empty, window.kappa());
        }
        self.plan_window(slot);
    }

    /// The process of a slot has exited, or is about to: a window that is open ends.
    pub(super) fn end_open_window(&mut self, slot: u32) {
        let Some(gates) = &mut self.kernel.windows else { return };
        let has_windows = self.ingest.table.cycle(slot).is_some();
        if has_windows && matches!(gates.gate(slot), Gate::Open | Gate::Over) {
            gates.shut(slot);
            self.end_window(slot);
        }
    }

    /// The process of a slot has exited: a window that waits never comes.
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

    /// What a process has done and paid.
    fn ledger(&self, slot: u32) -> Ledger {
        let (Some(cycle), Some(gates)) = (self.ingest.table.cycle(slot), &self.kernel.windows)
        else {
            return Ledger::default();
        };
        let probes_ns = self.prices.charge(&self.work_of_slot(slot)).map_or(0.0, |spent| spent.ns);
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

    /// CPU time that a running process needs for one more window, nanoseconds.
    pub(in crate::pipeline) fn next_window_ns(&self, id: ProcessId) -> Option<f64> {
        Some(self.ingest.table.cycle(self.slot_of(id)?)?.planner.period_ns())
    }

    /// Sets the interval of the windows to come.
    fn change_interval(&mut self, slot: u32, interval_bytes: u64) {
        let Some(record) = self.sampling_of(slot) else { return };
        let ratio = interval_bytes as f64 / record.asked.interval_bytes as f64;
        if !(1.0 / INTERVAL_CHANGE..=INTERVAL_CHANGE).contains(&ratio) {
            let asked = Sampling { interval_bytes, ..record.asked };
            self.ask(slot, asked);
        }
    }

    /// Tells the clock where the probes of a process are.
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
