//! Processes that have a budget: probes are attached for windows of their progress, and what is seen in these is taken for all of it.
//!
//! The clock of a process says when ([`sampler_common::wire::Duty`]), the controller how often and how long
//! ([`sampler_common::duty::Controller`]). Between two windows nothing is attached, and nothing is to be paid but the clock.
//!
//! ```text
//! Waiting ──clock──▶ Due ──attach──▶ Ready ──clock──▶ Open ──clock──▶ Over ──detach, plan──▶ Waiting
//! ```

use super::attach::points;
use super::worker::Worker;
use crate::bpf::Settings;
use crate::bpf::duty::Duties;
use crate::bpf::totals::SlotTotals;
use crate::store::{ProcessId, Sampling, StackId};
use crate::target::{processor, spots};
use rustix::time::{ClockId, clock_gettime};
use sampler_common::cost::Work;
use sampler_common::counters::Outcome;
use sampler_common::duty::{Budget, Controller, Ledger, Pace, Window, WindowCost};
use sampler_common::estimate::{Confidence, Sample};
use sampler_common::sampling::Design;
use sampler_common::wire::{Gate, HITS_SWITCH, Role, Space};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Mean bytes between samples in the first window of a process, of which nothing is known.
const FIRST_INTERVAL: u64 = 64 * 1024;
/// An interval is changed when it would be so many times another.
const CHANGED: f64 = 1.25;

/// How far a process is.
pub(super) struct Cycle {
    controller: Controller,
    window: Window,
    /// What its clock showed when the stratum began.
    began: u64,
    /// Totals when the last window ended.
    totals: SlotTotals,
    /// What its probes had done when the last window ended.
    work: Work,
    /// Calls of functions that free up to then.
    frees: f64,
    /// Hits outside of windows, when the last one ended.
    outside: f64,
    /// CPU time that attaching for this window took.
    attach_ns: u64,
    /// CPU time that detaching has taken, all of it: threads of their own add to it.
    detach_ns: Arc<AtomicU64>,
    /// The same up to the last window.
    detached_ns: u64,
    /// All of both up to the last window.
    fixed_ns: f64,
}

