//! What samplerd says that its probes cost, against what programs become slower.

use anyhow::{Context, Result, ensure};
use sampler_daemon::bpf::calibrate;
use sampler_tests::{Daemon, Workload, again, build, preload, wait};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// How often a block is run with and without probes.
const ROUNDS: usize = 5;
/// How often a daemon calibrates itself anew where its prices do not fit what is measured then: the host may have become slower or
/// faster in between. What was forgotten, or is charged twice, never fits.
const TRIES: usize = 5;
/// By what factor prediction and measurement may differ. The calibration ran at another time, and a neighbour on the same core
/// makes everything dearer; a role that was forgotten, or a unit mistaken, is further off.
const EMULATED: f64 = 1.8;
/// The same of programs that do other things between hits.
const REAL: f64 = 2.5;
/// Single-stepping leaves the virtual machine, and then it matters even more what else its host does.
const STEPPED: f64 = 3.0;

/// More than a pair of calls takes without a probe, nanoseconds.
const UNPROBED_PAIR_NS: f64 = 200.0;

/// A workload with a C library of its own, in a directory that has to stay: what others probe in everybody's makes nobody slower here.
struct Own {
    workload: Workload,
    _directory: TempDir,
}

impl Own {
    fn start() -> Result<Own> {
        Own::run(&mut Command::new(build::compile("cost.c", &[])?))
    }

    fn run(command: &mut Command) -> Result<Own> {
        Own::run_in(tempfile::tempdir()?, command)
    }

    fn run_in(directory: TempDir, command: &mut Command) -> Result<Own> {
        fs::copy("/lib/x86_64-linux-gnu/libc.so.6", directory.path().join("libc.so.6"))
            .context("copy the C library")?;
        let command = command.env("LD_LIBRARY_PATH", directory.path());
        Ok(Own { workload: Workload::spawn("the program", command)?, _directory: directory })
    }

    /// The program with a library of its own that samples all it allocates: where probes are shared, what is in the same file pays for
    /// traps, too.
    fn preloaded() -> Result<Own> {
        let directory = tempfile::tempdir()?;
        let library = directory.path().join("libsampler_preload.so");
        fs::copy(preload::library()?, &library).context("copy the library")?;
        let mut command = Command::new(build::compile("cost.c", &[])?);
        preload::preload(&mut command, 1, None)?;
        Own::run_in(directory, command.env("LD_PRELOAD", library))
    }

    /// A script of `workloads/`.
    fn script(interpreter: &str, name: &str) -> Result<Own> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads").join(name);
        Own::run(Command::new(interpreter).arg(path))
    }

    /// The program without a symbol but those of its own allocator.
    fn stripped(directory: &Path) -> Result<PathBuf> {
        let program = directory.join("cost-own");
        let mut strip = Command::new("strip");
        strip.args(["-K", "own_alloc", "-K", "own_free", "-o"]).arg(&program);
        let status = strip.arg(build::compile("cost.c", &["-static"])?).status()?;
        ensure!(status.success(), "strip: {status}");
        Ok(program)
    }
}

/// CPU time of one block of calls, nanoseconds.
fn block(workload: &mut Workload, case: &str, count: u64) -> Result<f64> {
    workload.child().send(&format!("{case} {count}"))?;
    workload.child().line()?.trim().parse().context("nanoseconds of CPU time")
}

fn number(value: &Value, what: &str) -> Result<f64> {
    value.as_f64().with_context(|| format!("{what} is no number but {value}"))
}

/// A figure whose interval is in order, and is one: (value, low, high).
fn range(value: &Value, what: &str) -> Result<(f64, f64, f64)> {
    let of = |key: &str| number(&value[key], &format!("{what} {key}"));
    let (middle, low, high) = (of("value")?, of("low")?, of("high")?);
    ensure!(low <= middle && middle <= high && low < high, "{what}: {value}");
    Ok((middle, low, high))
}

/// The cost of a process by `ps`.
fn cost(daemon: &Daemon, pid: u32) -> Result<Value> {
    let listed = daemon.json("ps")?;
    let processes = listed["processes"].as_array().context("no processes")?;
    let process = processes.iter().find(|process| process["pid"] == pid);
    Ok(process.with_context(|| format!("pid {pid} is not in {listed}"))?["cost"].clone())
}

