//! A running workload: does rounds of work on command, and measures the cost of each round.

use crate::clock;
use crate::layout::Layout;
use crate::scratch::{Scratch, Variable, bound, laid_out, tail};
use crate::workload::{Protocol, Start, Workload};
use anyhow::{Context, Result, bail, ensure};
use sampler_tests::child::Child;
use sampler_tests::wait;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time of a round under the slowest tool.
const ROUND_DEADLINE: Duration = Duration::from_secs(900);

/// Cost of rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    /// User and system time of the program, seconds.
    pub(crate) cpu_s: f64,
    /// Elapsed time, seconds.
    pub(crate) wall_s: f64,
    /// Number of rounds.
    pub(crate) rounds: u32,
}

impl Cost {
    /// Adds the cost of other rounds.
    pub(crate) fn add(&mut self, other: Cost) {
        self.cpu_s += other.cpu_s;
        self.wall_s += other.wall_s;
        self.rounds += other.rounds;
    }
}

/// A program that waits for its next round.
pub(crate) struct Program {
    child: Child,
    protocol: Protocol,
    socket: PathBuf,
    log: PathBuf,
    /// Whether the process has ended with its round.
    is_over: bool,
}

impl Program {
    /// Starts `workload` (the compiler with this many `templates`) with `environment` added to its
    /// own. Returns once the program waits for work. One round is done by then, so that everything
    /// is loaded, unless a round ends the program.
    ///
    /// # Errors
    /// If the program does not start.
    pub(crate) fn start(
        workload: Workload,
        templates: u32,
        layout: Layout,
        environment: &[Variable],
        scratch: &Scratch,
    ) -> Result<Program> {
        let socket = scratch.path("redis");
        let _ = fs::remove_file(&socket);
        let Start { command, environment: own, protocol } = workload.start(templates, &socket)?;
        let environment = [&own, environment].concat();
        Program::spawn(workload.name(), &command, layout, &environment, protocol, scratch)
    }

    /// [`Program::start`] of any command.
    ///
    /// # Errors
    /// If the program does not start.
    pub(crate) fn spawn(
        name: &str,
        command: &[String],
        layout: Layout,
        environment: &[Variable],
        protocol: Protocol,
        scratch: &Scratch,
    ) -> Result<Program> {
        let (socket, log) = (scratch.path("redis"), scratch.path("log"));
        let (first, rest) = command.split_first().context("a workload without a program")?;
        let mut start = laid_out(layout, first, environment);
        start.args(rest).stderr(File::create(&log).context("create a log")?);
        let child = Child::start(name, &mut start)?;
        let mut program = Program { child, protocol, socket, log, is_over: false };
        program.settle().with_context(|| format!("start {name}"))?;
        Ok(program)
    }

    fn settle(&mut self) -> Result<()> {
        match &self.protocol {
            Protocol::Lines { greets: true, .. } => self.child.line().map(drop)?,
            Protocol::Lines { .. } => {}
            Protocol::Redis => wait::until("redis-server listens", || {
                Ok(UnixStream::connect(&self.socket).ok().map(drop))
            })?,
            Protocol::Source(_) => {
                let syscall = format!("/proc/{}/syscall", self.pid());
                // The file has the number of the system call and its first argument: a read from
                // standard input.
                let waits = |text: String| text.starts_with("0 0x0 ").then_some(());
                return wait::until("the compiler reads its source", || {
                    let state = fs::read_to_string(&syscall).context("look at the compiler")?;
                    Ok(waits(state))
                });
            }
        }
        self.round().map(drop)
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Whether another round needs another process.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether a round ends the program.
    pub(crate) fn is_once(&self) -> bool {
        matches!(self.protocol, Protocol::Source(_))
    }

    /// Does a round of work.
    ///
    /// # Errors
    /// If the program ends early or fails.
    pub(crate) fn round(&mut self) -> Result<Cost> {
        let before = clock::threads(self.pid())?;
        let start = Instant::now();
        let done = self.work();
        done.with_context(|| format!("its messages end with: {}", tail(&self.log)))?;
        let wall_s = start.elapsed().as_secs_f64();
        let cpu_s = clock::threads(self.pid())? - before;
        if self.is_over {
            let status = self.child.wait()?;
            ensure!(status.success(), "the program ended with {status}: {}", tail(&self.log));
        }
        Ok(Cost { cpu_s, wall_s, rounds: 1 })
    }

    /// Sends a line that does not start a round, and waits for the answer.
    ///
    /// # Errors
    /// If the program does not answer.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        self.child.send(line)?;
        self.child.line().map(drop)
    }

    fn work(&mut self) -> Result<()> {
        match &self.protocol {
            Protocol::Lines { input, .. } => {
                self.child.send(input)?;
                self.child.line_within(ROUND_DEADLINE).map(drop)
            }
            Protocol::Redis => load(&self.socket),
            Protocol::Source(source) => {
                self.child.send(source)?;
                self.child.close_stdin();
                self.is_over = true;
                self.child.until_silent(ROUND_DEADLINE)?;
                let pid = self.pid();
                // The process is not reaped yet, so its times can still be read.
                wait::until("the compiler's end", || Ok((clock::state(pid)? == 'Z').then_some(())))
            }
        }
    }
}

/// One run of redis-benchmark.
fn load(socket: &std::path::Path) -> Result<()> {
    let mut command: Command = bound("redis-benchmark", &[]);
    command.arg("-s").arg(socket).args(["-q", "-P", "16", "-n", "2000", "-r", "10000"]);
    command.args(["-d", "100", "-t", "set,get,incr,lpush,rpop,sadd,hset"]);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let status = status.context("run redis-benchmark")?;
    if !status.success() {
        bail!("redis-benchmark ended with {status}");
    }
    Ok(())
}
