//! Many processes: short ones that come and go, and one that is much noisier than its neighbour.
//! Memory stays bounded, nothing leaks, and the numbers of each process stay right.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::kill;
use sampler_tests::daemon::outcome;
use sampler_tests::{Daemon, Profile, Workload, usage, wait};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Objects and bytes that a process of `churn.c` allocates.
const OBJECTS: u64 = 12;
const BYTES: u64 = 10 * 100 + 5000 + 70_000;
/// Short processes a second, and seconds of their phase.
const RATE: u64 = 500;
const SECONDS: u64 = 10;
/// Number of processes before the first measurement of memory. From this number on, the oldest
/// processes are folded.
const FIRST: u64 = 2700;
/// Largest growth of the daemon's memory over all later processes.
const GROWTH_KIB: u64 = 28 << 10;
/// How long the daemon may take to see the ends of all processes.
const BEHIND: Duration = Duration::from_secs(20);
/// Longest time of the short processes. A busy machine needs most of this time.
const LONG: Duration = Duration::from_secs(240);
/// Number of other processes of the machine that may come and go meanwhile.
const OTHERS: u64 = 64;

/// The first pid that the kernel gives out after the largest one.
const FIRST_AGAIN: u32 = 300;

/// Resources that the daemon holds.
struct Held {
    resident_kib: u64,
    descriptors: usize,
    slots: u64,
    targets: u64,
    pending: u64,
    unseen: u64,
}

fn held(daemon: &Daemon) -> Result<Held> {
    let status = daemon.status()?;
    let used = |name: &str| {
        let used = status["tables"][name]["used"].as_u64();
        used.with_context(|| format!("status has no table {name}: {status}"))
    };
    let text = fs::read_to_string(format!("/proc/{}/status", daemon.pid()))?;
    let resident = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|rest| rest.trim().strip_suffix(" kB"));
    Ok(Held {
        resident_kib: resident.context("no VmRSS")?.trim().parse()?,
        descriptors: usage::descriptors(daemon.pid())?,
        slots: used("slots")?,
        targets: used("targets")?,
        pending: used("pending")?,
        unseen: status["unseen_calls"].as_u64().context("status has no unseen_calls")?,
    })
}

/// Name of a process that was gone before the daemon read it, and whose record was lost.
const UNKNOWN: &str = "[unknown]";

/// Sums over the processes of a command in `ps`: how many run, and the number, objects and bytes of
/// all. The parent that starts them is left out, because it maps memory for them. Folded processes
/// have the pid 0.
fn short_ones(daemon: &Daemon, comm: &str, parent: Option<u32>) -> Result<(u64, [u64; 3])> {
    let ps = daemon.json("ps")?;
    let (mut running, mut sums) = (0, [0; 3]);
    let count = |of: &Value| of.as_u64().with_context(|| format!("no count in {ps}"));
    let all = ps["processes"].as_array().context("ps has no processes")?;
    let is_parent = |of: &Value| parent.is_some_and(|parent| of["pid"] == parent);
    for process in all.iter().filter(|of| of["comm"] == comm && !is_parent(of)) {
        running += u64::from(process["state"] == "running");
        sums[0] += count(&process["folded"])?.max(1);
        sums[1] += count(&process["exact"]["alloc_objects"])?;
        sums[2] += count(&process["exact"]["alloc_space"])?;
    }
    Ok((running, sums))
}

/// Sums over all short processes, once the daemon has seen the end of the last. The daemon may be
/// behind. A process whose record was lost never arrives.
fn all_ended(daemon: &Daemon, comm: &str, parent: u32, processes: u64) -> Result<[u64; 3]> {
    let start = Instant::now();
    wait::until("the end of the short processes", || {
        let (running, sums) = short_ones(daemon, comm, Some(parent))?;
        let is_all = sums[0] >= processes || start.elapsed() > BEHIND;
        Ok((running == 0 && is_all).then_some(sums))
    })
}

