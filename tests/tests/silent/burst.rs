//! A burst of samples from a process that samples itself. Our own library never sends more samples
//! than samplerd accepts, and reports how much was allocated in all. After a flood of another
//! provider no interval has an upper end.

use anyhow::{Context as _, Result, ensure};
use sampler_tests::child::finish;
use sampler_tests::profile::Quantity;
use sampler_tests::{Daemon, Profile, Truth, Workload, build, preload, wait};
use std::fs;
use std::process::Command;

/// Size of a burst, MB: 20,000 samples at 64 KiB.
const MEGABYTES: &str = "1300";
/// At this confidence a right interval misses less than once in 10^8 times.
const CONFIDENCE: [&str; 2] = ["--confidence", "0.99999999"];
/// Largest ratio of the upper end of allocated bytes to the truth. Towards its end a burst is
/// sampled at a larger interval.
const MAX_HIGH_FACTOR: f64 = 8.0;
/// samplerd's default limit.
const DEFAULT: [&str; 2] = ["--max-samples-per-second", "25000"];
/// No limit but the library's own.
const UNLIMITED: [&str; 4] =
    ["--max-samples-per-second", "25000", "--max-samples-per-process", "unlimited"];
/// No limit at all.
const NONE: [&str; 2] = ["--max-samples-per-second", "unlimited"];

/// Checks that each function's interval covers the truth, and that no interval is too wide to be
/// useful.
fn allocated(profile: &Profile, truth: &Truth) -> Result<()> {
    for function in &truth.functions {
        let mut stacks = profile.stacks_of(&function.name);
        // `held` allocates 6 MB, of which such a burst may have no sample.
        let Some(stack) = stacks.next() else {
            ensure!(function.name == "held", "no stack of {}", function.name);
            continue;
        };
        ensure!(stacks.next().is_none(), "more than one stack\n{}", profile.folded());
        let (of, truth) = (&stack.quantities.alloc_space, function.alloc.bytes as f64);
        covers(&function.name, of, truth)?;
        let is_sure = function.name == "held" || of.high < MAX_HIGH_FACTOR * truth;
        ensure!(is_sure, "{}: {of:?} says nothing", function.name);
    }
    covers("all", &profile.totals.alloc_space, truth.total().alloc.bytes as f64)
}

/// Checks the intervals of held bytes. One function holds them all.
fn held(profile: &Profile, truth: &Truth) -> Result<()> {
    let truth = truth.total().live.bytes as f64;
    let of = &profile.totals.inuse_space;
    covers("held", of, truth)?;
    let mut others = profile.stacks.iter().filter(|stack| !stack.contains("held"));
    ensure!(others.all(|stack| stack.quantities.inuse_space.value == 0.0));
    Ok(())
}

fn covers(what: &str, of: &Quantity, truth: f64) -> Result<()> {
    println!("{what}: {truth} in {:.0} … {:.0}, {:.0}", of.low, of.high, of.value);
    ensure!(of.low <= truth && truth <= of.high, "{what}: {truth} not in {of:?}");
    Ok(())
}

/// Runs a burst in a process that samplerd has attached to before. Returns the held bytes.
fn attached(interval: u64, pause: &str, limits: &[&str]) -> Result<Quantity> {
    burst(preload::workload("burst.c", &[MEGABYTES, pause], interval)?, interval, limits)
}

fn burst(mut workload: Workload, interval: u64, limits: &[&str]) -> Result<Quantity> {
    let daemon = Daemon::start(&[workload.pid()], &[limits, &["--ring", "256MiB"]].concat())?;
    workload.go()?;
    let truth = workload.truth()?;
    let profile = daemon.profile("alloc", &CONFIDENCE)?;
    println!("{} samples at {interval}, {limits:?}", profile.samples);
    allocated(&profile, &truth)?;
    held(&profile, &truth)?;
    for outcome in ["usdt_flood", "usdt_refused"] {
        ensure!(daemon.outcome(outcome)? == 0, "{outcome}");
    }
    let raised = profile.json["notes"].to_string().contains("sampled more rarely");
    ensure!(raised || profile.samples * interval > 1_000_000_000, "raised, and nothing says so");
    workload.exit()?;
    daemon.stop()?;
    Ok(profile.totals.inuse_space)
}

#[test]
fn no_sample_of_a_burst_is_lost() -> Result<()> {
    for interval in [64 << 10, 4 << 10, 256] {
        attached(interval, "0", &DEFAULT).with_context(|| format!("at {interval}"))?;
    }
    Ok(())
}

#[test]
fn no_sample_is_lost_at_every_speed() -> Result<()> {
    for pause in ["1", "60", "200"] {
        attached(64 << 10, pause, &DEFAULT).with_context(|| format!("{pause} µs"))?;
    }
    Ok(())
}

#[test]
fn no_sample_is_lost_without_a_limit() -> Result<()> {
    for limits in [&UNLIMITED[..], &NONE] {
        for interval in [64 << 10, 4 << 10] {
            let held = attached(interval, "0", limits)?;
            ensure!(held.low > 0.0, "of 6 MB held nothing is known: {held:?}");
        }
    }
    Ok(())
}

