//! Processes that have a budget: probes are attached for windows of their progress, and what is seen in these is taken for all of it.
//!
//! The clock of a process says when ([`sampler_common::wire::Duty`]), the controller how often and how long
//! ([`sampler_common::duty::Controller`]). Between two windows nothing is attached, and nothing is to be paid but the clock.
//!
//! ```text
//! Waiting ──clock──▶ Due ──attach──▶ Ready ──clock──▶ Open ──clock──▶ Over ──detach, plan──▶ Waiting
//! ```
//!
//! A window may begin and end at steps of a word of the process's memory, a little behind where the clock would have it ([`sampler_common::duty::Steps`]).
//! A process that stands still in Ready or Open sleeps meanwhile ([`super::rest`]).
//! Where there is a marker ([`super::markers`]) it goes from Due to Over with nothing but that attached first, and from there to Due again.

use super::counting::Words;
use super::markers::Markers;
use super::rest::Rest;
use super::source::Source;
use super::window::Reading;
use super::worker::Worker;
use crate::bpf::duty::Duties;
use crate::store::clustered::End;
use crate::store::{ProcessId, Sampling};
use crate::target::{processor, spots};
use sampler_common::duty::{Budget, Controller, Counted, Lead, Ledger, Pace, Window};
use sampler_common::limits::CLASSES;
use sampler_common::wire::Gate;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// An interval is changed when it would be so many times another.
const CHANGED: f64 = 1.25;

/// How far a process is.
pub(super) struct Cycle {
    pub(super) controller: Controller,
    pub(super) window: Window,
    /// When windows of the fine clock begin.
    pub(super) lead: Lead,
    /// What its clock showed when the stratum began, or will show; the first begins before the process, which comes at a random place of it.
    began: i64,
    /// Ticks of the stratum that were before the process: only of its first.
    pub(super) before: i64,
    /// Ticks of the stratum before its window in which its marker is probed.
    early: u64,
    /// What the kernel side had counted when the last window ended.
    pub(super) last: Reading,
    /// Which functions tell what traps add to it.
    pub(super) markers: Markers,
    /// Where it counts its work itself.
    pub(super) words: Words,
    /// The tally at whose steps the window begins and ends.
    pub(super) steps_by: Option<usize>,
    /// CPU time that attaching for this window took.
    pub(super) attach_ns: u64,
    /// CPU time that detaching has taken, all of it: threads of their own add to it.
    pub(super) detach_ns: Arc<AtomicU64>,
    /// The same up to the last window.
    pub(super) detached_ns: u64,
    /// All of both up to the last window, and what the fine clock has taken.
    pub(super) fixed_ns: f64,
    /// What traps have added to its own time, as far as was known after each window.
    pub(super) drag_ns: f64,
    /// Progress in windows of the fine clock, and what that has taken in those of others, nanoseconds.
    pub(super) fine_own_ns: f64,
    pub(super) of_others_ns: f64,
    /// Whether it comes forward in its window.
    pub(super) rest: Rest,
}

impl Worker {
    /// A process has got its slot: its first window is planned.
    pub(super) fn begin_cycle(&mut self, slot: u32, budget: Budget) {
        let Some(timers) = self.kernel.duties.as_ref().map(Duties::timers) else { return };
        let mut controller = Controller::new(budget, timers);
        let mut plan = || controller.next(&Ledger::default(), false, fastrand::f64);
        let clock = self.kernel.duties.as_ref().map_or(0, |duties| duties.clock(slot).ticks) as i64;
        // The process comes at a random place of its first stratum: else what it does first would be met more rarely than the rest.
        let mut window = plan();
        let mut began = clock - (window.length as f64 * fastrand::f64()) as i64;
        if !window.is_left_after(clock - began, timers) {
            began += window.length as i64;
            window = plan();
            if let Some(id) = self.ingest.sources.get(&slot).map(|source| source.process) {
                self.ingest.clustered.groups_mut(id).lengthen((began - clock) as f64);
            }
        }
        self.change_interval(slot, window.interval_bytes);
        let cycle = Cycle {
            controller,
            window,
            lead: Lead::new(timers.unit(true)),
            began,
            before: (clock - began).max(0),
            early: 0,
            last: Reading::default(),
            markers: Markers::default(),
            words: Words::default(),
            steps_by: None,
            attach_ns: 0,
            detach_ns: Arc::default(),
            detached_ns: 0,
            fixed_ns: 0.0,
            drag_ns: 0.0,
            fine_own_ns: 0.0,
            of_others_ns: 0.0,
            rest: Rest::new(),
        };
        self.cycles.insert(slot, cycle);
        self.look_for_words(slot);
        self.look_at_tallies(slot);
        self.set_spots(slot);
        self.await_window(slot);
    }