fn phase(workload: &mut Workload) -> Result<(u64, f64)> {
    workload.go()?;
    let line = workload.child().line_within(LONG)?;
    let said: Value = serde_json::from_str(&line).with_context(|| format!("parse {line:?}"))?;
    let processes = said["processes"].as_u64().context("no processes")?;
    Ok((processes, said["seconds"].as_f64().context("no seconds")?))
}

/// Checks that the sums are exactly what the processes allocated. Allocations without a slot are
/// missing, and counted. The name of a process may be unknown.
fn exact(daemon: &Daemon, processes: u64, sums: [u64; 3]) -> Result<()> {
    let [seen, objects, bytes] = sums;
    let (_, [unknown, unknown_objects, _]) = short_ones(daemon, UNKNOWN, None)?;
    let unseen = held(daemon)?.unseen + unknown_objects;
    if unseen + unknown == 0 {
        ensure!(
            [seen, objects, bytes] == [processes, processes * OBJECTS, processes * BYTES],
            "{seen} of {processes} processes, {objects} objects, {bytes} bytes; {}",
            daemon.log()
        );
        return Ok(());
    }
    let missing = (processes * OBJECTS).checked_sub(objects);
    let missing = missing.with_context(|| format!("{objects} objects of {processes} processes"))?;
    ensure!(
        missing <= unseen,
        "{missing} objects are missing, {unseen} are nobody's; {}",
        daemon.log()
    );
    Ok(())
}

#[test]
fn resources_of_short_processes_are_given_back() -> Result<()> {
    let program = sampler_tests::build::compile("churn.c", &[])?;
    let comm: String = program.file_name().context("a name")?.to_string_lossy().into();
    let comm = &comm[..15];
    let arguments = [RATE.to_string(), FIRST.to_string(), (RATE * SECONDS).to_string()];
    let mut workload = Workload::start("churn.c", &arguments.each_ref().map(String::as_str))?;
    // All pages of a small ring are resident from the first second on.
    let daemon = Daemon::start(&[], &["--all", "--ring", "1MiB"])?;
    let (processes, _) = phase(&mut workload)?;
    let sums = all_ended(&daemon, comm, workload.pid(), processes)?;
    let before = held(&daemon)?;
    exact(&daemon, processes, sums)?;

    let (processes, seconds) = phase(&mut workload)?;
    let sums = all_ended(&daemon, comm, workload.pid(), processes)?;
    exact(&daemon, processes, sums)?;
    let more = processes - FIRST;
    let after = wait::until("what they had to be given back", || {
        let now = held(&daemon)?;
        let back = now.slots <= before.slots + OTHERS
            && now.targets <= before.targets + OTHERS
            && now.pending <= before.pending + OTHERS
            && now.descriptors <= before.descriptors + OTHERS as usize
            && now.resident_kib <= before.resident_kib + GROWTH_KIB;
        Ok(back.then_some(now))
    })?;
    println!(
        "{more} processes in {seconds:.1} s, {:.0} a second; resident {} KiB before, {} after; {} calls unseen",
        more as f64 / seconds,
        before.resident_kib,
        after.resident_kib,
        after.unseen
    );
    // The sums cover all processes, whatever their names.
    let profile = daemon.profile("alloc", &[])?;
    ensure!(profile.exact_space >= sums[2], "{} bytes in all", profile.exact_space);
    // A process may end while it is compared with its files. It must not be taken for a patched
    // process, for which all processes would lose their probes.
    ensure!(!daemon.log().contains("differs from the file"), "{}", daemon.log());
    workload.child().send("exit")?;
    daemon.stop()
}

/// The pid that was given out last. It may be far beyond the workload's own.
fn last_pid() -> Result<u32> {
    let load = fs::read_to_string("/proc/loadavg")?;
    load.split_whitespace().last().context("no last pid")?.parse().context("the last pid")
}

