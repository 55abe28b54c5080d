//! One window of a process that has a budget: its probes come, and go, and what was seen in between is taken in.

use super::attach::points;
use super::duty::Cycle;
use super::worker::Worker;
use crate::bpf::Settings;
use crate::bpf::totals::SlotTotals;
use crate::store::{ProcessId, StackId};
use sampler_common::cost::Work;
use sampler_common::counters::Outcome;
use sampler_common::counting::Counted;
use sampler_common::duty::{Added, Counts, Usual, WindowCost};
use sampler_common::estimate::{Confidence, Sample};
use sampler_common::limits::CLASSES;
use sampler_common::sampling::Design;
use sampler_common::wire::{Role, Space};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What the kernel side has counted of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    /// Exact totals.
    pub(super) totals: SlotTotals,
    /// What its probes have done.
    work: Work,
    /// Calls of functions that free, in windows in which they are probed.
    pub(super) frees: f64,
    /// Hits of functions that allocate, outside of windows.
    outside: f64,
    /// Hits of its markers.
    marked: f64,
}

impl Reading {
    /// What its probes have done is counted from an earlier one on: it was spent, whatever became of what was seen.
    pub(super) fn at_the_cost_of(self, earlier: &Reading) -> Reading {
        Reading { work: earlier.work, ..self }
    }
}

/// What was in a window.
#[derive(Debug)]
struct Seen {
    bytes: [u64; CLASSES],
    objects: [u64; CLASSES],
    frees: f64,
    /// CPU time of its hits and samples, nanoseconds.
    probes_ns: f64,
    /// Of its links, and of hits while they came and went.
    fixed_ns: f64,
    /// Of its markers' hits.
    marking_ns: f64,
}

impl Cycle {
    /// What was in the window that has ended now, since when the process has spent so much in probes.
    fn seen(&mut self, now: Reading, spent_ns: f64) -> Seen {
        let detached_ns = self.detach_ns.load(Relaxed);
        // Of the window before: this one's links are still going.
        let attached_ns = std::mem::take(&mut self.attach_ns);
        let links_ns = (attached_ns + detached_ns - self.detached_ns) as f64;
        self.detached_ns = detached_ns;
        self.fixed_ns += links_ns;
        let before = std::mem::replace(&mut self.last, now);
        let bytes = more(&now.totals.bytes, &before.totals.bytes);
        let objects = more(&now.totals.objects, &before.totals.objects);
        let frees = now.frees - before.frees;
        // What was hit while probes came and went is part of the price of a window, not of its length.
        let inside = objects.iter().sum::<u64>() as f64 + frees;
        let marked = now.marked - before.marked;
        let all = inside + now.outside - before.outside + marked;
        let part = |of: f64| if all > 0.0 { spent_ns * of / all } else { 0.0 };
        let (probes_ns, marking_ns) = (part(inside), part(marked));
        let fixed_ns = links_ns + spent_ns - probes_ns - marking_ns;
        Seen { bytes, objects, frees, probes_ns, fixed_ns, marking_ns }
    }
}

/// What came since.
fn more(now: &[u64; CLASSES], before: &[u64; CLASSES]) -> [u64; CLASSES] {
    std::array::from_fn(|class| now[class].saturating_sub(before[class]))
}

