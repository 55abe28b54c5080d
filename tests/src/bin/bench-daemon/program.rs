//! The sampled program.

use anyhow::{Context, Result, ensure};
use sampler_tests::build;
use sampler_tests::child::Child;
use std::process::Command;

/// Work of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Allocations a second; 0: as many as the program can make.
    pub(crate) rate: u32,
    /// Calls between main and malloc.
    pub(crate) depth: u32,
    /// Bytes that each of these calls' frames has in addition to its needs.
    pub(crate) frame_bytes: u32,
    /// Different stacks.
    pub(crate) stacks: u32,
    /// Duration of the run.
    pub(crate) seconds: u32,
}

/// A running program that waits at its mark.
pub(crate) struct Program {
    child: Child,
}

impl Program {
    pub(crate) fn start(load: Load) -> Result<Program> {
        let Load { rate, depth, frame_bytes, stacks, seconds } = load;
        let numbers = [rate, depth, frame_bytes, stacks, seconds].map(|of| of.to_string());
        let mut command = Command::new(build::compile_bench("stacks.c")?);
        let mut child = Child::start("stacks", command.args(numbers))?;
        ensure!(child.line()? == "waiting", "stacks.c does not wait");
        Ok(Program { child })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    pub(crate) fn go(&mut self) -> Result<()> {
        self.child.send("go")
    }

    /// Waits for the end of the program. Returns the number of allocations, and their duration in
    /// seconds.
    pub(crate) fn made(&mut self) -> Result<(u64, f64)> {
        let line = self.child.line()?;
        let (made, ns) = line.split_once(' ').with_context(|| format!("parse {line:?}"))?;
        Ok((made.parse()?, ns.parse::<f64>()? / 1e9))
    }
}