#[test]
fn a_folded_process_is_refused_in_one_line() -> Result<()> {
    let mut workload = Workload::start("churn.c", &["1000", "3600"])?;
    let daemon = Daemon::start(&[], &["--all", "--ring", "1MiB"])?;
    // Pids rise from process to process, and begin again after the largest. Some candidates were
    // among the first processes, which are folded in the end.
    let last: u32 = fs::read_to_string("/proc/sys/kernel/pid_max")?.trim().parse()?;
    let first = last_pid()? + 1;
    let candidates = (first..first + 500).step_by(50);
    let again = (FIRST_AGAIN..FIRST_AGAIN + 500).step_by(50);
    let candidates: Vec<u32> = candidates.chain(again.filter(|_| first + 500 > last)).collect();
    phase(&mut workload)?;
    let refused = wait::until("the folding of one of the first", || {
        for pid in &candidates {
            let refused = daemon.sampler(&["profile", "--pid", &pid.to_string()])?;
            if refused.stderr.contains("exited long ago") {
                return Ok(Some(refused));
            }
        }
        Ok(None)
    })?;
    ensure!(refused.code() == 1, "exit code {}", refused.code());
    ensure!(refused.stderr.trim().lines().count() == 1, "{}", refused.stderr);
    workload.child().send("exit")?;
    daemon.stop()
}

fn of(daemon: &Daemon, kind: &str, workload: &Workload) -> Result<Profile> {
    daemon.profile(kind, &["--pid", &workload.pid().to_string()])
}

fn bounds_of(daemon: &Daemon, workload: &Workload) -> Result<Value> {
    let ps = daemon.json("ps")?;
    let all = ps["processes"].as_array().context("ps has no processes")?;
    let one = all.iter().find(|process| process["pid"] == workload.pid());
    Ok(one.context("the process is not in ps")?["bounds"].clone())
}

/// Every allocation of both processes is sampled, and the daemon reads nothing until both are done.
/// The noisy one fills its share of the ring, and loses only its own stacks.
#[test]
fn a_noisy_process_takes_no_stacks_from_a_quiet_one() -> Result<()> {
    let mut noisy = Workload::start("storm.c", &["200000", "64", "100", "0"])?;
    let mut quiet = Workload::start("storm.c", &["40", "500", "10", "0"])?;
    let pids = [noisy.pid(), quiet.pid()];
    let daemon = Daemon::start(&pids, &["--interval", "1", "--ring", "16MiB"])?;
    kill(daemon.pid(), 19)?;
    noisy.go()?;
    let noisy_truth = noisy.truth()?.total();
    quiet.go()?;
    let quiet_truth = quiet.truth()?.total();
    kill(daemon.pid(), 18)?;

    let profile = of(&daemon, "live", &quiet)?;
    let stacks: u64 =
        profile.stacks_of("storm").map(|stack| stack.quantities.alloc_space.moments.samples).sum();
    ensure!(stacks == quiet_truth.alloc.objects, "{stacks} stacks: {}", profile.folded());
    ensure!(profile.exact_space == quiet_truth.alloc.bytes, "exact {}", profile.exact_space);
    let live = profile.totals.inuse_space.value;
    ensure!(live == quiet_truth.live.bytes as f64, "{live} of {}", quiet_truth.live.bytes);

    let profile = of(&daemon, "live", &noisy)?;
    ensure!(profile.exact_space == noisy_truth.alloc.bytes, "exact {}", profile.exact_space);
    let totals = profile.totals;
    ensure!(totals.alloc_space.value == noisy_truth.alloc.bytes as f64, "{totals:?}");
    ensure!(totals.inuse_space.value == noisy_truth.live.bytes as f64, "{totals:?}");
    ensure!(
        outcome(&daemon.status()?, "ring_share") > 0,
        "its share was enough: {:?}",
        daemon.status()
    );
    let bounds = bounds_of(&daemon, &noisy)?;
    ensure!(bounds["ring_share"].as_u64() > Some(0), "{bounds}");
    let bounds = bounds_of(&daemon, &quiet)?;
    ensure!(bounds.as_object().is_some_and(serde_json::Map::is_empty), "{bounds}");
    noisy.exit()?;
    quiet.exit()?;
    daemon.stop()
}