impl Worker {
    /// Attaches the probes of a process for a window.
    pub(super) fn open_window(&mut self, slot: u32) {
        if self.leave_patched_before_window(slot) {
            return;
        }
        let Some(source) = self.ingest.sources.get(&slot) else { return };
        let (id, pid) = (source.process, source.pid);
        if source.allocators.is_empty() {
            let is_new = self.attached.get(&slot).is_some_and(|of| of.has_new_image);
            // Of a new image none is known yet: nothing is seen, and that is not nothing allocated.
            return if is_new { self.skip_window(slot) } else { self.pass_window(slot) };
        }
        self.set_spots(slot);
        // Nobody hits them now but, where it was counted before the window, a marker.
        self.kernel.hits.begin_anew(slot);
        // What was sampled and has not returned before the probes went never will.
        self.forget_calls(slot);
        let step_at = self.step_at(slot);
        if let (Some(cycle), Some(duties)) = (self.cycles.get(&slot), &mut self.kernel.duties) {
            duties.lead(slot, cycle.lead.ticks(), cycle.window.fine);
        }
        let before = self.attaching_ns();
        if let Err(error) = self.attach_for_window(slot) {
            let still_there = self.attached.get(&slot).is_some_and(|of| of.is_running());
            if still_there {
                tracing::warn!(pid, "{error:#}");
            }
            self.skip_window(slot);
            return;
        }
        let attach_ns = self.attaching_ns().saturating_sub(before);
        let Some(cycle) = self.cycles.get_mut(&slot) else { return };
        cycle.attach_ns += attach_ns;
        let cut = self.ingest.clustered.begin(id, cycle.window.share);
        self.ingest.outcomes.add(Outcome::WindowCut, cut as u64);
        if let Some(duties) = &self.kernel.duties {
            duties.begin_marks(slot, i64::MAX);
            let passed = duties.ready(slot, cycle.window.ticks, cycle.window.fine, step_at);
            if cycle.window.fine {
                tracing::debug!(slot, passed, lead = cycle.lead.ticks(), "probes are there");
                cycle.lead.passed(passed);
            }
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
            let points = points(allocator, slot, &settings).shut();
            let links = kernel.attach(&allocator.file, Some(source.pid), &points)?;
            attached.links.add_for_window(links);
        }
        Ok(())
    }

    /// What a process has done by now, as far as its probes and their programs have counted it.
    pub(super) fn reading(&self, slot: u32, totals: SlotTotals) -> Reading {
        let hits = &self.kernel.hits;
        let count =
            |of: [Counted; 2]| of.into_iter().sum::<Counted>().count(Confidence::DEFAULT).value;
        Reading {
            totals,
            work: self.work_of_slot(slot),
            frees: count(hits.read(slot, Role::Free)),
            outside: count(hits.read_outside(slot)),
            marked: count(hits.read(slot, Role::Marker)),
        }
    }

    /// Takes the probes off until the next window.
    pub(super) fn detach_after_window(&mut self, slot: u32) {
        let Some(attached) = self.attached.get_mut(&slot) else { return };
        let links = attached.links.take();
        let Some(cycle) = self.cycles.get(&slot) else { return self.close(links) };
        let spent_ns = Arc::clone(&cycle.detach_ns);
        self.close_counting(links, &spent_ns);
    }

