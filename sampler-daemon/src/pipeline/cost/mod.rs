//! What profiling costs processes: the work of their probes, charged at prices measured on this
//! machine.
//!
//! Every reported cost is computed here, so that all of them agree. To get the cost since a moment,
//! keep the [`Work`] of that moment ([`Worker::work`]) and charge the difference.

pub(super) mod forecast;
mod hits;
mod work;

use super::clock;
use super::config::{AttachMode, Config};
use super::processes::facts;
use super::worker::Worker;
use crate::bpf::{Kernel, calibrate};
use crate::inspect::allocator::Function;
use crate::inspect::process::processor::{RESOLUTION_NS, processor_ns};
use crate::pipeline::records::ingest::Ingest;
use crate::store::ProcessId;
use sampler_common::cost::{Measured, Placed, Program, Range, Report, Spent, Tariff, Work};
use sampler_common::estimate::Confidence;
use sampler_common::windows::Clock;
use sampler_common::wire::Role;
use std::time::Duration;

/// The prices of probes on this machine. They are measured at the start.
#[derive(Clone, Debug)]
pub struct Prices {
    /// The prices.
    pub tariff: Tariff,
    /// CPU time of measuring the prices.
    pub taken: Duration,
    /// Why there are no prices; empty otherwise.
    pub why: String,
}

/// A cost without the CPU time of the processes. Reading that time takes long, so the worker leaves
/// it to others.
#[derive(Clone, Debug, Default)]
pub struct UnreadCost {
    /// All other parts of the report.
    pub(super) report: Report,
    /// The work of the probes.
    pub(super) work: Work,
    /// CPU time of the exited processes, nanoseconds; `None` if the time of one of them is unknown.
    exited_ns: Option<u64>,
    /// Pid and start of the running processes, with their CPU time at the attach.
    running: Vec<(u32, u64, u64)>,
    /// Number of processes.
    processes: u64,
}

impl Prices {
    /// Measures the prices. On failure, the log and `status` give the reason.
    pub(super) fn measure(kernel: &mut Kernel, config: &Config) -> Prices {
        let is_by_pid = config.attach_mode != AttachMode::Pids && config.windows.is_none();
        match calibrate::measure(kernel, &config.settings, is_by_pid) {
            Ok((tariff, taken)) => Prices { tariff, taken, why: String::new() },
            Err(error) => {
                tracing::warn!("what probes cost is not known: {error:#}");
                let (tariff, taken) = (Tariff::default(), Duration::ZERO);
                Prices { tariff, taken, why: format!("{error:#}") }
            }
        }
    }

    /// The cost of `work`; `None` if there are no prices.
    pub(super) fn charge(&self, work: &Work) -> Option<Spent> {
        self.why.is_empty().then(|| self.tariff.charge(work))
    }
}

impl Worker {
    /// The total cost of profiling these processes since their attach.
    pub(super) fn costs(&self, of: &[ProcessId], confidence: Confidence) -> UnreadCost {
        let (mut work, mut records) = (Work::default(), 0);
        let mut unread = UnreadCost { exited_ns: Some(0), ..UnreadCost::default() };
        for id in of {
            work.add(&self.work(*id));
            let record = self.ingest.processes.get(*id);
            records += record.spending.records;
            unread.processes += record.exited_count.max(1);
            match (self.ingest.running(*id), record.spending.processor_before_ns) {
                (Some((pid, start)), Some(before)) => unread.running.push((pid, start, before)),
                _ => {
                    let used = record.spending.processor_ns;
                    unread.exited_ns = unread.exited_ns.zip(used).map(|(sum, one)| sum + one);
                }
            }
        }
        let spent = self.prices.charge(&work);
        unread.work = work;
        unread.report = Report {
            spent_ns: spent.map(|spent| self.with_clocks(of, spent.cpu.range(confidence))),
            processor_ns: None,
            daemon_ns: self.daemon_ns_for(records),
            unpriced: spent.map_or(work.all_hits(), |spent| spent.unpriced) as u64,
            why: self.prices.why.clone(),
        };
        unread
    }

    /// Adds the cost of the ticks of these processes' clocks, if there are windows.
    fn with_clocks(&self, of: &[ProcessId], spent: Range) -> Range {
        if self.kernel.windows.is_none() {
            return spent;
        }
        let ticks: u64 = of.iter().map(|id| self.ticks_of(*id)).sum();
        let ticks_ns = ticks as f64 * Clock::TICK_NS;
        Range { value: spent.value + ticks_ns / 2.0, high: spent.high + ticks_ns, ..spent }
    }

    /// The cost of a hit of a function's probe.
    pub(super) fn price_of(&self, function: &Function) -> Option<Measured> {
        let placed = Placed::one(function.placement.emulated);
        self.prices.tariff.hit(Program::of(function.role)?, placed)
    }

    /// The cost of the hits of a role's probes in these slots, for one placement. It is without the
    /// cost of samples beyond a hit.
    pub(super) fn spent_on_hits(&self, slots: &[u32], role: Role, placed: Placed) -> Option<Range> {
        Program::of(role)?;
        let mut work = Work::default();
        slots.iter().for_each(|slot| self.add_placed_hits(&mut work, &[*slot], role, placed));
        let spent = self.prices.charge(&work).filter(|spent| spent.unpriced == 0.0)?;
        Some(spent.cpu.range(Confidence::DEFAULT))
    }

    /// CPU time of the daemon and its guardian without measuring prices, nanoseconds.
    pub(super) fn used_ns(&self) -> u64 {
        let own_ns = clock::processor_ns() + self.kernel.attacher().spent_ns();
        own_ns.saturating_sub(self.prices.taken.as_nanos() as u64)
    }

    /// The part of the daemon's CPU time since the start that goes to `records` records.
    fn daemon_ns_for(&self, records: u64) -> u64 {
        let used = self.used_ns().saturating_sub(self.starting_ns);
        match self.ingest.records {
            0 => 0,
            all => (used as f64 * records as f64 / all as f64) as u64,
        }
    }
}

impl Ingest {
    /// Remembers how much CPU time the process in a slot has used.
    pub(super) fn look_at_processor(&mut self, slot: u32) {
        let Some(profiled) = self.table.get(slot) else { return };
        let Some(process) = self.table.attached(slot).and_then(|of| of.process.as_ref()) else {
            return;
        };
        facts::read_cpu_time(self.processes.get_mut(profiled.id), process);
    }
}

impl UnreadCost {
    /// Reads the CPU time of the processes.
    pub(super) fn read(self) -> Report {
        let UnreadCost { mut report, exited_ns, running, processes, .. } = self;
        let each = running.iter().map(|(pid, start, before)| {
            processor_ns(*pid, *start).map(|now| now.saturating_sub(*before))
        });
        let sum = each.fold(exited_ns, |sum, one| sum.zip(one).map(|(sum, one)| sum + one));
        report.processor_ns = sum.map(|sum| {
            let (value, off) = (sum as f64, (processes * RESOLUTION_NS) as f64);
            Range { value, low: (value - off).max(0.0), high: value + off }
        });
        report
    }
}