/// Whether a process that is not ours to probe is not probed.
fn is_quiet(other: &mut Own) -> Result<bool> {
    Ok(block(&mut other.workload, "pairs", 1000)? / 1000.0 < UNPROBED_PAIR_NS)
}

/// What is run in a process that is probed and in one that is not, by turns: the predicted cost is within a factor of the slowdown.
struct Trial<'a> {
    case: &'a str,
    count: u64,
    factor: f64,
    arguments: &'a [&'a str],
}

impl Trial<'_> {
    /// Runs it in these two until a daemon's prices fit; the status of that one.
    fn holds(&self, plain: &mut Workload, probed: &mut Workload) -> Result<Value> {
        let what = format!("{} {:?}", self.case, self.arguments);
        again::until(&what, TRIES, || self.attempt(plain, probed))
    }

    /// With a daemon that has just calibrated itself: its status, or by what factor it is off.
    fn attempt(
        &self,
        plain: &mut Workload,
        probed: &mut Workload,
    ) -> Result<Result<Value, String>> {
        // Before the daemon: one that shares links looks into the files of those who come.
        let mut quiet = Own::start()?;
        let daemon = Daemon::start(&[probed.pid()], self.arguments)?;
        let (mut slower, mut spent, mut rounds) = (0.0, 0.0, 0);
        // A daemon elsewhere on the machine that profiles everybody makes the other process slower, too: such a round does not count.
        wait::until("rounds in which nobody else probes", || {
            let before = is_quiet(&mut quiet)?;
            let (difference, more) = self.round(&daemon, plain, probed)?;
            if before && is_quiet(&mut quiet)? {
                (slower, spent) = (slower + difference, spent + more);
                rounds += 1;
            }
            Ok((rounds == ROUNDS).then_some(()))
        })?;
        let status = daemon.status()?;
        daemon.stop()?;
        let (ratio, Trial { case, arguments, factor, .. }) = (spent / slower, self);
        println!(
            "{case} {arguments:?}: predicted {:.2} ms, measured {:.2} ms, ratio {ratio:.2}",
            spent / 1e6,
            slower / 1e6
        );
        let fits = ratio < *factor && ratio > 1.0 / factor;
        Ok(if fits { Ok(status) } else { Err(format!("ratio {ratio}")) })
    }

    /// A block in each: how much longer the probed one took, and what its probes are said to have cost.
    fn round(
        &self,
        daemon: &Daemon,
        plain: &mut Workload,
        probed: &mut Workload,
    ) -> Result<(f64, f64)> {
        let Trial { case, count, .. } = *self;
        let before = number(&cost(daemon, probed.pid())?["spent_ns"]["value"], "spent_ns")?;
        let difference = block(probed, case, count)? - block(plain, case, count)?;
        let (after, ..) = range(&cost(daemon, probed.pid())?["spent_ns"], "spent_ns")?;
        Ok((difference, after - before))
    }
}

/// Two processes of the program that calls in a loop; of these a trial holds.
fn agrees(case: &str, count: u64, arguments: &[&str]) -> Result<()> {
    let (mut plain, mut probed) = (Own::start()?, Own::start()?);
    let trial = Trial { case, count, factor: EMULATED, arguments };
    trial.holds(&mut plain.workload, &mut probed.workload).map(drop)
}

#[test]
fn session_costs_what_it_says() -> Result<()> {
    agrees("pairs", 40_000, &["--probe-engine", "session"])?;
    agrees("mix", 15_000, &["--probe-engine", "session"])?;
    agrees("large", 20_000, &["--probe-engine", "session", "--interval", "4GiB"])?;
    Ok(())
}

#[test]
fn multi_costs_what_it_says() -> Result<()> {
    agrees("pairs", 40_000, &["--probe-engine", "multi"])?;
    agrees("mix", 15_000, &["--probe-engine", "multi"])?;
    Ok(())
}

#[test]
fn perf_costs_what_it_says() -> Result<()> {
    agrees("pairs", 40_000, &["--probe-engine", "perf"])?;
    agrees("mix", 15_000, &["--probe-engine", "perf"])?;
    Ok(())
}

