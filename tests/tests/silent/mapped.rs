//! Memory that a program maps itself, next to malloc's own mappings, at rates at which stacks are
//! not copied.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::kill;
use sampler_tests::{Daemon, Profile, Truth, Workload};

/// The profile of a workload's mappings, the truth, and the sums in `ps`.
fn mapped(source: &str, arguments: &[&str]) -> Result<(Profile, Truth, serde_json::Value)> {
    let mut workload = Workload::start(source, arguments)?;
    let daemon = Daemon::start(&[workload.pid()], &[])?;
    workload.go()?;
    let truth = workload.truth()?;
    let profile = daemon.profile("mapped", &[])?;
    ensure!(daemon.outcome("mapping_flooded")? > 0, "no stack was left out");
    ensure!(daemon.outcome("mapping_ring_full")? == 0, "calls were lost");
    let ps = daemon.json("ps")?["processes"][0]["mappings"].clone();
    workload.exit()?;
    daemon.stop()?;
    println!("{}\n{ps}", profile.json["totals"]);
    Ok((profile, truth, ps))
}

/// Checks that the intervals of the totals cover the allocated and held bytes and objects.
fn holds(profile: &Profile, truth: &Truth) -> Result<()> {
    let (of, total) = (profile.totals, truth.total());
    for (of, truth) in [
        (of.alloc_space, total.alloc.bytes),
        (of.alloc_objects, total.alloc.objects),
        (of.inuse_space, total.live.bytes),
        (of.inuse_objects, total.live.objects),
    ] {
        let (truth, [low, high]) = (truth as f64, [of.low, of.high]);
        ensure!(low <= truth && truth <= high, "{truth} is not in [{low}, {high}]");
    }
    Ok(())
}

/// Checks that the owner of each call is known without stacks.
fn exact(how: &str) -> Result<()> {
    let (profile, truth, ps) = mapped("mapper.c", &[how, "6000"])?;
    holds(&profile, &truth)?;
    let of = profile.totals;
    for of in [of.alloc_space, of.inuse_space, of.alloc_objects, of.inuse_objects] {
        ensure!(of.low == of.high, "{of:?}");
    }
    let allocators = ps["by_allocators"]["bytes"].as_u64().context("no sum")?;
    ensure!(allocators > 10 * truth.total().alloc.bytes, "{ps}");
    ensure!(ps["by_unknown"]["calls"] == 0, "{ps}");
    Ok(())
}

#[test]
fn blocks_mapped_by_malloc_are_not_direct_mappings() -> Result<()> {
    exact("blocks")
}

#[test]
fn the_heap_grown_by_malloc_is_no_direct_mapping() -> Result<()> {
    exact("heap")
}

#[test]
fn arenas_of_threads_are_not_direct_mappings() -> Result<()> {
    exact("threads")
}

/// The program and an allocator inside it map memory through the same function.
#[test]
fn mappings_of_unknown_origin_are_in_the_upper_end() -> Result<()> {
    let (profile, truth, ps) = mapped("either.c", &["3000"])?;
    holds(&profile, &truth)?;
    let of = profile.totals.alloc_space;
    ensure!(0.0 < of.low && of.low < of.high, "{of:?}");
    ensure!(ps["by_unknown"]["calls"].as_u64() > Some(0), "{ps}");
    let notes = profile.json["notes"].to_string();
    ensure!(notes.contains("may be an allocator's"), "{notes}");
    // Each stack by itself: the lower end of stacks without a name is below the upper end.
    let lost = profile.stacks_of("[lost stacks]").next().context("no lost stacks")?;
    ensure!(lost.quantities.alloc_space.low < lost.quantities.alloc_space.high, "{lost:?}");
    Ok(())
}

/// The daemon is stopped, and the ring takes only a part of the calls. The lost bytes are unknown,
/// and a lost call may be the end of a held mapping.
#[test]
fn lost_calls_leave_no_upper_end() -> Result<()> {
    let mut workload = Workload::start("mapped.c", &["flood", "20000"])?;
    let daemon = Daemon::start(&[workload.pid()], &["--ring", "1MiB"])?;
    kill(daemon.pid(), libc::SIGSTOP)?;
    workload.go()?;
    let truth = workload.truth();
    kill(daemon.pid(), libc::SIGCONT)?;
    let truth = truth?;
    let profile = daemon.profile("mapped", &[])?;
    ensure!(daemon.outcome("mapping_ring_full")? > 0, "no call was lost");
    holds(&profile, &truth)?;
    let of = profile.totals;
    ensure!(of.alloc_space.low > 0.0, "{:?}", of.alloc_space);
    for of in [of.alloc_space, of.alloc_objects, of.inuse_space, of.inuse_objects] {
        ensure!(of.high == f64::INFINITY, "{of:?}");
    }
    ensure!(of.inuse_space.low == 0.0, "{:?}", of.inuse_space);
    let text = daemon.sampler(&["profile", "--kind", "mapped"])?.success("sampler profile")?;
    let text = String::from_utf8_lossy(&text.stdout);
    ensure!(!text.contains("all counted") && text.contains("some are not seen"), "{text}");
    workload.exit()?;
    daemon.stop()
}
