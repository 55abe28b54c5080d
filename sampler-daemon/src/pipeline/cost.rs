//! What profiling costs processes: the work of their probes, charged by what was measured here.
//!
//! Every cost that is shown anywhere is made here, so that all of them agree. Whoever wants to know what a process has spent
//! since some moment keeps its [`Work`] of then ([`Worker::work`]) and charges what came since; divided by the time that the probes were on
//! ([`Spent::per_second`]) it is what they will go on to cost:
//!
//! ```text
//! let mark = worker.work(id);
//! …
//! let spent = worker.prices.charge(&worker.work(id).since(&mark));
//! let rate = spent.and_then(|spent| spent.per_second(seconds_on));
//! ```

use super::clock;
use super::config::{AttachMode, Config};
use super::facts;
use super::worker::Worker;
use crate::bpf::{Calibrator, Kernel, Link, ProbeEngine, ProbeSetup};
use crate::inspect::allocator::Function;
use crate::inspect::processor::{RESOLUTION_NS, processor_ns};
use crate::store::ProcessId;
use sampler_common::cost::{Measured, Placed, Program, Range, Report, Spent, Tariff, Work};
use sampler_common::estimate::Confidence;
use sampler_common::windows::Clock;
use sampler_common::wire::Role;
use std::time::{Duration, Instant};

/// How soon prices are measured again, and how often in the end: machines slow down and speed up. A measurement takes 3 to 20 ms of CPU time.
const LOOKS: [Duration; 2] = [Duration::from_secs(8), Duration::from_secs(64)];

/// Prices, and how they were come by.
pub(super) struct Prices {
    calibrator: Option<Calibrator>,
    tariff: Tariff,
    /// Why there are none.
    why: String,
    next_look: Instant,
    /// From the last look to the next, and at most.
    period: Duration,
    longest: Duration,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct PricesReport {
    /// The prices.
    pub tariff: Tariff,
    /// CPU time that measuring them took.
    pub taken: Duration,
    /// Why there are none; empty otherwise.
    pub why: String,
}

/// A cost, but for the CPU time of the processes: reading that takes its time, so that the worker leaves it to others.
#[derive(Clone, Debug, Default)]
pub struct UnreadCost {
    /// Everything else.
    report: Report,
    /// What their probes have done.
    work: Work,
    /// CPU time of those that have exited, nanoseconds; `None`: of one of them it is not known.
    exited_ns: Option<u64>,
    /// Pid and start of those that run, with their CPU time at the attach.
    running: Vec<(u32, u64, u64)>,
    /// How many there are.
    processes: u64,
}

impl Prices {
    /// Measures them; without any, what is wrong is said in the log and in `status`.
    pub(super) fn measure(kernel: &mut Kernel, config: &Config) -> Prices {
        let by_pid = config.attach_mode != AttachMode::Pids && config.windows.is_none();
        let way = ProbeSetup { by_pid };
        let measured = Calibrator::new(kernel, &config.settings, way)
            .and_then(|mut calibrator| calibrator.measure(kernel).map(|()| calibrator));
        let (calibrator, why) = match measured {
            Ok(calibrator) => (Some(calibrator), String::new()),
            Err(error) => {
                tracing::warn!("what probes cost is not known: {error:#}");
                (None, format!("{error:#}"))
            }
        };
        let tariff = calibrator.as_ref().map(Calibrator::tariff).unwrap_or_default();
        let [period, longest] = LOOKS;
        Prices { calibrator, tariff, why, next_look: Instant::now() + period, period, longest }
    }

    /// What was spent on work; `None` where there are no prices.
    pub(super) fn charge(&self, work: &Work) -> Option<Spent> {
        self.why.is_empty().then(|| self.tariff.charge(work))
    }

    /// What was measured.
    pub(super) fn report(&self) -> PricesReport {
        PricesReport {
            tariff: self.tariff,
            taken: self.calibrator.as_ref().map_or(Duration::ZERO, Calibrator::taken),
            why: self.why.clone(),
        }
    }

    /// The links of the calibration, to be closed.
    pub(super) fn take_links(&mut self) -> Vec<Link> {
        self.calibrator.as_mut().map(Calibrator::take_links).unwrap_or_default()
    }
}

impl Worker {
    /// Perf events are detached one by one, which takes long: better now than at the end. They are measured once.
    pub(super) fn close_costly_links(&mut self) {
        if self.engine() == ProbeEngine::Perf {
            let links = self.prices.take_links();
            self.links.close(links);
        }
    }