    /// Moves every process on whose gate waits for it.
    pub(super) fn turn_cycles(&mut self) {
        let Some(duties) = &self.kernel.duties else { return };
        let due = |slot: &&u32| duties.gate(**slot) == Gate::Due;
        let due: Vec<u32> = self.cycles.keys().filter(due).copied().collect();
        self.end_windows();
        for slot in due {
            self.open(slot);
            // That may have taken its time.
            self.end_windows();
        }
        self.take_words();
        self.look_at_all_words();
        self.stay_ahead();
        self.run_fine_clock();
        self.look_at_ticks();
        if let Some(duties) = &mut self.kernel.duties {
            duties.follow_cpus();
        }
    }

    /// Ends the windows that are over: until their probes are gone every call pays for them.
    fn end_windows(&mut self) {
        let Some(duties) = &self.kernel.duties else { return };
        let over = |slot: &&u32| duties.gate(**slot) == Gate::Over;
        let over: Vec<u32> = self.cycles.keys().filter(over).copied().collect();
        for slot in over {
            if self.is_marking(slot) {
                self.end_marking(slot);
            } else {
                self.detach_after_window(slot);
                self.drain();
                self.end_window(slot);
            }
        }
    }

    /// Measures again what ticks take, between windows or at times, where these are measured by the fine clock.
    fn look_at_ticks(&mut self) {
        if !self.cycles.values().any(|cycle| cycle.window.fine) {
            return;
        }
        let is_open = !self.is_between_windows();
        if let Some(duties) = &mut self.kernel.duties {
            duties.look_at_ticks(is_open);
        }
    }

    /// The clock has come to a window: its markers are probed first, if there are any.
    fn open(&mut self, slot: u32) {
        let has_any = |of: &Source| !of.allocators.is_empty();
        if self.ingest.sources.get(&slot).is_some_and(has_any) {
            self.get_ahead(slot);
            if self.open_marking(slot) {
                return;
            }
        }
        self.open_window(slot);
    }

    /// Whether the gate of a process is its marker's.
    fn is_marking(&self, slot: u32) -> bool {
        self.cycles.get(&slot).is_some_and(|cycle| cycle.markers.is_marking)
    }

    /// No window is open or about to be.
    pub(super) fn is_between_windows(&self) -> bool {
        let Some(duties) = &self.kernel.duties else { return true };
        self.cycles.keys().all(|slot| duties.gate(*slot) == Gate::Waiting)
    }

    /// Waits for the clock to come to the planned window, before which no markers are counted any more: it comes at the place that was drawn for it all the same.
    pub(super) fn await_without_markers(&mut self, slot: u32) {
        if let Some(cycle) = self.cycles.get_mut(&slot) {
            (cycle.early, cycle.window.marking) = (0, 0);
        }
        self.await_window(slot);
    }

    /// Waits for the clock to come to the planned window.
    fn await_window(&self, slot: u32) {
        let (Some(duties), Some(cycle)) = (&self.kernel.duties, self.cycles.get(&slot)) else {
            return;
        };
        let due = cycle.began + cycle.window.offset as i64 - cycle.early as i64;
        duties.wait_for(slot, due.max(0) as u64);
    }