/// CPU time of this thread, nanoseconds.
fn thread_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Worker {
    /// A process has got its slot: its first window is planned.
    pub(super) fn begin_cycle(&mut self, slot: u32, budget: Budget) {
        let Some(timers) = self.kernel.duties.as_ref().map(Duties::timers) else { return };
        let controller = Controller::new(budget, timers);
        let window = controller.next(&Ledger::default(), fastrand::f64);
        if let Some(duties) = &self.kernel.duties {
            duties.reset(slot);
        }
        self.change_interval(slot, FIRST_INTERVAL);
        let cycle = Cycle {
            controller,
            window,
            began: 0,
            totals: SlotTotals::default(),
            work: Work::default(),
            frees: 0.0,
            outside: 0.0,
            attach_ns: 0,
            detach_ns: Arc::default(),
            detached_ns: 0,
            fixed_ns: 0.0,
        };
        self.cycles.insert(slot, cycle);
        self.set_spots(slot);
        self.await_window(slot);
    }

    /// Moves every process on whose gate waits for it.
    pub(super) fn turn_cycles(&mut self) {
        let Some(duties) = &self.kernel.duties else { return };
        let gate = |slot: &u32| (*slot, duties.gate(*slot));
        let gates: Vec<(u32, Gate)> = self.cycles.keys().map(gate).collect();
        for (slot, gate) in gates {
            match gate {
                Gate::Due => self.open_window(slot),
                Gate::Over => {
                    // First of all: until the probes are gone every call pays for them.
                    self.detach_after_window(slot);
                    self.drain();
                    self.end_window(slot);
                }
                _ => {}
            }
        }
        self.run_fine_clock();
    }

    /// The fine clock ticks while a window waits for it.
    fn run_fine_clock(&mut self) {
        let Some(duties) = &mut self.kernel.duties else { return };
        let waits = |(slot, cycle): (&u32, &Cycle)| {
            cycle.window.fine && matches!(duties.gate(*slot), Gate::Ready | Gate::Open)
        };
        let on = self.cycles.iter().any(waits);
        duties.set_fine(on);
    }

    /// Waits for the clock to come to the planned window.
    fn await_window(&self, slot: u32) {
        let (Some(duties), Some(cycle)) = (&self.kernel.duties, self.cycles.get(&slot)) else {
            return;
        };
        duties.wait_for(slot, cycle.began + cycle.window.offset);
    }

    /// Attaches the probes of a process for a window.
    fn open_window(&mut self, slot: u32) {
        let Some(source) = self.ingest.sources.get(&slot) else { return };
        let (id, pid) = (source.process, source.pid);
        self.set_spots(slot);
        // What was sampled and has not returned before the probes went never will.
        self.forget_calls(slot);
        let before = thread_ns();
        let frees = self.frees_of(slot);
        if let Err(error) = self.attach_for_window(slot) {
            let still_there = self.attached.get(&slot).is_some_and(|of| of.is_running());
            if still_there {
                tracing::warn!(pid, "{error:#}");
            }
            self.skip_window(slot);
            return;
        }
        let Some(cycle) = self.cycles.get_mut(&slot) else { return };
        cycle.frees = frees;
        cycle.attach_ns = thread_ns().saturating_sub(before);
        let cut = self.ingest.clustered.begin(id, cycle.window.share);
        self.ingest.outcomes.add(Outcome::WindowCut, cut as u64);
        if let Some(duties) = &self.kernel.duties {
            duties.ready(slot, cycle.window.ticks, cycle.window.fine);
        }
    }

    /// Attaches to the allocators of a process that are known.
    fn attach_for_window(&mut self, slot: u32) -> anyhow::Result<()> {
        let Worker { kernel, ingest, attached, config, cycles, .. } = self;
        let (Some(source), Some(attached)) = (ingest.sources.get(&slot), attached.get_mut(&slot))
        else {
            return Ok(());
        };
        let frees = cycles.get(&slot).is_some_and(|cycle| cycle.window.frees);
        let settings = Settings { track_live: frees, ..config.settings };
        for allocator in &source.allocators {
            let points = points(allocator, slot, &settings);
            attached.links.extend(kernel.attach(&allocator.file, Some(source.pid), &points)?);
        }
        Ok(())
    }

    /// Calls of functions that free, in windows in which they are probed.
    fn frees_of(&self, slot: u32) -> f64 {
        let counted = HITS_SWITCH.counted(self.kernel.hits.read(slot, Role::Free));
        counted.count(Confidence::DEFAULT).value
    }

    /// Takes the probes off until the next window.
    fn detach_after_window(&mut self, slot: u32) {
        let Some(attached) = self.attached.get_mut(&slot) else { return };
        let links = std::mem::take(&mut attached.links);
        let Some(cycle) = self.cycles.get(&slot) else { return self.close(links) };
        // Each by a thread of its own: a link's breakpoints go at once, and then it waits some 35 ms for whoever is still in its programs.
        for link in links {
            let spent = Arc::clone(&cycle.detach_ns);
            self.closing.push(std::thread::spawn(move || {
                drop(link);
                spent.fetch_add(thread_ns(), Relaxed);
            }));
        }
    }

    /// The window of a process is over: what was seen in it stands for its stratum, and the next one is planned.
    fn end_window(&mut self, slot: u32) {
        let Some(source) = self.ingest.sources.get(&slot) else { return };
        let id = source.process;
        let totals = match self.kernel.totals.read(slot) {
            Ok(totals) => totals,
            Err(error) => {
                tracing::warn!("{error:#}");
                return self.skip_window(slot);
            }
        };
        let (work, frees) = (self.work_of_slot(slot), self.frees_of(slot));
        let outside = HITS_SWITCH.counted(self.kernel.hits.read_outside(slot));
        let outside = outside.count(Confidence::DEFAULT).value;
        self.take_lost(slot, id);
        let Some(cycle) = self.cycles.get_mut(&slot) else { return };
        let spent_ns = self.prices.charge(&work.since(&cycle.work)).map_or(0.0, |spent| spent.ns);
        cycle.work = work;
        let detached_ns = cycle.detach_ns.load(Relaxed);
        // Of the one before: it goes on while this is read.
        let links_ns = (cycle.attach_ns + detached_ns - cycle.detached_ns) as f64;
        cycle.detached_ns = detached_ns;
        cycle.fixed_ns += links_ns;
        let more = |now: &[u64], before: &[u64]| {
            let mut more = [0; sampler_common::limits::CLASSES];
            let both = now.iter().zip(before);
            more.iter_mut()
                .zip(both)
                .for_each(|(to, (now, before))| *to = now.saturating_sub(*before));
            more
        };
        let bytes = more(&totals.bytes, &cycle.totals.bytes);
        let objects = more(&totals.objects, &cycle.totals.objects);
        cycle.totals = totals;
        // What was hit while probes came and went is part of the price of a window, not of its length.
        let inside = objects.iter().sum::<u64>() as f64 + frees - cycle.frees;
        let all = inside + outside - cycle.outside;
        cycle.outside = outside;
        let probes_ns = if all > 0.0 { spent_ns * inside / all } else { 0.0 };
        let fixed_ns = links_ns + spent_ns - probes_ns;
        let window = cycle.window;
        let samples = self.ingest.clustered.take_open(id);
        tracing::debug!(
            slot,
            ?window,
            clock = ?self.kernel.duties.as_ref().map(|duties| duties.clock(slot)),
            objects = objects.iter().sum::<u64>(),
            probes_us = probes_ns / 1e3,
            outside,
            attach_us = cycle.attach_ns / 1000,
            fixed_us = fixed_ns / 1e3,
            "window"
        );
        cycle.controller.ended(&WindowCost {
            length_ns: window.length_ns,
            ticks: window.ticks,
            probes_ns,
            fixed_ns,
            bytes: bytes.iter().sum::<u64>() as f64,
            samples: samples.len() as u64,
        });
        let frees = window.frees.then_some(frees - cycle.frees);
        let allocations = objects.iter().sum::<u64>() as f64;
        let pace = Pace::of_window(window.length_ns, allocations, frees);
        let groups = self.ingest.clustered.groups_mut(id);
        let (group, paired) = groups.add(window.length, window.share, &bytes, &objects, pace);
        if paired {
            self.ingest.clustered.pair(id);
        }
        self.take_in(id, group, window.share, samples);
        self.plan_window(slot);
    }

    /// Takes the samples of a finished window into the rows.
    fn take_in(&mut self, id: ProcessId, group: u16, share: f64, samples: Vec<(StackId, Sample)>) {
        for (stack, sample) in samples {
            let sample = Sample { kept: sample.kept * share, ..sample };
            if !self.ingest.rows.add(id, stack, &sample) {
                self.ingest.outcomes.add(Outcome::StackTableFull, 1);
            }
            let own = [sample.size as f64, 1.0].map(|own| sample.moments(own).sum);
            self.ingest.clustered.add(id, stack, group, own);
        }
    }

    /// Samples of the open window whose record was lost are part of it, without their stacks.
    fn take_lost(&mut self, slot: u32, id: ProcessId) {
        let cells = match self.kernel.lost.read() {
            Ok(cells) => cells,
            Err(error) => return tracing::warn!("read the lost samples: {error}"),
        };
        let mut any = false;
        for (key, cell) in cells.iter().filter(|(key, of)| key.slot == slot && of.samples > 0) {
            any = true;
            let mean = (cell.bytes as f64 / cell.samples as f64).round() as u64;
            let sample = Sample::new(mean, Design::from_word(key.design));
            for _ in 0..cell.samples {
                if !self.ingest.clustered.push(id, StackId::LOST, sample) {
                    self.ingest.outcomes.add(Outcome::WindowCut, 1);
                }
            }
        }
        if any && let Err(error) = self.kernel.lost.clear_slot(slot) {
            tracing::warn!("clear lost samples: {error}");
        }
    }

    /// Plans the next window of a process; its stratum begins where the last one ends.
    fn plan_window(&mut self, slot: u32) {
        let ledger = self.ledger(slot);
        let (Some(cycle), Some(duties)) = (self.cycles.get_mut(&slot), &self.kernel.duties) else {
            return;
        };
        cycle.began += cycle.window.length;
        let clock = duties.clock(slot).ticks;
        if clock > cycle.began {
            // The daemon was late: what has passed meanwhile belongs to no stratum.
            cycle.began = clock;
        }
        cycle.window = cycle.controller.next(&ledger, fastrand::f64);
        let interval = cycle.window.interval_bytes.unwrap_or(FIRST_INTERVAL);
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
            let cut = self.ingest.clustered.take_open(id).len();
            self.ingest.outcomes.add(Outcome::WindowCut, cut as u64);
        }
        let totals = self.kernel.totals.read(slot);
        if let (Some(cycle), Ok(totals)) = (self.cycles.get_mut(&slot), totals) {
            cycle.totals = totals;
        }
        self.detach_after_window(slot);
        self.plan_window(slot);
    }

    /// The process of a slot is gone: an open window is given up.
    pub(super) fn end_cycle(&mut self, slot: u32) {
        if self.cycles.remove(&slot).is_none() {
            return;
        }
        let Some(duties) = &self.kernel.duties else { return };
        let clock = duties.clock(slot).ticks;
        duties.shut(slot);
        let Some(source) = self.ingest.sources.get(&slot) else { return };
        let id = source.process;
        let cut = self.ingest.clustered.take_open(id).len();
        self.ingest.outcomes.add(Outcome::WindowCut, cut as u64);
        self.ingest.clustered.end(id, clock);
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
            own_ns: (used - probes_ns).max(clock as f64 * duties.timers().unit(false)),
            spent_ns: probes_ns + cycle.fixed_ns,
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
        let spots = spots::of_process(source.pid, &source.allocators);
        tracing::debug!(slot, ?spots, "probes are at");
        duties.set_spots(slot, &spots);
    }

    /// Counts sampled calls of a process that never return to a probe.
    fn forget_calls(&mut self, slot: u32) {
        match self.kernel.pending.forget(|space: Space| space.slot == slot) {
            Ok(sampled) => self.ingest.outcomes.add(Outcome::ReturnLost, sampled),
            Err(error) => tracing::warn!("read the pending calls: {error}"),
        }
    }
}
