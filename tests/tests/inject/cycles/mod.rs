//! Real programs under load during injections and ejections: their own checks must find no error.
//!
//! `cargo xtask test --long` makes ten times as many cycles, and includes the programs that are too
//! large to be installed for every run.

mod mariadb;
mod postgres;
mod redis;
mod servers;
mod sqlite;

use anyhow::{Context, Result};
use sampler_tests::build;
use sampler_tests::inject::{self, Subject, figure};
use std::env;
use std::fs;
use std::process::Command;
use std::time::Instant;

/// Number of injections and ejections, unless the environment variable sets another.
const CYCLES: u32 = 20;
/// The variable that sets the number of cycles.
const VARIABLE: &str = "SAMPLER_TEST_CYCLES";
/// A small interval: the slow paths are taken, too.
const INTERVAL: u64 = 16 << 10;

/// Number of cycles of each program.
fn count() -> Result<u32> {
    match env::var(VARIABLE) {
        Ok(text) => text.parse().with_context(|| format!("{VARIABLE}={text}: give a number")),
        Err(_) => Ok(CYCLES),
    }
}

/// Injections and ejections of the processes of a program.
struct Cycles {
    name: &'static str,
    pids: Vec<u32>,
    started: Instant,
    made: u32,
    /// How long all threads were stopped each time, microseconds.
    stops_us: Vec<u64>,
}

impl Cycles {
    fn new(name: &'static str, pids: &[u32]) -> Cycles {
        let pids = pids.to_vec();
        Cycles { name, pids, started: Instant::now(), made: 0, stops_us: Vec::new() }
    }

    fn put_in(&mut self) -> Result<()> {
        self.all(|pid| inject::inject(pid, INTERVAL))
    }

    fn take_out(&mut self) -> Result<()> {
        self.made += 1;
        self.all(inject::eject)
    }

    fn make(&mut self) -> Result<()> {
        self.put_in()?;
        self.take_out()
    }

    fn all(&mut self, operation: impl Fn(u32) -> Result<String>) -> Result<()> {
        for pid in &self.pids {
            let line = operation(*pid);
            let line = line.with_context(|| format!("{}, cycle {}", self.name, self.made))?;
            self.stops_us.push(figure(&line, "stopped_us")?);
        }
        Ok(())
    }
}

impl Drop for Cycles {
    fn drop(&mut self) {
        self.stops_us.sort_unstable();
        let middle = self.stops_us.get(self.stops_us.len() / 2).copied().unwrap_or_default();
        let longest = self.stops_us.last().copied().unwrap_or_default();
        println!(
            "{}: {} cycles of {} processes in {:.1} s; all threads stood for {middle} µs in the median, {longest} at most",
            self.name,
            self.made,
            self.pids.len(),
            self.started.elapsed().as_secs_f64(),
        );
    }
}

/// Children of the process `pid`.
fn children(pid: u32) -> Result<Vec<u32>> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let list = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    list.split_ascii_whitespace().map(|pid| pid.parse().context("parse a pid")).collect()
}

/// Checks a program that checks itself, with the sampler and without it.
fn subject(name: &'static str, mut program: Subject) -> Result<()> {
    let mut cycles = Cycles::new(name, &[program.pid()]);
    for number in 0..count()? {
        cycles.put_in()?;
        program.is_well().with_context(|| format!("{name}, cycle {number}: it is in"))?;
        cycles.take_out()?;
        program.is_well().with_context(|| format!("{name}, cycle {number}: it is out"))?;
    }
    program.end()
}

fn source(name: &str) -> String {
    format!("{}/workloads/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn python() -> Result<()> {
    let mut command = Command::new("/usr/bin/python3");
    command.arg(source("injected.py")).env("PYTHONMALLOC", "malloc");
    subject("python3", Subject::spawn("python3", &mut command)?)
}

#[test]
#[ignore = "it takes a JDK: cargo xtask test --long installs one"]
fn java() -> Result<()> {
    let mut command = Command::new("java");
    command.arg("-Xmx256m").arg(source("Injected.java"));
    subject("java", Subject::spawn("java (apt-get install openjdk-17-jdk-headless)", &mut command)?)
}

#[test]
fn exceptions() -> Result<()> {
    let program = build::compile("thrown.cpp", &["-std=c++17"])?;
    subject("exceptions", Subject::spawn("thrown.cpp", Command::new(program).arg("4"))?)
}

/// A saved context may have its program counter anywhere in the hooked code. Inspecting the threads
/// does not find it there.
#[test]
fn contexts_on_the_heap() -> Result<()> {
    let program = Subject::start("injected.c", &["2", "busy", "profiled", "saved"])?;
    subject("saved contexts", program)
}

#[test]
fn fibers() -> Result<()> {
    subject("fibers", Subject::start("injected.c", &["3", "fibers", "profiled"])?)
}

/// Rust's own heap and `malloc` in one program, with their own hooks each.
#[test]
fn heaps_past_malloc() -> Result<()> {
    for program in [env!("CARGO_BIN_EXE_rust-jemalloc"), env!("CARGO_BIN_EXE_rust-mimalloc")] {
        let mut command = Command::new(program);
        subject("rust", Subject::spawn("rust", command.args(["checked", "4"]))?)?;
    }
    Ok(())
}

#[test]
fn five_hundred_threads() -> Result<()> {
    subject("500 threads", Subject::start("injected.c", &["500"])?)
}