/// Programs do not call in a loop: between two hits their code and data push those of the kernel out of the caches. What a hit then
/// costs more than in the calibration is printed: docs/statistics.md quotes it.
#[test]
fn real_programs_pay_about_what_it_says() -> Result<()> {
    for (interpreter, script, case, count) in [
        ("/usr/bin/python3", "cost.py", "parse", 12),
        ("/usr/bin/python3", "cost.py", "database", 20),
        ("/usr/bin/perl", "cost.pl", "words", 15),
    ] {
        let (mut plain, mut probed) =
            (Own::script(interpreter, script)?, Own::script(interpreter, script)?);
        let (plain, probed) = (&mut plain.workload, &mut probed.workload);
        Trial { case, count, factor: REAL, arguments: &[] }.holds(plain, probed)?;
    }
    Ok(())
}

/// Every allocation is a sample, and every free the end of one.
#[test]
fn samples_cost_what_it_says() -> Result<()> {
    let (mut plain, mut probed) = (Own::start()?, Own::start()?);
    let arguments = &["--interval", "1", "--ring-bytes", "64MiB"];
    let trial = Trial { case: "pairs", count: 2_000, factor: REAL, arguments };
    let status = trial.holds(&mut plain.workload, &mut probed.workload)?;
    let prices = &status["prices"];
    let (hit, ..) = range(&prices["hits"][0]["ns"], "a hit")?;
    let (sampled, ..) = range(&prices["sampled_ns"], "a sample")?;
    ensure!(sampled > hit, "{prices}");
    Ok(())
}

/// A process that samples by itself pays for its samples and their ends, and for nothing else: each is a hit of a USDT.
#[test]
fn usdt_hits_cost_what_it_says() -> Result<()> {
    for arguments in [&["--ring-bytes", "64MiB"][..], &["--follow", "--ring-bytes", "64MiB"]] {
        let (mut plain, mut sampled) = (Own::preloaded()?, Own::preloaded()?);
        let trial = Trial { case: "pairs", count: 1_500, factor: REAL, arguments };
        let status = trial.holds(&mut plain.workload, &mut sampled.workload)?;
        ensure!(status["cost"]["unpriced"] == 0, "{}", status["cost"]);
        let probes = status["probes"].as_array().context("no probes")?;
        for role in ["otel_alloc", "otel_free"] {
            let hits = status["prices"]["hits"].as_array().context("no prices")?;
            let price = hits.iter().find(|hit| hit["program"] == role).context("no price")?;
            ensure!(price["emulated"] == true, "{price}");
            range(&price["ns"], role)?;
            let hit = probes.iter().find(|of| of["role"] == role && of["hits"]["value"] != 0.0);
            range(&hit.with_context(|| status.to_string())?["spent_ns"], role)?;
        }
    }
    Ok(())
}

/// Where links are shared it is looked up who calls.
#[test]
fn shared_links_cost_what_it_says() -> Result<()> {
    agrees("pairs", 40_000, &["--follow"])?;
    Ok(())
}

/// Functions in which the kernel emulates nothing.
#[test]
fn single_stepped_probes_cost_what_it_says() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let spec = directory.path().join("spec");
    fs::write(&spec, "library */cost*\nmalloc own_alloc\nfree own_free\n")?;
    let spec = spec.to_str().context("a path in UTF-8")?;
    let program = Own::stripped(directory.path())?;
    let start = || Workload::start_program(&program, &[]);
    let (mut plain, mut probed) = (start()?, start()?);
    let arguments = &["--allocator-spec", spec];
    let trial = Trial { case: "own", count: 1_000, factor: STEPPED, arguments };
    again::until("prices of both kinds", TRIES, || {
        Ok(match trial.attempt(&mut plain, &mut probed)? {
            Ok(status) => stepping_is_dearer(&status)?,
            Err(miss) => Err(miss),
        })
    })
}

/// Single-stepped hits have a price of their own; otherwise what makes it doubtful.
fn stepping_is_dearer(status: &Value) -> Result<Result<(), String>> {
    let probes = status["probes"].as_array().context("no probes")?;
    ensure!(probes.len() == 2, "{status}");
    let emulated = &status["prices"]["hits"][0];
    ensure!(emulated["emulated"] == true, "{emulated}");
    let (middle, _, dearest) = range(&emulated["ns"], "an emulated hit")?;
    for probe in probes {
        let (stepped, cheapest, _) = range(&probe["hit_ns"], "a single-stepped hit")?;
        let (spent, low, high) = range(&probe["spent_ns"], "spent on a probe")?;
        let dearer = cheapest > dearest && stepped > 1.5 * middle;
        if !dearer || low <= 0.5 * spent || high >= 2.0 * spent {
            return Ok(Err(format!("{probe}: {emulated}")));
        }
    }
    Ok(Ok(()))
}

