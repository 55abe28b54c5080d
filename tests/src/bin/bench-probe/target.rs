//! The measured process (`benches/loop.c`), and the places of its malloc and free.

use anyhow::{Context, Result, ensure};
use sampler_daemon::inspect::allocator::Function;
use sampler_daemon::inspect::discoverer::Discoverer;
use sampler_tests::build;
use sampler_tests::child::Child;
use sampler_tests::spread::Spread;
use std::fs::File;
use std::process::Command;
use std::sync::Arc;

/// The target, waiting for a command.
pub(crate) struct Target {
    child: Child,
    /// The file that has the target's allocator.
    pub(crate) file: Arc<File>,
    /// The target's `malloc`.
    pub(crate) malloc: Function,
    /// The target's `free`.
    pub(crate) free: Function,
}

/// Work of one block of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// malloc and free, the same address again.
    Pairs,
    /// free of random blocks of a pool.
    Scattered,
}

impl Block {
    fn command(self) -> &'static str {
        match self {
            Block::Pairs => "pairs",
            Block::Scattered => "scattered",
        }
    }
}

impl Target {
    /// Starts the target on the last CPU.
    pub(crate) fn start() -> Result<Target> {
        let program = build::compile_bench("loop.c")?;
        let last = std::thread::available_parallelism().context("count the processors")?.get() - 1;
        let mut child = Child::start("the target", Command::new(program).arg(last.to_string()))?;
        ensure!(child.line()? == "ready", "the target does not start");
        let discovery = Discoverer::default().discover(child.pid())?;
        let allocator = discovery.allocators.into_iter().next();
        let allocator = allocator.context("the target has no malloc that is known")?;
        let function = |name: &str| {
            let functions = allocator.functions.iter();
            let mut named = functions.filter(|f| f.symbols.iter().any(|symbol| symbol == name));
            named.next().cloned().with_context(|| format!("the target has no {name}"))
        };
        let (malloc, free) = (function("malloc")?, function("free")?);
        Ok(Target { file: Arc::clone(&allocator.file), malloc, free, child })
    }

    /// Process id of the target.
    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Lets the target keep `count` more blocks.
    pub(crate) fn hold(&mut self, count: u32) -> Result<()> {
        self.child.send(&format!("hold {count}"))?;
        ensure!(self.child.line()? == "held", "the target does not answer");
        Ok(())
    }

    /// Nanoseconds of a call: the median of `blocks` blocks of `calls` calls.
    pub(crate) fn time(&mut self, block: Block, blocks: u32, calls: u32) -> Result<f64> {
        self.child.send(&format!("{} {blocks} {calls}", block.command()))?;
        let line = self.child.line()?;
        let times: Result<Vec<f64>, _> = line.split(' ').map(str::parse).collect();
        let times = times.with_context(|| format!("the target says {line:?}"))?;
        ensure!(times.len() == blocks as usize, "the target says {line:?}");
        Ok(Spread::of(times).median / f64::from(calls))
    }
}