    /// Plans the next window of a process; its stratum begins where the last one ends.
    pub(super) fn plan_window(&mut self, slot: u32) {
        self.charge_for_others(slot);
        let ledger = self.ledger(slot);
        let is_marked = self.choose_markers(slot);
        let (Some(cycle), Some(duties)) = (self.cycles.get_mut(&slot), &self.kernel.duties) else {
            return;
        };
        cycle.began += cycle.window.length as i64;
        let clock = duties.clock(slot).ticks as i64;
        if clock > cycle.began {
            // The daemon was late: what has passed meanwhile belongs to no stratum.
            cycle.began = clock;
        }
        cycle.controller.retime(duties.timers());
        let mut window = cycle.controller.next(&ledger, is_marked, fastrand::f64);
        window.marking = cycle.markers.ticks(&window);
        let room = cycle.began + window.offset as i64 - clock;
        cycle.early = window.place_marking(room, duties.timers());
        cycle.before = 0;
        cycle.window = window;
        let interval = cycle.window.interval_bytes;
        self.choose_steps(slot);
        self.change_interval(slot, interval);
        self.await_window(slot);
    }

    /// Gives a window up: its samples count for nothing, and are counted.
    pub(super) fn skip_window(&mut self, slot: u32) {
        if !self.cycles.contains_key(&slot) {
            return;
        }
        if let Some(duties) = &self.kernel.duties {
            duties.shut(slot);
        }
        if let Some(source) = self.ingest.sources.get(&slot) {
            let id = source.process;
            self.take_lost(slot, id);
            self.ingest.cut_window(id);
        }
        let now = self.kernel.totals.read(slot).map(|totals| self.reading(slot, totals));
        if let (Some(cycle), Ok(now)) = (self.cycles.get_mut(&slot), now) {
            // What it has cost has been spent all the same.
            cycle.last = now.at_the_cost_of(&cycle.last);
        }
        if let Some(cycle) = self.cycles.get_mut(&slot) {
            cycle.markers.skip();
        }
        self.detach_after_window(slot);
        // Its stratum stands for nothing: the next one begins now.
        if let (Some(cycle), Some(duties)) = (self.cycles.get_mut(&slot), &self.kernel.duties) {
            cycle.began = duties.clock(slot).ticks as i64;
            cycle.window.length = 0;
        }
        self.plan_window(slot);
    }

    /// The process runs another program from now on, whose windows are its own.
    pub(super) fn cut_cycle(&mut self, slot: u32) {
        let Some(gate) = self.kernel.duties.as_ref().map(|duties| duties.gate(slot)) else {
            return;
        };
        let Some(id) = self.ingest.sources.get(&slot).map(|source| source.process) else { return };
        // As at an exit: a window that was still to come could have met what there was of its stratum, and one that has ended stands for no more than that.
        if gate == Gate::Waiting && self.cycles.contains_key(&slot) {
            let passed = self.passed(slot);
            self.ingest.clustered.groups_mut(id).lengthen(passed);
        }
        self.skip_window(slot);
    }

    /// The window of a process that allocates nothing that could be seen has met nothing.
    pub(super) fn pass_window(&mut self, slot: u32) {
        let Some(id) = self.ingest.sources.get(&slot).map(|source| source.process) else { return };
        if let Some(cycle) = self.cycles.get(&slot) {
            let length = cycle.window.length.saturating_sub(cycle.before as u64);
            let (none, share) = ([0; CLASSES], cycle.window.share);
            let groups = self.ingest.clustered.groups_mut(id);
            let (pace, counted) = (Pace::default(), Counted::default());
            if groups.add(length, share, &none, &none, pace, counted).paired {
                self.ingest.clustered.pair(id);
            }
        }
        self.plan_window(slot);
    }

    /// The process of a slot is gone, or is about to: its window ends with it, if it was open.
    pub(super) fn end_open_window(&mut self, slot: u32) {
        let Some(duties) = &self.kernel.duties else { return };
        let was_open =
            matches!(duties.gate(slot), Gate::Open | Gate::Over | Gate::Asleep | Gate::Awake);
        if self.cycles.contains_key(&slot) && was_open {
            duties.shut(slot);
            if !self.is_marking(slot) {
                self.end_window(slot);
            }
        }
    }

