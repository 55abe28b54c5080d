//! redis-server as distributed, under redis-benchmark: jemalloc as a library, called through a
//! wrapper of the program's own.
//!
//! samplerd always starts after redis-server. A preloaded library counts what was allocated since,
//! and what of it is held (`workloads/held.c`). Without the library, redis's own counters give a
//! bound.

mod server;

use anyhow::{Context, Result, ensure};
use sampler_tests::{Daemon, Profile};
use server::{Counts, Server};

/// Every command of the benchmark that makes objects, and the function of redis that handles it.
const COMMANDS: &str = "set,get,lpush,sadd,hset,zadd,mset";
const HANDLERS: &[&str] = &[
    "setCommand",
    "pushGenericCommand",
    "saddCommand",
    "hsetCommand",
    "zaddGenericCommand",
    "msetGenericCommand",
];

/// Checks that no allocation is missed or counted twice.
fn judge_exact(profile: &Profile, truth: &Counts) -> Result<()> {
    let exact = (profile.exact_objects, profile.exact_space);
    ensure!(
        exact == (truth.allocations, truth.bytes),
        "exact totals {exact:?}, truth {truth:?}\n{}",
        profile.folded()
    );
    Ok(())
}

/// Checks that 99 of a hundred samples reach the program's first instruction, and that their frames
/// have names.
fn judge_stacks(profile: &Profile, enough: u64) -> Result<()> {
    let samples = |function: &str| profile.row(function).alloc_objects.samples;
    let (whole, all) = (samples("_start"), profile.samples);
    ensure!(
        all >= enough && whole * 100 >= all * 99,
        "{whole} of {all} stacks are whole\n{}",
        profile.folded()
    );
    for function in [&["main", "aeMain", "processCommand", "call"], HANDLERS].concat() {
        ensure!(samples(function) > 0, "no stack has {function}\n{}", profile.folded());
    }
    for stack in profile.stacks_of("processCommand") {
        let at = |name: &str| stack.frames.iter().position(|frame| frame == name);
        let order = [at("_start"), at("main"), at("aeMain"), at("processCommand")];
        ensure!(order.is_sorted() && order[0] == Some(0), "{:?}", stack.frames);
    }
    Ok(())
}

/// samplerd attaches while redis-server runs, and samples every allocation. Held bytes are right to
/// the byte, too.
#[test]
fn a_running_redis_is_counted_exactly() -> Result<()> {
    let server = Server::start_counted()?;
    server.stop()?;
    server.begin_counting()?;
    let daemon = Daemon::start(&[server.pid()], &["--interval", "1", "--ring", "256MiB"])?;
    server.go_on()?;
    server.benchmark(COMMANDS, 1_000)?;
    let truth = server.settle()?;
    let profile = daemon.profile("alloc", &[])?;
    judge_exact(&profile, &truth)?;
    let held = (profile.totals.inuse_objects.value, profile.totals.inuse_space.value);
    ensure!(
        held == (truth.held as f64, truth.held_bytes as f64),
        "held {held:?}, truth {truth:?}\n{}",
        profile.folded()
    );
    ensure!(profile.samples == truth.allocations, "{} samples of {truth:?}", profile.samples);
    judge_stacks(&profile, 10_000)?;
    server.go_on()?;
    server.end()?;
    daemon.stop()
}

/// All processes of the machine are profiled. At this confidence the four estimates together are
/// wrong less than once in a million runs.
#[test]
fn redis_is_estimated_among_all_processes() -> Result<()> {
    let server = Server::start_counted()?;
    server.stop()?;
    server.begin_counting()?;
    let daemon = Daemon::start(&[], &["--all", "--interval", "2KiB", "--ring", "64MiB"])?;
    server.go_on()?;
    server.benchmark(COMMANDS, 10_000)?;
    let truth = server.settle()?;
    let pid = server.pid().to_string();
    let profile = daemon.profile("alloc", &["--pid", &pid, "--confidence", "0.9999999"])?;
    judge_exact(&profile, &truth)?;
    for (what, quantity, truth) in [
        ("allocated", profile.totals.alloc_space, truth.bytes),
        ("allocated objects", profile.totals.alloc_objects, truth.allocations),
        ("held", profile.totals.inuse_space, truth.held_bytes),
        ("held objects", profile.totals.inuse_objects, truth.held),
    ] {
        let within = (quantity.low..=quantity.high).contains(&(truth as f64));
        ensure!(within, "{what}: {} … {}, truth {truth}", quantity.low, quantity.high);
    }
    judge_stacks(&profile, 1_000)?;
    server.go_on()?;
    server.end()?;
    daemon.stop()
}

/// Nothing is preloaded. redis sums up the sizes of its blocks, which are at least the requested
/// bytes, and less than twice as many.
#[test]
fn held_bytes_agree_with_the_memory_of_redis() -> Result<()> {
    let server = Server::start()?;
    let before = server.used_memory()?;
    let daemon = Daemon::start(&[server.pid()], &["--interval", "1", "--ring", "256MiB"])?;
    server.benchmark(COMMANDS, 1_000)?;
    let used = server.used_memory()?.saturating_sub(before) as f64;
    let profile = daemon.profile("alloc", &[])?;
    let held = profile.totals.inuse_space.value;
    ensure!(
        used > 500e3 && (used * 0.6..used * 1.05).contains(&held),
        "held {held}, redis says {used}\n{}",
        profile.folded()
    );
    judge_stacks(&profile, 10_000)?;
    let listed = daemon.json("ps")?;
    let process = listed["processes"].get(0).context("ps is empty")?;
    let in_force = process["allocator_in_force"].as_str().unwrap_or_default();
    ensure!(in_force.contains("libjemalloc.so.2"), "in force: {in_force}");
    ensure!(process["blind"] == serde_json::json!([]), "{process}");
    server.end()?;
    daemon.stop()
}
