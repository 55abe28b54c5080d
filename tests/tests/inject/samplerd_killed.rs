//! samplerd is killed at any moment of a run with `--inject`: the program goes on with right
//! results. The next samplerd adopts the remaining sampler, and ejects it at its own end.

use crate::company;
use anyhow::{Context, Result, bail, ensure};
use sampler_tests::child::{self, Child};
use sampler_tests::inject::{self, Subject};
use sampler_tests::own_libc::OwnLibc;
use sampler_tests::{Daemon, breakpoints, build, wait};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// Bound between the mappings of one image, which are fewer, and those of two images, which are
/// more.
const MAX_MAPPINGS: usize = 48;
/// Milliseconds after which samplerd is killed. An operation takes some 20.
const DELAYS_MS: [u64; 6] = [0, 1, 4, 9, 15, 40];

/// Event that begins the delay.
#[derive(Clone, Copy, Debug)]
enum Since {
    /// The injector that injects the sampler is running.
    Injects,
    /// samplerd samples.
    Samples,
    /// The injector that ejects the sampler is running.
    Ejects,
}

/// Waits for the injector that samplerd starts. One check takes less time than an operation.
fn injector(samplerd: &mut Child) -> Result<u32> {
    let start = Instant::now();
    while start.elapsed() < wait::DEADLINE {
        let threads = fs::read_dir(format!("/proc/{}/task", samplerd.pid()))?.flatten();
        for list in threads.filter_map(|of| fs::read_to_string(of.path().join("children")).ok()) {
            for pid in list.split_ascii_whitespace() {
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                if name.trim() == "sampler-inject" {
                    return pid.parse().context("parse a pid");
                }
            }
        }
        ensure!(samplerd.ended()?.is_none(), "samplerd has ended");
        wait::pass(Duration::from_micros(200));
    }
    bail!("samplerd starts no injector")
}

/// Starts samplerd and kills it. Every second time, its injector is killed, too.
fn kill(program: &Subject, directory: &Path, since: Since, number: usize) -> Result<()> {
    let name = format!("{since:?}{number}");
    let listen = format!("unix:{}", directory.join(&name).display());
    let log = directory.join(name + ".log");
    let mut command = Command::new(build::program("samplerd")?);
    command.args(["--listen", &listen, "--inject", "--interval", "4096"]);
    command.args(["--pid", &program.pid().to_string()]).stderr(File::create(&log)?);
    let mut samplerd = Child::start("samplerd", &mut command)?;
    let mut run = || -> Result<Option<u32>> {
        if matches!(since, Since::Injects) {
            return injector(&mut samplerd).map(Some);
        }
        ensure!(samplerd.line()?.starts_with("ready "), "no ready line");
        if matches!(since, Since::Samples) {
            return Ok(None);
        }
        samplerd.signal(SIGTERM)?;
        injector(&mut samplerd).map(Some)
    };
    let injector = run().with_context(|| fs::read_to_string(&log).unwrap_or_default())?;
    wait::pass(Duration::from_millis(DELAYS_MS[number]));
    if let Some(pid) = injector.filter(|_| number % 2 == 1) {
        // The injector may have ended.
        let _ = child::kill(pid, SIGKILL);
    }
    samplerd.signal(SIGKILL)?;
    samplerd.wait()?;
    // The injector goes on without samplerd.
    let is_gone = |pid: u32| !Path::new(&format!("/proc/{pid}")).exists();
    wait::until("the injector to end", || Ok(injector.is_none_or(is_gone).then_some(())))
}

/// Checks that the next samplerd counts the program's allocations, and ejects the sampler at its
/// own end.
fn adopt(program: &mut Subject, libc: &str) -> Result<()> {
    let pid = program.pid();
    let daemon = Daemon::start(&[pid], &["--inject", "--interval", "64KiB"])?;
    daemon
        .profile_where("its allocations", "alloc", &[], |of| of.totals.alloc_space.value > 0.0)?;
    let (mappings, files) = inject::remains(pid)?;
    ensure!(files == 0 && mappings < MAX_MAPPINGS, "{mappings} mappings, {files} open files");
    daemon.stop()?;
    let changed = breakpoints::changed(pid, libc)?;
    ensure!(changed == 0, "{changed} bytes of the code are still changed");
    program.is_well()
}

#[test]
fn a_killed_samplerd_leaves_the_program_unharmed() -> Result<()> {
    let libc = OwnLibc::copy()?;
    let path = libc.path()?;
    let directory = tempfile::tempdir()?;
    let mut program = company::start(&libc, &["2", "busy", "profiled"])?;
    for since in [Since::Injects, Since::Samples, Since::Ejects] {
        // While samplerd samples, all moments are alike.
        let moments = if matches!(since, Since::Samples) { 2 } else { DELAYS_MS.len() };
        for number in 0..moments {
            let what = || format!("kill {number}, {since:?}");
            kill(&program, directory.path(), since, number).with_context(what)?;
            program.is_well().with_context(what)?;
        }
        adopt(&mut program, &path).with_context(|| format!("{since:?}"))?;
    }
    program.end()
}
