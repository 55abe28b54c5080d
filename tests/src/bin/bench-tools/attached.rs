//! A profiler at work, and its own figures.

use crate::clock;
use anyhow::Result;
use sampler_daemon::bpf::Link;
use sampler_tests::child::Child;
use sampler_tests::{Daemon, daemon};
use serde_json::Value;

/// What runs together with a measured program. Dropping this value ends and detaches it.
pub(crate) enum Attached {
    /// Nothing, or a profiler inside the program.
    Nothing,
    /// Probes that this process has attached.
    Links(Vec<Link>),
    /// samplerd.
    Daemon(Daemon),
    /// Another profiler.
    Process(Child),
}

/// Counts of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Samples {
    /// Samples taken, lost ones included.
    pub(crate) taken: f64,
    /// Samples whose record found no room.
    pub(crate) lost: f64,
}

/// The windows of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Windows {
    /// Number of windows.
    pub(crate) count: f64,
    /// Bytes allocated, and the ends of their interval. Infinite ends: no interval.
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Effective number of samples: (Σw)²/Σw², as many samples of equal weight have the same
    /// precision.
    pub(crate) effective: f64,
}

impl Windows {
    /// Reads the windows of a profile as json; `None` without windows.
    fn of(profile: &Value) -> Option<Windows> {
        let clusters = profile["reference"]["clusters"].get(0)?;
        let count = clusters["windows"].as_f64()?;
        let space = &profile["totals"]["alloc_space"];
        let (value, low) = (space["value"].as_f64()?, space["low"].as_f64()?);
        let high = space["high"].as_f64().unwrap_or(f64::INFINITY);
        let moments = |of: &Value| {
            let of = &of["alloc_space"]["moments"];
            Some((of["sum"].as_f64()?, of["variance"].as_f64()?))
        };
        let stacks = profile["stacks"].as_array()?;
        let (sum, squares) = stacks
            .iter()
            .filter_map(moments)
            .fold((0.0, 0.0), |(sum, squares), (more, variance)| (sum + more, squares + variance));
        let effective = if squares > 0.0 { sum * sum / squares } else { 0.0 };
        Some(Windows { count, value, low, high, effective })
    }
}

impl Attached {
    /// CPU time of the profiler's processes so far, seconds.
    pub(crate) fn cpu_s(&self) -> f64 {
        match self {
            Attached::Nothing | Attached::Links(_) => 0.0,
            Attached::Daemon(daemon) => clock::tree(daemon.pid()),
            Attached::Process(child) => clock::tree(child.pid()),
        }
    }

    /// Samples so far. Zero for profilers that do not report samples.
    ///
    /// # Errors
    /// If samplerd does not answer.
    pub(crate) fn samples(&self) -> Result<Samples> {
        let Attached::Daemon(daemon) = self else { return Ok(Samples::default()) };
        let status = daemon.status()?;
        let count = |name| daemon::outcome(&status, name) as f64;
        let lost = count("ring_full");
        Ok(Samples { taken: count("sampled") + lost, lost })
    }

    /// The windows of samplerd, with intervals of this confidence; `None` without windows.
    ///
    /// # Errors
    /// If samplerd does not answer.
    pub(crate) fn windows(&self, confidence: f64) -> Result<Option<Windows>> {
        let profile = self.profile(&["--confidence", &confidence.to_string()])?;
        Ok(profile.as_ref().and_then(Windows::of))
    }

    /// A profile of samplerd as json; `None` without samplerd.
    ///
    /// # Errors
    /// If samplerd does not answer.
    pub(crate) fn profile(&self, options: &[&str]) -> Result<Option<Value>> {
        let Attached::Daemon(daemon) = self else { return Ok(None) };
        let finished = daemon.sampler(&[&["profile", "--format", "json"], options].concat())?;
        Ok(Some(serde_json::from_slice(&finished.success("sampler profile")?.stdout)?))
    }

    /// Ends and detaches the profiler.
    ///
    /// # Errors
    /// If samplerd does not end well.
    pub(crate) fn detach(self) -> Result<()> {
        match self {
            Attached::Daemon(daemon) => daemon.stop(),
            Attached::Links(links) => {
                // The kernel takes some 35 ms to drop each link.
                drop(links);
                Ok(())
            }
            Attached::Nothing | Attached::Process(_) => Ok(()),
        }
    }
}