/// One process holds more blocks than the live set has room for. The set is thinned for that
/// process only.
#[test]
fn a_large_process_takes_no_live_samples_from_a_small_one() -> Result<()> {
    let mut large = Workload::start("storm.c", &["20000", "64", "20000", "20"])?;
    let mut small = Workload::start("storm.c", &["100", "3000", "100", "2000"])?;
    let pids = [large.pid(), small.pid()];
    let arguments = ["--interval", "1", "--max-live", "1000", "--unwind", "fp"];
    let daemon = Daemon::start(&pids, &arguments)?;
    large.go()?;
    small.go()?;
    let (large_truth, small_truth) = (large.truth()?.total(), small.truth()?.total());
    let profile = of(&daemon, "live", &small)?;
    let totals = profile.totals;
    ensure!(totals.inuse_space.moments.samples == small_truth.live.objects, "{totals:?}");
    ensure!(totals.inuse_space.value == small_truth.live.bytes as f64, "{totals:?}");
    let arguments = ["--pid", &large.pid().to_string(), "--confidence", "0.999999999"];
    let profile = daemon.profile("live", &arguments)?;
    let (bytes, of) = (large_truth.live.bytes as f64, profile.totals.inuse_space);
    ensure!(
        of.low <= bytes && bytes <= of.high,
        "[{}, {}] does not cover {bytes}",
        of.low,
        of.high
    );
    let status = daemon.status()?;
    ensure!(outcome(&status, "thinned") > 0, "nothing was thinned: {status}");
    let held = status["live_samples"].as_u64().context("status has no live_samples")?;
    ensure!(held <= 1000, "{held} samples are held");
    let interval = |pid: u32| {
        let all = status["intervals"].as_array().into_iter().flatten();
        all.filter(|of| of["pid"] == pid).find_map(|of| of["interval_bytes"].as_u64())
    };
    ensure!(interval(small.pid()) == Some(1), "the small one's rate changed: {status}");
    ensure!(interval(large.pid()) > Some(1), "the large one's did not: {status}");
    large.exit()?;
    small.exit()?;
    daemon.stop()
}

/// More processes than slots: processes without a slot are not profiled, and every profile says so.
#[test]
fn processes_without_a_slot_are_counted() -> Result<()> {
    let first = Workload::start("storm.c", &["100", "64", "10", "0"])?;
    let daemon = Daemon::start(&[], &["--all", "--max-processes", "1"])?;
    let mut more = (0..3)
        .map(|_| Workload::start("storm.c", &["2000", "64", "10", "0"]))
        .collect::<Result<Vec<_>>>()?;
    for workload in &mut more {
        workload.go()?;
        workload.truth()?;
    }
    let unseen = held(&daemon)?.unseen;
    ensure!(unseen >= 2 * 2000, "{unseen} calls unseen");
    let profile = daemon.profile("alloc", &[])?;
    let notes = profile.json["notes"].to_string();
    ensure!(notes.contains("found no slot") && notes.contains("lower bound"), "{notes}");
    drop(first);
    daemon.stop()
}

#[test]
fn too_many_given_processes_are_refused_in_one_line() -> Result<()> {
    let workload = Workload::start("storm.c", &["1", "1", "1", "0"])?;
    let other = Workload::start("storm.c", &["1", "1", "1", "0"])?;
    let pids = [workload.pid(), other.pid()].map(|pid| pid.to_string());
    let listen = format!("unix:{}", PathBuf::from("/nonexistent/socket").display());
    let arguments = ["--max-processes", "1", "--listen", &listen, "--pid", &pids[0], &pids[1]];
    let refused = sampler_tests::daemon::samplerd(&arguments)?;
    ensure!(
        refused.code() == 1 && refused.stderr.contains("--max-processes"),
        "{}",
        refused.stderr
    );
    ensure!(refused.stderr.trim().lines().count() == 1, "{}", refused.stderr);
    Ok(())
}