/// musl's loader has no list for debuggers where others have it.
#[test]
fn no_sample_of_a_musl_program_is_lost() -> Result<()> {
    let mut command = Command::new(build::compile("burst.c", &[build::MUSL])?);
    preload::load(command.args([MEGABYTES, "0"]), 4 << 10, &[preload::library()?]);
    burst(Workload::spawn("burst.c", &mut command)?, 4 << 10, &DEFAULT).map(drop)
}

/// The burst begins with the program's first instruction, before samplerd has found the process.
#[test]
fn no_sample_of_the_first_second_is_lost() -> Result<()> {
    for interval in ["64KiB", "4KiB"] {
        let (truth, profile) = run(interval, &[MEGABYTES, "0", "now"])?;
        println!("{} samples at {interval}", profile.samples);
        allocated(&profile, &truth).with_context(|| interval.to_owned())?;
        ensure!(profile.lost_samples == 0, "{}", profile.json["lost"]);
    }
    Ok(())
}

/// Runs `sampler run --preload`. Returns the program's truth, and its profile.
fn run(interval: &str, arguments: &[&str]) -> Result<(Truth, Profile)> {
    build::require_root()?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("profile");
    let mut run = Command::new(build::program("sampler")?);
    run.args(["run", "--preload", "--interval", interval, "--kind", "alloc"]);
    run.args(CONFIDENCE).args(["--format", "json", "-o"]).arg(&file);
    for variable in ["SUDO_UID", "SUDO_GID", "SUDO_USER"] {
        run.env_remove(variable);
    }
    let finished = finish(run.arg("--").arg(build::compile("burst.c", &[])?).args(arguments))?;
    ensure!(finished.code() == 0, "{}", finished.stderr);
    let truth = Truth::parse(&String::from_utf8(finished.stdout)?)?;
    let contents = fs::read(&file).with_context(|| finished.stderr.clone())?;
    Ok((truth, Profile::parse(&contents)?))
}

/// Four processes at once, each with a limit of its own.
#[test]
fn no_sample_of_several_processes_at_once_is_lost() -> Result<()> {
    let start = || preload::workload("burst.c", &[MEGABYTES, "0"], 4 << 10);
    let mut workloads = (0..4).map(|_| start()).collect::<Result<Vec<Workload>>>()?;
    let pids: Vec<u32> = workloads.iter().map(Workload::pid).collect();
    let daemon = Daemon::start(&pids, &[&DEFAULT[..], &["--ring", "256MiB"]].concat())?;
    workloads.iter_mut().try_for_each(Workload::go)?;
    let truths = workloads.iter_mut().map(Workload::truth).collect::<Result<Vec<_>>>()?;
    for (pid, truth) in pids.iter().zip(&truths) {
        let pid = pid.to_string();
        let profile = daemon.profile("alloc", &[&CONFIDENCE[..], &["--pid", &pid]].concat())?;
        allocated(&profile, truth)?;
        held(&profile, truth)?;
    }
    ensure!(daemon.outcome("usdt_flood")? == 0);
    workloads.iter_mut().try_for_each(Workload::exit)?;
    daemon.stop()
}

/// samplerd accepts 10,000 samples a second from another provider. The amount beyond is unknown,
/// also after the provider's end.
#[test]
fn a_flood_of_another_provider_has_no_upper_end() -> Result<()> {
    let library = build::compile("otelarena.c", &["-shared", "-fPIC"])?;
    let library = library.to_str().context("a path that is text")?;
    let mut flood = Workload::start("otel.c", &[library, "early", "flood"])?;
    let daemon = Daemon::start(&[flood.pid()], &["--ring", "256MiB"])?;
    flood.go()?;
    flood.truth()?;
    ensure!(daemon.outcome("usdt_flood")? > 0, "nothing was refused");
    let pid = flood.pid().to_string();
    for ends in [false, true] {
        if ends {
            flood.exit()?;
            wait::until("its end", || {
                let listed = daemon.json("ps")?;
                let exited = listed["processes"][0]["exited_unix_ns"].as_u64();
                Ok(exited.filter(|at| *at > 0))
            })?;
        }
        let profile = daemon.profile("alloc", &[])?;
        let stack = profile.stacks_of("flood").next().context("no stack of it")?;
        for of in [&stack.quantities, &profile.totals] {
            for of in [of.alloc_space, of.alloc_objects] {
                ensure!(of.low > 0.0 && of.high == f64::INFINITY, "{of:?}, ended: {ends}");
            }
        }
        let notes = profile.json["notes"].to_string();
        let note = format!("pid {pid}");
        ensure!(notes.contains(&note) && notes.contains("no interval has an upper end"), "{notes}");
        let text = daemon.sampler(&["profile"])?.success("sampler profile")?;
        println!("{}", String::from_utf8_lossy(&text.stdout));
    }
    daemon.stop()
}