    /// Measures the prices again, where it is time to.
    pub(super) fn measure_due_prices(&mut self) {
        let due = self.prices.next_look;
        // While a window is open better nothing else is done; where one always is, a look has to be.
        let begins = if self.is_between_windows() { due } else { due + self.prices.longest };
        if begins > Instant::now() {
            return;
        }
        let Worker { prices, kernel, .. } = self;
        prices.period = (2 * prices.period).min(prices.longest);
        prices.next_look = Instant::now() + prices.period;
        let Some(calibrator) = &mut prices.calibrator else { return };
        match calibrator.measure_again(kernel) {
            Ok(()) => prices.tariff = calibrator.tariff(),
            Err(error) => tracing::warn!("measure again what probes cost: {error:#}"),
        }
    }

    /// Remembers how much CPU time the process in a slot has used.
    pub(super) fn look_at_processor(&mut self, slot: u32) {
        let Some(profiled) = self.ingest.table.get(slot) else { return };
        let Some(process) = self.ingest.table.attached(slot).and_then(|of| of.process.as_ref())
        else {
            return;
        };
        facts::look(self.ingest.processes.get_mut(profiled.id), process);
    }

    /// What profiling has cost these processes since they were attached, together.
    pub(super) fn costs(&self, of: &[ProcessId], confidence: Confidence) -> UnreadCost {
        let (mut work, mut records) = (Work::default(), 0);
        let mut unread = UnreadCost { exited_ns: Some(0), ..UnreadCost::default() };
        for id in of {
            work.add(&self.work(*id));
            let record = self.ingest.processes.get(*id);
            records += record.spending.records;
            unread.processes += record.folded.max(1);
            match (self.running(*id), record.spending.processor_before_ns) {
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
            spent_ns: spent.map(|spent| self.with_clocks(of, spent.range(confidence))),
            processor_ns: None,
            daemon_ns: self.daemon_ns_for(records),
            unpriced: spent.map_or(work.all_hits(), |spent| spent.unpriced) as u64,
            why: self.prices.why.clone(),
        };
        unread
    }

    /// With the cost of the ticks of these processes' clocks: nothing without windows.
    fn with_clocks(&self, of: &[ProcessId], spent: Range) -> Range {
        if self.kernel.windows.is_none() {
            return spent;
        }
        let ticks: u64 = of.iter().map(|id| self.ticks_of(*id)).sum();
        let ticks_ns = ticks as f64 * Clock::TICK_NS;
        Range { value: spent.value + ticks_ns / 2.0, high: spent.high + ticks_ns, ..spent }
    }

    /// What a hit of a function's probe costs.
    pub(super) fn price_of(&self, function: &Function) -> Option<Measured> {
        let placed = Placed::one(function.placement.emulated);
        self.prices.tariff.hit(Program::of(function.role)?, placed)
    }

    /// What the hits of a role's probes in these slots that are placed so have cost, without what samples cost beyond a hit.
    pub(super) fn spent_on_hits(&self, slots: &[u32], role: Role, placed: Placed) -> Option<Range> {
        Program::of(role)?;
        let mut work = Work::default();
        slots.iter().for_each(|slot| self.add_placed_hits(&mut work, &[*slot], role, placed));
        let spent = self.prices.charge(&work).filter(|spent| spent.unpriced == 0.0)?;
        Some(spent.range(Confidence::DEFAULT))
    }

    /// CPU time that the daemon and its guardian have used, nanoseconds, but for measuring prices.
    pub(super) fn used_ns(&self) -> u64 {
        let own_ns = clock::processor_ns() + self.kernel.attacher().spent_ns();
        own_ns.saturating_sub(self.prices.report().taken.as_nanos() as u64)
    }

    /// The part of the daemon's CPU time that goes to so many records: all that it has used since it was ready.
    fn daemon_ns_for(&self, records: u64) -> u64 {
        let used = self.used_ns().saturating_sub(self.starting_ns);
        match self.ingest.records {
            0 => 0,
            all => (used as f64 * records as f64 / all as f64) as u64,
        }
    }
}

impl UnreadCost {
    /// What was spent; `None` where there are no prices.
    pub(super) fn spent_ns(&self) -> Option<Range> {
        self.report.spent_ns
    }

    /// The part of the work that one program did.
    pub(super) fn work_of(&self, program: Program) -> Work {
        self.work.only(program)
    }

    /// Reads the CPU time.
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
