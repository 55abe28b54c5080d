//! A tool at work, and what it says of itself.

use crate::clock;
use anyhow::Result;
use sampler_daemon::bpf::Link;
use sampler_tests::child::Child;
use sampler_tests::{Daemon, daemon};

/// What runs beside a program while it is measured; dropping it ends and detaches it.
pub(crate) enum Attached {
    /// Nothing, or something within the program.
    Nothing,
    /// Programs of this process.
    Links(Vec<Link>),
    /// samplerd.
    Daemon(Daemon),
    /// Another profiler.
    Process(Child),
}

/// What samplerd took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Samples {
    /// Samples, lost ones included.
    pub(crate) taken: f64,
    /// Of these those whose record found no room.
    pub(crate) lost: f64,
}

impl Attached {
    /// CPU time of its processes so far, seconds.
    pub(crate) fn cpu_s(&self) -> f64 {
        match self {
            Attached::Nothing | Attached::Links(_) => 0.0,
            Attached::Daemon(daemon) => clock::tree(daemon.pid()),
            Attached::Process(child) => clock::tree(child.pid()),
        }
    }

    /// Samples so far; nothing of tools that do not say.
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

    /// Ends it.
    ///
    /// # Errors
    /// If samplerd does not end well.
    pub(crate) fn detach(self) -> Result<()> {
        match self {
            Attached::Daemon(daemon) => daemon.stop(),
            Attached::Links(links) => {
                // Each takes the kernel some 35 ms.
                drop(links);
                Ok(())
            }
            Attached::Nothing | Attached::Process(_) => Ok(()),
        }
    }
}
