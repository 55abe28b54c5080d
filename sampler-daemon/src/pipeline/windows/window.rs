//! One window of a process: probes are attached, detached, and what was seen in between is added.

use super::Cycle;
use crate::bpf::maps::totals::SlotTotals;
use crate::pipeline::clock::thread_ns;
use crate::pipeline::records::ingest::Ingest;
use crate::pipeline::worker::Worker;
use crate::store::{ProcessId, StackId};
use sampler_common::cost::Work;
use sampler_common::counters::Outcome;
use sampler_common::counting::Counted;
use sampler_common::estimate::{Confidence, Sample};
use sampler_common::limits::CLASSES;
use sampler_common::sampling::Design;
use sampler_common::windows::{Group, WindowCost};
use sampler_common::wire::Space;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The kernel side's counts of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::pipeline) struct Reading {
    /// Exact totals.
    totals: SlotTotals,
    /// Work of the process's probes.
    work: Work,
    /// Hits outside of windows, while probes were attached or detached.
    outside: f64,
}

impl Reading {
    /// This reading with the work of an earlier one.
    pub(super) fn with_work_of(self, earlier: &Reading) -> Reading {
        Reading { work: earlier.work, ..self }
    }
}

impl Cycle {
    /// Totals and cost of the window that has ended. Its probes have cost `spent_ns`.
    fn ended(&mut self, now: Reading, spent_ns: f64) -> (Group, WindowCost) {
        let detached_ns = self.detach_ns.load(Relaxed);
        // The detach time is that of the window before: the links of this window are still being
        // closed.
        let links_ns =
            (std::mem::take(&mut self.attach_ns) + detached_ns - self.detached_ns) as f64;
        self.detached_ns = detached_ns;
        self.fixed_ns += links_ns;
        let before = std::mem::replace(&mut self.last, now);
        let bytes = added(&now.totals.bytes, &before.totals.bytes);
        let objects = added(&now.totals.objects, &before.totals.objects);
        let calls = objects.iter().sum::<f64>();
        let all = calls + now.outside - before.outside;
        // Hits during attach and detach are a fixed cost of a window of any length.
        let hits_ns = if all > 0.0 { spent_ns * calls / all } else { 0.0 };
        let totals = Group { bytes, objects, traps: calls, ..Group::default() };
        let cost = WindowCost {
            hits_ns,
            fixed_ns: links_ns + spent_ns - hits_ns,
            bytes: bytes.iter().sum(),
            ..WindowCost::default()
        };
        (totals, cost)
    }
}

/// Increase since an earlier reading.
fn added(now: &[u64; CLASSES], before: &[u64; CLASSES]) -> [f64; CLASSES] {
    std::array::from_fn(|class| now[class].saturating_sub(before[class]) as f64)
}

impl Worker {
    /// Attaches the probes of a process for a window.
    pub(super) fn open_window(&mut self, slot: u32) {
        if self.exclude_patched_before_window(slot) {
            return;
        }
        let Some(profiled) = self.ingest.table.get(slot) else { return };
        let (id, pid) = (profiled.id, profiled.pid);
        if profiled.allocators.is_empty() {
            // The allocators of a new image are not known yet. Its allocations are not seen, but
            // they may exist.
            let is_new = self.ingest.table.attached(slot).is_some_and(|of| of.has_new_image);
            return if is_new { self.skip_window(slot) } else { self.pass_window(slot) };
        }
        self.set_probe_addresses(slot);
        self.kernel.hits.begin_anew(slot);
        self.forget_calls(slot);
        let before = self.attaching_ns();
        if let Err(error) = self.attach_for_window(slot) {
            if self.ingest.table.attached(slot).is_some_and(|of| of.is_running()) {
                tracing::warn!(pid, "{error:#}");
            }
            return self.skip_window(slot);
        }
        let attach_ns = self.attaching_ns().saturating_sub(before);
        // Records of a skipped window do not belong to this one.
        self.read_ring();
        let (Some(cycle), Some(gates)) =
            (self.ingest.table.cycle_mut(slot), &mut self.kernel.windows)
        else {
            return;
        };
        cycle.attach_ns += attach_ns;
        let cut = self.ingest.window_samples.begin(id, cycle.window.kappa());
        self.ingest.outcomes.add(Outcome::WindowCut, cut as u64);
        gates.ready(slot, cycle.open_at, cycle.window.ticks);
        let late = gates.ticks(slot).saturating_sub(cycle.open_at);
        tracing::debug!(slot, late, lead = cycle.lead, window = ?cycle.window, "attached");
        cycle.attached_in((cycle.lead + gates.ticks(slot)).saturating_sub(cycle.open_at));
    }