    /// The window of a process is over: what was seen in it stands for its stratum, and the next one is planned.
    pub(super) fn end_window(&mut self, slot: u32) {
        let Some(source) = self.ingest.sources.get(&slot) else { return };
        let id = source.process;
        let totals = match self.kernel.totals.read(slot) {
            Ok(totals) => totals,
            Err(error) => {
                tracing::warn!("{error:#}");
                return self.skip_window(slot);
            }
        };
        let now = self.reading(slot, totals);
        self.take_lost(slot, id);
        let Some(duties) = &self.kernel.duties else { return };
        let (timers, late, left) = (duties.timers(), duties.late(slot), duties.left(slot));
        let Some(cycle) = self.cycles.get_mut(&slot) else { return };
        let spent = self.prices.charge(&now.work.since(&cycle.last.work));
        let seen = cycle.seen(now, spent.map_or(0.0, |spent| spent.ns));
        let window = cycle.window.late_by(late);
        let steps = cycle.steps_by.map(|_| duties.steps(slot, window.ticks));
        let planned = window.ticks;
        let window = window.cut_by(left);
        // In which it was seen, and for which there were probes.
        let unit = timers.unit(window.fine);
        let [seen_ns, there_ns] = steps.map_or([window.length_ns; 2], |of| {
            [of.seen, of.lasted].map(|ticks| ticks as f64 * unit)
        });
        // Of what was only tried it says nothing what markers will cost.
        let mut marking_ns = cycle.markers.have_counted().then_some(seen.marking_ns);
        if window.fine {
            // It ticks in the traps and behind them as well.
            let alone_ns = window.marking_ns(timers);
            let hits_ns = seen.probes_ns + seen.fixed_ns + seen.marking_ns;
            let lasted_ns = alone_ns + there_ns + hits_ns;
            let ticks_ns = timers.share_of_fine() * lasted_ns;
            cycle.fixed_ns += ticks_ns;
            cycle.fine_own_ns += alone_ns + there_ns;
            marking_ns = marking_ns.map(|ns| ns + timers.share_of_fine() * (ns + alone_ns));
            self.ingest.processes.get_mut(id).spending.fine_clock_ns += ticks_ns;
        }
        let length = window.length.saturating_sub(cycle.before as u64);
        let samples = self.ingest.clustered.take_open(id);
        tracing::debug!(slot, ?window, ?seen, late, ?steps, "window");
        let bytes = seen.bytes.iter().sum::<u64>() as f64;
        let waited = steps.map(|of| of.waited(planned, unit, seen.probes_ns));
        let cost = WindowCost {
            length_ns: seen_ns,
            ticks: steps.map_or(window.ticks, |of| of.seen),
            waited,
            probes_ns: seen.probes_ns,
            fixed_ns: (seen.fixed_ns - waited.map_or(0.0, |of| of.hits_ns)).max(0.0),
            marking_ns,
            drag_ns: 0.0,
            bytes,
            samples: samples.len() as u64,
        };
        let allocations = seen.objects.iter().sum::<u64>() as f64;
        let frees = window.frees.then_some(seen.frees);
        let (clock_ns, chance) = (seen_ns, cost.chance());
        let of_samples = Usual::TRAPS_OF_SAMPLE * samples.len() as f64;
        let mut counted = self.counted(slot, [bytes, allocations]);
        counted.stepped = self.stepped(slot, steps);
        let more = of_samples + counted.calls.map_or(0.0, |of| of.own);
        let groups = self.ingest.clustered.groups_mut(id);
        let pace = groups.pace(&Counts { clock_ns, chance, allocations, frees, more });
        let drag = groups.drag();
        let slower = pace.factor(drag.ns);
        tracing::debug!(slot, allocations, slower, ns = ?drag.ns, errors = ?drag.errors(), "drag");
        // Taken to be as much for its time while it waited for a step.
        let drag_ns = there_ns * (1.0 - 1.0 / slower);
        let in_tick = groups.counts_in_tick();
        if let Some(cycle) = self.cycles.get_mut(&slot) {
            cycle.drag_ns += drag_ns;
            cycle.controller.ended(&WindowCost { drag_ns, ..cost });
            cycle.controller.tallied(in_tick);
        }
        let Added { group, paired, share } =
            groups.add(length, window.share, &seen.bytes, &seen.objects, pace, counted);
        if paired {
            self.ingest.clustered.pair(id);
        }
        self.take_in(id, group, share, samples);
        self.look_at_tallies(slot);
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
    pub(super) fn take_lost(&mut self, slot: u32, id: ProcessId) {
        let cells = match self.kernel.lost.take_slot(slot) {
            Ok(cells) => cells,
            Err(error) => return tracing::warn!("read the lost samples: {error}"),
        };
        for (key, cell) in cells.iter().filter(|(_, of)| of.samples > 0) {
            let mean = (cell.bytes as f64 / cell.samples as f64).round() as u64;
            let sample = Sample::new(mean, Design::from_word(key.design));
            for _ in 0..cell.samples {
                if !self.ingest.clustered.push(id, StackId::LOST, sample) {
                    self.ingest.outcomes.add(Outcome::WindowCut, 1);
                }
            }
        }
    }

    /// Counts sampled calls of a process that never return to a probe.
    fn forget_calls(&mut self, slot: u32) {
        match self.kernel.pending.forget(|space: Space| space.slot == slot) {
            Ok(sampled) => self.ingest.outcomes.add(Outcome::ReturnLost, sampled),
            Err(error) => tracing::warn!("read the pending calls: {error}"),
        }
    }
}
