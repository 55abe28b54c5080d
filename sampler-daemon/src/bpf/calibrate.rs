//! Measures the cost of each kind of probe on this machine: on functions of the daemon's own, with
//! the programs and the engine in use.
//!
//! Every probed function has a twin without a probe. Batches of calls of the two alternate. The
//! clock is this thread's CPU time, so that neither waiting nor other processes count. A price is
//! the median difference of many pairs of batches.
//! All kinds of probes alternate as well, so that a change of the machine's speed affects all kinds
//! alike.
//!
//! The hits are counted in a process slot of their own, which is in no list. Their records are read
//! and dropped here.
//!
//! Bounds: at most [`MAX_CPU_TIME`] of CPU time for the first measurement, and a fraction of that
//! for each later one.

mod batch;
mod points;

use super::guardian::Link;
use super::kernel::{Kernel, Settings};
use super::sys::ground::Ground;
use anyhow::Context as _;
use batch::{Batches, Kind, cpu_time};
use sampler_common::cost::{Line, Measured, Program, Speed, Tariff};
use sampler_common::wire::SHARED;
use std::time::Duration;

/// Maximum CPU time of a measurement.
pub const MAX_CPU_TIME: Duration = Duration::from_millis(100);
/// Pairs of batches of each kind in the first measurement.
const INITIAL_ROUNDS: usize = 25;
/// Pairs of batches of each kind in a later measurement.
const LATER_ROUNDS: usize = 7;
/// Number of measurements that are kept; the first one always stays.
const MAX_MEASUREMENTS: usize = 32;

/// How processes are probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeSetup {
    /// Whether processes are looked up by pid, as for shared links.
    pub by_pid: bool,
}

/// The probed functions and their measurements.
pub struct Calibrator {
    ground: Ground,
    /// The links; empty once they were taken to be closed.
    links: Vec<Link>,
    settings: Settings,
    way: ProbeSetup,
    /// By kind: one price for each measurement.
    measurements: Vec<(Kind, Vec<Measured>)>,
    /// CPU time used so far.
    taken: Duration,
}

impl Calibrator {
    /// Makes the functions and probes them like the functions of processes.
    ///
    /// # Errors
    /// If the kernel refuses a file of executable memory, or the probes in it.
    pub fn new(
        kernel: &mut Kernel,
        settings: &Settings,
        way: ProbeSetup,
    ) -> anyhow::Result<Calibrator> {
        let ground = Ground::new().context("make functions to calibrate on")?;
        let slot = kernel.calibration_slot();
        kernel.totals.reset(slot)?;
        let points = points::points(slot, settings.track_live, way);
        let pid = Some(std::process::id());
        let mut links = kernel.attach(ground.file(), pid, &points)?;
        if let Some(usdt) = &mut kernel.usdt {
            let points = points::usdt_points(settings.track_live);
            let slot = if way.by_pid { SHARED } else { slot };
            links.extend(usdt.attach(ground.file(), pid, slot, &points)?);
        }
        let taken = Duration::ZERO;
        let (settings, measurements) = (*settings, Vec::new());
        Ok(Calibrator { ground, links, settings, way, measurements, taken })
    }

    /// Measures everything. The ring must hold no other records, since this method drops what it
    /// reads.
    ///
    /// # Errors
    /// If the maps cannot be written.
    pub fn measure(&mut self, kernel: &mut Kernel) -> anyhow::Result<()> {
        // The kernel then knows where the calibration's stack ends, as for other programs' stacks.
        let first_stack = self.ground.as_first_stack();
        let measured = self.take_measurement(kernel, INITIAL_ROUNDS, true);
        drop(first_stack);
        measured
    }

    /// Measures hits and returns again, which is possible while processes are profiled.
    ///
    /// # Errors
    /// If the maps cannot be written.
    pub fn measure_again(&mut self, kernel: &mut Kernel) -> anyhow::Result<()> {
        match self.links.is_empty() {
            true => Ok(()),
            false => self.take_measurement(kernel, LATER_ROUNDS, false),
        }
    }

    fn take_measurement(
        &mut self,
        kernel: &mut Kernel,
        rounds: usize,
        is_first: bool,
    ) -> anyhow::Result<()> {
        let (slot, pid) = (kernel.calibration_slot(), std::process::id());
        if self.way.by_pid {
            kernel.targets.enter(pid, slot)?;
        }
        let begin = cpu_time();
        let mut batches = Batches::new(&self.ground, &self.settings, slot);
        for round in 0..rounds {
            batches.round(kernel, round, is_first);
            if cpu_time() - begin >= MAX_CPU_TIME {
                break;
            }
        }
        let prices = batches.prices();
        self.taken += cpu_time() - begin;
        if self.way.by_pid {
            kernel.targets.exclude(pid)?;
        }
        for (kind, price) in prices {
            match self.measurements.iter_mut().find(|(of, _)| *of == kind) {
                Some((_, measurements)) => {
                    if measurements.len() == MAX_MEASUREMENTS {
                        measurements.remove(1);
                    }
                    measurements.push(price);
                }
                None => self.measurements.push((kind, vec![price])),
            }
        }
        Ok(())
    }

    /// The prices from all measurements so far.
    pub fn tariff(&self) -> Tariff {
        let mut tariff = Tariff::default();
        let mut samples = Vec::new();
        let speed = self.speed();
        tariff.speed_error = speed.error;
        for (kind, measurements) in &self.measurements {
            let Some(price) = Measured::pooled(&speed.normalized(measurements)) else { continue };
            match kind {
                Kind::Hit(program, stepped) => {
                    tariff.hits[*program as usize][usize::from(*stepped)] = Some(price);
                }
                Kind::ColdCache => tariff.cold_cache = Some(price),
                Kind::Returned => tariff.return_probe = Some(price),
                Kind::Sampled(bytes) => samples.push((*bytes as f64 / 1024.0, price)),
                Kind::Ended => tariff.sampled_free = Some(price),
            }
        }
        tariff.sampled = Line::through(&samples);
        tariff
    }

    /// The speed of the machine in each measurement.
    fn speed(&self) -> Speed {
        let is_hit = |kind: &Kind| matches!(kind, Kind::Hit(..));
        let hits = self.measurements.iter().filter(|(kind, _)| is_hit(kind));
        Speed::of(&hits.map(|(_, measurements)| measurements.as_slice()).collect::<Vec<_>>())
    }

    /// CPU time that all measurements have taken.
    pub fn taken(&self) -> Duration {
        self.taken
    }

    /// Takes the links for closing. Later calls of [`Calibrator::measure_again`] measure nothing.
    pub fn take_links(&mut self) -> Vec<Link> {
        std::mem::take(&mut self.links)
    }
}

/// The programs that are measured, each with whether the instruction is single-stepped.
fn hits(track_live: bool) -> impl Iterator<Item = (Program, bool)> {
    let frees = |of: &Program| matches!(of, Program::Free | Program::OtelFree);
    let programs = Program::ALL.into_iter().filter(move |of| track_live || !frees(of));
    let ways = |program| [(program, false), (program, true)];
    programs.flat_map(ways).filter(|(program, stepped)| !(program.is_usdt() && *stepped))
}