    /// Attaches to the known allocators of a process.
    fn attach_for_window(&mut self, slot: u32) -> anyhow::Result<()> {
        let Worker { links, kernel, ingest, .. } = self;
        let Some(profiled) = ingest.table.get(slot) else { return Ok(()) };
        links.attach_for_window(kernel, slot, profiled.pid, &profiled.allocators)
    }

    /// CPU time of this thread and of the guardian, which attaches on its behalf.
    fn attaching_ns(&self) -> u64 {
        thread_ns() + self.kernel.attacher().spent_ns()
    }

    /// Reads the kernel side's counts of a process.
    pub(super) fn reading(&self, slot: u32, totals: SlotTotals) -> Reading {
        let outside = self.kernel.hits.read_outside(slot).into_iter().sum::<Counted>();
        let outside = outside.count(Confidence::DEFAULT).value;
        Reading { totals, work: self.work_of_slot(slot), outside }
    }

    /// Detaches the probes until the next window.
    pub(super) fn detach_after_window(&mut self, slot: u32) {
        let spent_ns = self.ingest.table.cycle(slot).map(|cycle| Arc::clone(&cycle.detach_ns));
        self.links.detach_own(slot, &spent_ns.unwrap_or_default());
    }

    /// Ends the window of a process: it represents its stratum, and the next window is planned.
    pub(super) fn end_window(&mut self, slot: u32) {
        let Some(id) = self.ingest.table.id_of(slot) else { return };
        let totals = match self.kernel.totals.read(slot) {
            Ok(totals) => totals,
            Err(error) => {
                tracing::warn!("{error:#}");
                return self.skip_window(slot);
            }
        };
        let now = self.reading(slot, totals);
        self.take_lost(slot, id);
        let samples = self.ingest.window_samples.take_open(id);
        let (Some(cycle), Some(gates)) = (self.ingest.table.cycle_mut(slot), &self.kernel.windows)
        else {
            return;
        };
        let spent = self.prices.charge(&now.work.since(&cycle.last.work));
        let returns = now.work.since(&cycle.last.work).returns();
        let (totals, cost) = cycle.ended(now, spent.map_or(0.0, |spent| spent.cpu.ns));
        // A process that exits in its window leaves half a tick, on average.
        let (left, window) = (gates.left(slot), cycle.window);
        let seen = if left == 0 { window.ticks as f64 } else { (window.ticks - left) as f64 + 0.5 };
        let own_ns = seen * gates.clock().own_ns();
        // The return of a followed call is a separate trap.
        let traps = totals.traps + returns;
        let totals = Group { length: window.length as f64, own_ns, traps, ..totals };
        let cost = WindowCost { ticks: window.ticks, samples: samples.len() as u64, ..cost };
        tracing::debug!(slot, ?cost, own_ns, traps, left, "window");
        cycle.planner.ended(&cost);
        let groups = self.ingest.window_samples.groups_mut(id);
        let group = groups.add(&totals, window.kappa());
        self.ingest.add_samples(id, group, window.kappa(), samples);
        self.plan_window(slot);
    }

    /// Adds samples of the open window whose record was lost, without their stacks.
    pub(super) fn take_lost(&mut self, slot: u32, id: ProcessId) {
        let cells = match self.kernel.lost.take_slot(slot) {
            Ok(cells) => cells,
            Err(error) => return tracing::warn!("read the lost samples: {error}"),
        };
        for (key, cell) in cells.iter().filter(|(_, of)| of.samples > 0) {
            let mean = (cell.bytes as f64 / cell.samples as f64).round() as u64;
            let sample = Sample::new(mean, Design::from_word(key.design));
            for _ in 0..cell.samples {
                if !self.ingest.window_samples.push(id, StackId::LOST, sample) {
                    self.ingest.outcomes.add(Outcome::WindowCut, 1);
                }
            }
        }
    }

    /// Counts sampled calls of a process whose return reaches no probe: the probes were detached
    /// during the call.
    fn forget_calls(&mut self, slot: u32) {
        match self.kernel.pending.forget(|space: Space| space.slot == slot) {
            Ok(sampled) => self.ingest.outcomes.add(Outcome::ReturnLost, sampled),
            Err(error) => tracing::warn!("read the pending calls: {error}"),
        }
    }
}

impl Ingest {
    /// Adds the samples of a window that has ended to the rows.
    fn add_samples(
        &mut self,
        id: ProcessId,
        group: u16,
        kappa: f64,
        samples: Vec<(StackId, Sample)>,
    ) {
        for (stack, sample) in samples {
            let sample = Sample { kept: sample.kept * kappa, ..sample };
            if !self.rows.add(self.processes.holder(id), stack, &sample) {
                self.outcomes.add(Outcome::StackTableFull, 1);
            }
            let own = [sample.size as f64, 1.0].map(|own| sample.moments(own).sum);
            self.window_samples.add(id, stack, group, own);
        }
    }
}