/// Functions of both kinds that share a count: what was spent lies between, and the interval says so.
#[test]
fn who_cannot_be_told_apart_has_a_wide_interval() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let spec = directory.path().join("spec");
    fs::write(&spec, "library */cost*\nmalloc own_alloc\nfree own_free\n")?;
    let spec = spec.to_str().context("a path in UTF-8")?;
    let mut workload = Workload::start("cost.c", &[])?;
    let daemon = Daemon::start(&[workload.pid()], &["--allocator-spec", spec])?;
    block(&mut workload, "own", 1_000)?;
    let cost = cost(&daemon, workload.pid())?;
    let (spent, low, high) = range(&cost["spent_ns"], "spent_ns")?;
    ensure!(low < 0.5 * spent && high > 1.5 * spent, "{cost}");
    daemon.stop()
}

/// Counts by role, each hit once: the cost of each probe, and all of them are the cost of the process.
#[test]
fn every_role_is_charged() -> Result<()> {
    let mut workload = Workload::start("cost.c", &[])?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "4GiB"])?;
    block(&mut workload, "mix", 2_000)?;
    let status = daemon.status()?;
    let mut sum = 0.0;
    for (symbol, calls) in
        [("calloc", 2_000.0), ("realloc", 2_000.0), ("posix_memalign", 2_000.0), ("free", 4_000.0)]
    {
        let probes = status["probes"].as_array().context("no probes")?;
        let probe = probes.iter().find(|probe| probe["symbols"][0] == symbol);
        let probe = probe.with_context(|| format!("no {symbol} in {status}"))?;
        let (spent, ..) = range(&probe["spent_ns"], symbol)?;
        let (hit, ..) = range(&probe["hit_ns"], symbol)?;
        ensure!(probe["hits"]["value"] == calls, "{probe}");
        ensure!((spent / (hit * calls) - 1.0).abs() < 1e-6, "{probe}");
        sum += spent;
    }
    let cost = cost(&daemon, workload.pid())?;
    let (spent, ..) = range(&cost["spent_ns"], "spent_ns")?;
    ensure!(spent >= 0.999 * sum && spent < 1.2 * sum, "{spent} is not {sum}: {cost}");
    ensure!(cost["unpriced"] == 0 && cost["why"].is_null(), "{cost}");
    let (all, ..) = range(&status["cost"]["spent_ns"], "all")?;
    ensure!((all / spent - 1.0).abs() < 0.2, "{all} {spent}");
    daemon.stop()
}

/// CPU time that a process uses for nothing but calls, nanoseconds.
const USED_NS: f64 = 2e8;

/// A process that did nothing but call, and a daemon of which the cost is what it must be; otherwise what is not. The prices are of a
/// moment before the calls.
fn charged() -> Result<Result<(Workload, Daemon), String>> {
    let mut workload = Workload::start("cost.c", &[])?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "64KiB"])?;
    // Later looks take time, too.
    let taken = number(&daemon.status()?["prices"]["taken_ns"], "taken")?;
    let mut truly_used = 0.0;
    while truly_used < USED_NS {
        truly_used += block(&mut workload, "pairs", 20_000)?;
    }
    let profile = daemon.profile("alloc", &[])?;
    let cost = &profile.json["cost"];
    let (used, ..) = range(&cost["processor_ns"], "processor_ns")?;
    ensure!(used > USED_NS / 2.0, "{cost}");
    let (spent, low, high) = range(&cost["spent_ns"], "spent_ns")?;
    let (share, ..) = range(&cost["share"], "share")?;
    ensure!(taken > 1e5, "measuring took {taken} ns");
    // It ends with the round in which the time is over, and a round takes less than half of it.
    let most = 1.5 * calibrate::MOST.as_nanos() as f64;
    let is_narrow = low > 0.5 * spent && high < 2.0 * spent;
    let fits = is_narrow && share > 0.4 && share < 1.7 && taken < most;
    Ok(if fits { Ok((workload, daemon)) } else { Err(format!("taken {taken} ns, {cost}")) })
}

