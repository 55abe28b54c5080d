//! Measures what each kind of probe costs here: on functions of the daemon's own, with the programs and the engine in use.
//!
//! With and without: every probed function has a twin without a probe. Batches of calls of the one and of the other take turns, by the
//! clock of this thread's CPU time, so that neither waiting nor other processes count; a price is the median difference of
//! many pairs of batches. All kinds take turns as well: what the machine does in the meantime, it does to all of them.
//!
//! The hits fall into a process slot of their own, which is in no list, and what they send is read and dropped here.
//!
//! Bounds: no more than [`MAX_CPU_TIME`] of CPU time at the start, and a fraction of that for each later look.

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

/// CPU time that the calibration takes at most.
pub const MAX_CPU_TIME: Duration = Duration::from_millis(100);
/// Pairs of batches of each kind at the start.
const INITIAL_ROUNDS: usize = 25;
/// Pairs in a later look.
const LATER_ROUNDS: usize = 7;
/// Looks that are remembered; the first one stays.
const LOOKS: usize = 32;

/// How processes are probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeSetup {
    /// Whether they are looked up by pid, as where links are shared.
    pub by_pid: bool,
}

/// The functions with their probes.
pub struct Calibrator {
    ground: Ground,
    /// Empty once they are taken to be closed.
    links: Vec<Link>,
    settings: Settings,
    way: ProbeSetup,
    /// By kind: one price for each look.
    looks: Vec<(Kind, Vec<Measured>)>,
    /// CPU time taken so far.
    taken: Duration,
}

impl Calibrator {
    /// Makes the functions, and probes them as the functions of processes are.
    ///
    /// # Errors
    /// Where the kernel refuses a file of executable memory, or the probes in it.
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
        let (settings, looks) = (*settings, Vec::new());
        Ok(Calibrator { ground, links, settings, way, looks, taken })
    }

    /// Measures everything. Nothing else may be in the ring, since what is read there is dropped.
    ///
    /// # Errors
    /// If the maps cannot be written.
    pub fn measure(&mut self, kernel: &mut Kernel) -> anyhow::Result<()> {
        // As of other programs' stacks the kernel knows where this one ends.
        let first_stack = self.ground.as_first_stack();
        let looked = self.look(kernel, INITIAL_ROUNDS, true);
        drop(first_stack);
        looked
    }

    /// Measures again what can be measured while processes are profiled: hits and returns.
    ///
    /// # Errors
    /// If the maps cannot be written.
    pub fn measure_again(&mut self, kernel: &mut Kernel) -> anyhow::Result<()> {
        match self.links.is_empty() {
            true => Ok(()),
            false => self.look(kernel, LATER_ROUNDS, false),
        }
    }

    fn look(&mut self, kernel: &mut Kernel, rounds: usize, is_first: bool) -> anyhow::Result<()> {
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
            match self.looks.iter_mut().find(|(of, _)| *of == kind) {
                Some((_, looks)) => {
                    if looks.len() == LOOKS {
                        looks.remove(1);
                    }
                    looks.push(price);
                }
                None => self.looks.push((kind, vec![price])),
            }
        }
        Ok(())
    }

    /// The prices by all looks so far.
    pub fn tariff(&self) -> Tariff {
        let mut tariff = Tariff::default();
        let mut samples = Vec::new();
        let speed = self.speed();
        tariff.speed_error = speed.error;
        for (kind, looks) in &self.looks {
            let Some(price) = Measured::pooled(&speed.normalized(looks)) else { continue };
            match kind {
                Kind::Hit(program, stepped) => {
                    tariff.hits[*program as usize][usize::from(*stepped)] = Some(price);
                }
                Kind::Disturbed => tariff.disturbed = Some(price),
                Kind::Returned => tariff.returned = Some(price),
                Kind::Sampled(bytes) => samples.push((*bytes as f64 / 1024.0, price)),
                Kind::Ended => tariff.ended = Some(price),
            }
        }
        tariff.sampled = Line::through(&samples);
        tariff
    }

    /// How fast the machine was at each look.
    fn speed(&self) -> Speed {
        let is_hit = |kind: &Kind| matches!(kind, Kind::Hit(..));
        let hits = self.looks.iter().filter(|(kind, _)| is_hit(kind));
        Speed::of(&hits.map(|(_, looks)| looks.as_slice()).collect::<Vec<_>>())
    }

    /// CPU time that measuring has taken.
    pub fn taken(&self) -> Duration {
        self.taken
    }

    /// The links, to be closed; nothing is measured after that.
    pub fn take_links(&mut self) -> Vec<Link> {
        std::mem::take(&mut self.links)
    }
}

/// The programs that are probed here, with whether the instruction is single-stepped.
fn hits(track_live: bool) -> impl Iterator<Item = (Program, bool)> {
    let frees = |of: &Program| matches!(of, Program::Free | Program::OtelFree);
    let programs = Program::ALL.into_iter().filter(move |of| track_live || !frees(of));
    let ways = |program| [(program, false), (program, true)];
    programs.flat_map(ways).filter(|(program, stepped)| !(program.is_usdt() && *stepped))
}
