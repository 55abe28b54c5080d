//! A case: one rate of one kind of stacks.

use crate::program::{Load, Program};
use anyhow::{Context, Result};
use sampler_tests::Daemon;
use sampler_tests::daemon::outcome;
use sampler_tests::usage::resident;
use serde_json::Value;

/// Outcomes of samples whose stack is lost.
const LOSSES: [&str; 2] = ["ring_full", "ring_share"];

/// Depth of the stacks and bytes of a frame, by the size of the snapshot that holds such a stack.
const STACKS: [(&str, u32, u32); 3] = [("4 KiB", 8, 64), ("8 KiB", 24, 128), ("16 KiB", 40, 256)];
/// Allocations a second.
const RATES: [u32; 5] = [100, 1_000, 5_000, 20_000, 40_000];
/// Rate, in samples a second, from which there is a goal for the processor time of each sample.
const GOAL_RATE: u32 = 1_000;
/// The rate of a storm: more than the daemon can take.
const STORM: u32 = 0;

/// One measured case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Size of the snapshots.
    pub(crate) snapshot: &'static str,
    depth: u32,
    frame_bytes: u32,
    /// Requested samples a second; 0: a storm.
    pub(crate) rate: u32,
    /// Whether the interval may rise.
    pub(crate) limited: bool,
}

/// Measurements of a case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Allocations a second that the program made.
    pub(crate) made: f64,
    /// Samples a second.
    pub(crate) samples: f64,
    /// Samples whose stack was lost.
    pub(crate) lost: u64,
    /// Processor time for each sample, microseconds.
    pub(crate) cpu_us: f64,
    /// Percent of one processor.
    pub(crate) cpu_percent: f64,
    /// Resident bytes, without the ring.
    pub(crate) resident_bytes: u64,
    /// Largest factor by which the filling of the ring raised the interval.
    pub(crate) ring_factor: f64,
}

impl Case {
    pub(crate) fn all() -> Vec<Case> {
        let mut cases = Vec::new();
        for (snapshot, depth, frame_bytes) in STACKS {
            let of = |rate, limited| Case { snapshot, depth, frame_bytes, rate, limited };
            cases.extend(RATES.map(|rate| of(rate, false)));
            cases.push(of(STORM, true));
        }
        cases
    }

    /// Whether the case has a goal for the processor time of a sample.
    pub(crate) fn has_goal(&self) -> bool {
        self.rate == STORM || self.rate >= GOAL_RATE
    }

    pub(crate) fn measure(&self, seconds: u32) -> Result<Measured> {
        let Case { depth, frame_bytes, rate, .. } = *self;
        let mut program = Program::start(Load { rate, depth, frame_bytes, stacks: 1000, seconds })?;
        let limit = if self.limited { "25000" } else { "unlimited" };
        let arguments = ["--interval", "1", "--max-samples-per-second", limit];
        let daemon = Daemon::start(&[program.pid()], &arguments)?;
        let before = used_seconds(&daemon.status()?)?;
        program.go()?;
        let (made, took) = program.made()?;
        let status = daemon.status().context("the end of the case")?;
        let busy = used_seconds(&status)? - before;
        let (resident_bytes, ring_bytes) = resident(daemon.pid())?;
        let samples = outcome(&status, "sampled") as f64;
        let pressure = &status["intervals"][0]["pressure"];
        daemon.stop()?;
        Ok(Measured {
            made: made as f64 / took,
            samples: samples / took,
            lost: LOSSES.iter().map(|loss| outcome(&status, loss)).sum(),
            cpu_us: busy / samples * 1e6,
            cpu_percent: busy / took * 100.0,
            resident_bytes: resident_bytes - ring_bytes,
            ring_factor: pressure["ring_factor"].as_f64().unwrap_or(1.0),
        })
    }
}

/// CPU time that samplerd has used, by the scheduler's clock of the process. The clock includes
/// threads that have ended, such as a thread of samplerd's start that ends after ten seconds.
fn used_seconds(status: &Value) -> Result<f64> {
    let ns = status["daemon_processor_ns"].as_f64();
    Ok(ns.with_context(|| format!("no CPU time in {status}"))? / 1e9)
}