/// Everything that shows a profile or a process shows what it costs; after the exit, too.
#[test]
fn the_cost_is_everywhere() -> Result<()> {
    let (mut workload, daemon) = again::until("the cost of calls", TRIES, charged)?;
    let pid = workload.pid();
    let profile = daemon.profile("alloc", &[])?;
    let cost_of_profile = &profile.json["cost"];
    ensure!(number(&cost_of_profile["daemon_ns"], "daemon_ns")? > 0.0, "{cost_of_profile}");
    // 99 % is wider than 50 %.
    let width = |level: &str| -> Result<f64> {
        let profile = daemon.profile("alloc", &["--confidence", level])?;
        let (_, low, high) = range(&profile.json["cost"]["spent_ns"], level)?;
        Ok(high - low)
    };
    ensure!(width("0.99")? > 2.0 * width("0.5")?, "the interval knows no confidence");
    for (verb, words) in [
        (&["profile"][..], "of CPU time in probes"),
        (&["profile", "--format", "jeprof"], "# cost: "),
        (&["status"], "a hit: malloc "),
        (&["ps"], "of CPU time in probes"),
    ] {
        let text = daemon.sampler(verb)?.success("sampler")?.stdout;
        let text = String::from_utf8_lossy(&text).into_owned();
        ensure!(text.contains(words), "{verb:?} does not say {words}:\n{text}");
        let is_table = !verb.contains(&"jeprof");
        let long = text.lines().find(|line| is_table && line.chars().count() > 80);
        ensure!(long.is_none(), "more than 80 columns: {long:?}");
    }
    let status = daemon.status()?;
    ensure!(number(&status["daemon_processor_ns"], "daemon")? > 1e6, "{status}");
    let before = cost(&daemon, pid)?;
    workload.child().close_stdin();
    workload.wait()?;
    let after = wait::until("the exit", || {
        let listed = daemon.json("ps")?;
        let exited = listed["processes"][0]["state"] == "exited";
        Ok(exited.then(|| listed["processes"][0]["cost"].clone()))
    })?;
    let [before, after] = [&before, &after].map(|cost| range(&cost["spent_ns"], "spent_ns"));
    ensure!(after?.0 >= 0.95 * before?.0, "the cost of an exited process is forgotten");
    daemon.stop()
}

/// The hits of the calibration are nobody's: nothing is counted before a process has done anything, and not when prices are looked at again.
#[test]
fn the_calibration_is_in_no_count() -> Result<()> {
    for engine in ["session", "multi", "perf"] {
        nothing_is_counted(engine, &["--probe-engine", engine, "--interval", "1"], false)
            .with_context(|| engine.to_owned())?;
    }
    nothing_is_counted("shared", &["--follow", "--interval", "1"], true)
}

fn nothing_is_counted(what: &str, arguments: &[&str], again: bool) -> Result<()> {
    let workload = Workload::start("cost.c", &[])?;
    let daemon = Daemon::start(&[workload.pid()], arguments)?;
    let taken = |status: &Value| number(&status["prices"]["taken_ns"], "taken_ns");
    let first = taken(&daemon.status()?)?;
    if again {
        wait::until("prices to be looked at again", || {
            Ok((taken(&daemon.status()?)? > first).then_some(()))
        })?;
    }
    let status = daemon.status()?;
    let counted = status["outcomes"].as_object().context("no outcomes")?.iter();
    let counted: Vec<_> = counted.filter(|(_, count)| **count != 0).collect();
    ensure!(counted.is_empty(), "{what}: {counted:?}");
    ensure!(status["live_samples"] == 0, "{what}: {status}");
    for table in ["live", "pending", "rows", "lifetimes"] {
        ensure!(status["tables"][table]["used"] == 0, "{what}: {table}: {}", status["tables"]);
    }
    for probe in status["probes"].as_array().into_iter().flatten() {
        // Those of functions that map memory are not counted.
        let hits = &probe["hits"];
        ensure!(hits.is_null() || hits["value"] == 0.0, "{what}: {probe}");
    }
    let profile = daemon.profile("alloc", &[])?;
    ensure!(profile.exact_objects == 0 && profile.samples == 0, "{what}: {}", profile.json);
    let cost = cost(&daemon, workload.pid())?;
    ensure!(cost["spent_ns"]["value"] == 0.0 && cost["daemon_ns"] == 0, "{what}: {cost}");
    daemon.stop()
}
