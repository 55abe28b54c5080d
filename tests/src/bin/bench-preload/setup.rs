//! The setups in which the same pairs run.

use anyhow::{Context, Result};
use sampler_tests::child::finish;
use sampler_tests::{Daemon, build, preload};
use std::path::PathBuf;
use std::process::Command;

/// The library between the program and malloc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setup {
    /// No library.
    Native,
    /// A library that only forwards.
    Forwarded,
    /// The sampling library, with no listener.
    NotAttached,
    /// The sampling library under a daemon that listens.
    Attached,
}

impl Setup {
    /// All setups.
    pub(crate) const ALL: [Setup; 4] =
        [Setup::Native, Setup::Forwarded, Setup::NotAttached, Setup::Attached];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Setup::Native => "native",
            Setup::Forwarded => "forwarded",
            Setup::NotAttached => "preloaded, nobody listens",
            Setup::Attached => "preloaded, samplerd attached",
        }
    }
}

/// The programs that are run.
pub(crate) struct Programs {
    pairs: u64,
    interval: u64,
    program: PathBuf,
    forward: PathBuf,
    library: PathBuf,
}

impl Programs {
    /// Compiles the programs.
    pub(crate) fn prepare(pairs: u64, interval: u64) -> Result<Programs> {
        build::require_root()?;
        let program = build::compile_bench("pair.c")?;
        let forward = build::compile_library("forward.c")?;
        Ok(Programs { pairs, interval, program, forward, library: preload::library()? })
    }

    /// Nanoseconds of a pair.
    pub(crate) fn run(&self, way: Setup, threads: u32) -> Result<f64> {
        let mut command = Command::new(&self.program);
        command.args([threads.to_string(), self.pairs.to_string()]);
        // Dropping the daemon ends it.
        let _daemon = (way == Setup::Attached).then(|| self.listen()).transpose()?;
        match way {
            Setup::Native => {}
            Setup::Forwarded => {
                command.env("LD_PRELOAD", &self.forward);
            }
            Setup::NotAttached | Setup::Attached => {
                preload::preload(&mut command, self.interval, None)?
            }
        }
        let said = finish(&mut command)?.success(way.name())?.stdout;
        let said = String::from_utf8(said).context("a number")?;
        said.trim().parse().with_context(|| format!("no number: {said:?}"))
    }

    /// A daemon that listens to every process that loads the library and is started from here.
    fn listen(&self) -> Result<Daemon> {
        let library = self.library.display().to_string();
        let arguments = ["--follow", "--samplers-only", "--probe-file", &library];
        Daemon::start(&[std::process::id()], &arguments)
    }
}
