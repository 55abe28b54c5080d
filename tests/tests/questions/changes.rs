//! Processes that change during queries. samplerd acts on each change.

use super::asking::{SERVICE, SETTER};
use anyhow::{Context, Result};
use sampler_tests::child::Child;
use sampler_tests::client::Client;
use sampler_tests::own_libc::OwnLibc;
use sampler_tests::{Workload, preload};
use serde_json::json;
use std::path::Path;
use std::process::Command;

/// A shell script that replaces its shell at each line, by a shell that another loader runs.
const AGAIN: &str = r#"read loader && exec $loader /bin/sh -c "$0" "$0""#;

/// The processes that live as long as the test.
pub(crate) struct Machine {
    shell: Child,
    /// The shell's present C library.
    libc: Option<OwnLibc>,
    /// This process holds ever more blocks, so that the live set fills up.
    leaking: Workload,
    /// This process samples itself, at the interval that samplerd writes into it.
    preloaded: Workload,
    interval_bytes: u64,
}

impl Machine {
    pub(crate) fn start() -> Result<Machine> {
        let mut shell = Command::new("sh");
        Ok(Machine {
            shell: Child::start("sh", shell.args(["-c", AGAIN, AGAIN]))?,
            libc: None,
            leaking: Workload::start("leaks.c", &[])?,
            preloaded: preload::workload("edges.c", &["ticks"], 4096)?,
            interval_bytes: 4096,
        })
    }

    pub(crate) fn pids(&self) -> [u32; 3] {
        [self.shell.pid(), self.leaking.pid(), self.preloaded.pid()]
    }

    /// Lets the program with the preloaded sampler run.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.preloaded.go()?;
        self.preloaded.truth().map(drop)
    }

    /// One change of each kind.
    pub(crate) async fn change(&mut self, client: &Client) -> Result<()> {
        // The probes on the shell's old library are detached, and the new library is probed.
        let libc = OwnLibc::copy()?;
        let (loader, directory) = (libc.loader(), Path::new(&libc.path()?).with_file_name(""));
        let line = format!("{} --library-path {}", loader.display(), directory.display());
        self.shell.send(&line)?;
        self.libc = Some(libc);
        for _ in 0..10 {
            self.leaking.child().send("leak")?;
            self.leaking.truth()?;
        }
        // This request does act: samplerd writes the interval into the process.
        self.interval_bytes ^= 4096 ^ 8192;
        let order = json!({"pids": [self.preloaded.pid()], "interval_bytes": self.interval_bytes});
        client.call(SERVICE, SETTER, order).await.context("set the interval")?;
        // A process comes and goes.
        let mut process = Workload::edge(&["realloc"])?;
        process.go()?;
        process.truth()?;
        process.exit()?;
        Ok(())
    }
}