    /// The process of a slot is gone: a window that waits to begin never will.
    pub(super) fn end_cycle(&mut self, slot: u32) {
        // A window that was due has seen nothing either.
        let tail = self.passed(slot);
        let was_planned = self.cycles.remove(&slot).is_some();
        let (Some(duties), Some(source)) = (&self.kernel.duties, self.ingest.sources.get(&slot))
        else {
            return;
        };
        let clock = duties.clock(slot);
        duties.shut(slot);
        let id = source.process;
        let own_ns = clock.ticks as f64 * duties.timers().unit(false);
        self.ingest.processes.get_mut(id).spending.used_at_least(own_ns as u64);
        self.ingest.cut_window(id);
        self.ingest.clustered.end(id, End { clock, tail: was_planned.then_some(tail) });
    }

    /// Ticks of the present stratum so far, in which the window has yet to come; fewer than none, if it is the last one's that still goes on.
    /// None at all while the window is due or open: what it will have seen is not known.
    pub(super) fn tail(&self, slot: u32) -> f64 {
        let gate = self.kernel.duties.as_ref().map(|duties| duties.gate(slot));
        let passed = self.passed(slot);
        if gate == Some(Gate::Waiting) { passed } else { passed.min(0.0) }
    }

    /// The same, whatever the window does.
    fn passed(&self, slot: u32) -> f64 {
        let (Some(duties), Some(cycle)) = (&self.kernel.duties, self.cycles.get(&slot)) else {
            return 0.0;
        };
        (duties.clock(slot).ticks as i64 - cycle.began - cycle.before) as f64
    }

    /// What a process has done and paid.
    fn ledger(&self, slot: u32) -> Ledger {
        let (Some(cycle), Some(duties)) = (self.cycles.get(&slot), &self.kernel.duties) else {
            return Ledger::default();
        };
        let probes_ns = self.prices.charge(&self.work_of_slot(slot)).map_or(0.0, |spent| spent.ns);
        let clock = duties.clock(slot).ticks;
        let process = self.attached.get(&slot).and_then(|of| of.process.as_ref());
        let now = process.and_then(|of| processor::processor_ns(of.pid, of.start_ticks));
        let id = self.ingest.sources.get(&slot).map(|source| source.process);
        let before = id.and_then(|id| self.ingest.processes.get(id).spending.processor_before_ns);
        let used = now.zip(before).map_or(0.0, |(now, before)| now.saturating_sub(before) as f64);
        Ledger {
            clock,
            own_ns: (used - probes_ns - cycle.drag_ns)
                .max(clock as f64 * duties.timers().unit(false)),
            spent_ns: probes_ns + cycle.drag_ns + cycle.fixed_ns,
        }
    }

    /// CPU time that a running process needs for one more window, nanoseconds.
    pub(super) fn next_windows_ns(&self, id: ProcessId) -> Option<f64> {
        Some(self.cycles.get(&self.slot_of(id)?)?.controller.period_ns())
    }

    /// The interval of the windows to come.
    fn change_interval(&mut self, slot: u32, interval_bytes: u64) {
        let Some(record) = self.sampling_of(slot) else { return };
        let before = record.asked.interval_bytes as f64;
        let ratio = interval_bytes as f64 / before;
        if !(1.0 / CHANGED..=CHANGED).contains(&ratio) {
            let asked = Sampling { interval_bytes, ..record.asked };
            self.ask(slot, asked);
        }
    }

    /// Tells the clock where the probes of a process are.
    pub(super) fn set_spots(&self, slot: u32) {
        let (Some(duties), Some(source)) = (&self.kernel.duties, self.ingest.sources.get(&slot))
        else {
            return;
        };
        let markers = self.cycles.get(&slot).map_or(&[][..], |cycle| cycle.markers.probed());
        let spots = spots::of_process(source.pid, &source.allocators, markers);
        tracing::debug!(slot, ?spots, "probes are at");
        duties.set_spots(slot, &spots);
    }
}
