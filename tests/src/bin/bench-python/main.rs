//! `cargo xtask bench python`: what Python frames add to the cost of a sample in the program.
//!
//! A loop in Python allocates and frees, below a given number of Python frames, while every
//! allocation is sampled. The same interpreter runs under its own name, and under a name that
//! samplerd does not know. Under the latter its samples have native frames only. Each round has
//! all cases in random order, each with a samplerd of its own.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use sampler_tests::child::Child;
use sampler_tests::progress::Progress;
use sampler_tests::pythons::Python;
use sampler_tests::spread::Spread;
use sampler_tests::{Daemon, build, machine, pythons};
use std::fs;
use std::path::PathBuf;

/// Goal of the added cost, microseconds.
const GOAL_US: f64 = 6.0;

/// Allocations in a measurement. All their samples find room in the ring.
const ALLOCATIONS: u64 = 4000;

/// Number of Python frames of the goal.
const FRAMES: u32 = 30;

/// Measures what Python frames add to the cost of a sample.
#[derive(Parser)]
#[command(name = "bench python")]
struct Args {
    /// Rounds; each measures every case once, in random order
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(3..=1000))]
    rounds: u32,
    /// Version of the interpreter, as `cargo xtask test` has unpacked it [default: that of `python3`]
    #[arg(long, value_name = "VERSION")]
    python: Option<String>,
    /// Fail if the goal is missed
    #[arg(long)]
    strict: bool,
}

/// A case of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// Without samplerd.
    Alone,
    /// Native frames only; cached stacks are not copied again, as in programs of other languages.
    Native,
    /// Native frames only; each stack is copied, as in Python programs.
    NativeCopied,
    /// This number of Python frames.
    Python(u32),
}

const CASES: [Case; 5] =
    [Case::Alone, Case::Native, Case::NativeCopied, Case::Python(3), Case::Python(FRAMES)];

impl Case {
    fn name(self) -> String {
        match self {
            Case::Alone => "without samplerd".to_owned(),
            Case::Native => "native frames, of known stacks".to_owned(),
            Case::NativeCopied => "native frames, each stack copied".to_owned(),
            Case::Python(frames) => format!("{frames} Python frames"),
        }
    }

    /// Nanoseconds of an allocation and its free, in the second of two measurements.
    fn measure(self, programs: &Programs) -> Result<f64> {
        let program =
            if let Case::Python(_) = self { &programs.python.program } else { &programs.unknown };
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/deep.py");
        let mut command = programs.python.command_of(program)?;
        let mut target = Child::start("deep.py", command.arg(script))?;
        ensure!(target.line()? == "waiting", "deep.py does not start");
        let mut arguments = vec!["--interval", "1", "--ring", "512MiB"];
        arguments.extend((self == Case::NativeCopied).then_some("--no-stack-cache"));
        let daemon = match self {
            Case::Alone => None,
            _ => Some(Daemon::start(&[target.pid()], &arguments)?),
        };
        let frames = if let Case::Python(frames) = self { frames } else { FRAMES };
        let mut time_ns = 0;
        // The first measurement fills caches.
        for _ in 0..2 {
            target.send(&format!("{frames} {ALLOCATIONS}"))?;
            time_ns = target.line()?.parse::<u64>().context("a time")?;
        }
        if let Some(daemon) = daemon {
            self.check(&daemon)?;
            daemon.stop()?;
        }
        Ok(time_ns as f64 / ALLOCATIONS as f64)
    }

    /// Checks that the samples have the frames of the case.
    fn check(self, daemon: &Daemon) -> Result<()> {
        daemon.profile("alloc", &[])?;
        let [sampled, python] = [daemon.outcome("sampled")?, daemon.outcome("python_stack")?];
        let is_right = match self {
            Case::Python(_) => python >= 2 * ALLOCATIONS,
            _ => python == 0,
        };
        ensure!(
            sampled >= 2 * ALLOCATIONS && is_right,
            "{}: {sampled} samples, {python} with Python frames",
            self.name()
        );
        Ok(())
    }
}

/// The interpreter under both names.
struct Programs {
    python: Python,
    unknown: PathBuf,
}

fn main() -> Result<()> {
    let args = Args::parse();
    build::require_root()?;
    let machine = machine::describe()?;
    let python = match &args.python {
        None => pythons::in_path()?.into_iter().next().context("no python3 in PATH")?,
        Some(version) => {
            let missing = || format!("Python {version} is not unpacked: run cargo xtask test");
            pythons::unpacked(version).with_context(missing)?
        }
    };
    let folder = tempfile::tempdir()?;
    let unknown = folder.path().join("interpreter");
    fs::copy(&python.program, &unknown).context("copy the interpreter")?;
    let programs = Programs { python, unknown };
    let times = rounds(&programs, args.rounds)?;
    let version = &programs.python.version;
    println!("{}\nPython {version}, {} rounds\n", machine.line(), args.rounds);
    println!("{:>9}  [quartiles]", "µs");
    for (case, times) in CASES.iter().zip(&times) {
        print(&case.name(), Spread::of(times.iter().copied()));
    }
    let [_, native, copied, _, whole] = &times;
    let added = |than: &[f64]| Spread::of(whole.iter().zip(than).map(|(more, less)| more - less));
    let added = [added(copied), added(native)];
    print("a sample with 30 Python frames more than one whose stack is copied", added[0]);
    print("… more than one whose stack is known", added[1]);
    let is_met = added[1].median <= GOAL_US;
    println!("goal: at most {GOAL_US} µs more: {}", if is_met { "met" } else { "missed" });
    ensure!(is_met || !args.strict, "the goal is missed");
    Ok(())
}

/// Times of all cases in microseconds, by rounds.
fn rounds(programs: &Programs, rounds: u32) -> Result<[Vec<f64>; CASES.len()]> {
    let mut times: [Vec<f64>; CASES.len()] = Default::default();
    let progress = Progress::of("cases", rounds as usize * CASES.len());
    for _ in 0..rounds {
        let mut order: Vec<_> = CASES.iter().zip(&mut times).collect();
        fastrand::shuffle(&mut order);
        for (case, times) in order {
            times.push(case.measure(programs)? / 1000.0);
            progress.done();
        }
    }
    Ok(times)
}

fn print(what: &str, spread: Spread) {
    println!("{:9.2}  [{:.2} … {:.2}]  {what}", spread.median, spread.low, spread.high);
}
