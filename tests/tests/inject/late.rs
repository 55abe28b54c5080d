//! A program opens another allocator after the injection. Its allocations there are not sampled,
//! which is reported. No allocation is counted twice.

use anyhow::{Context, Result, ensure};
use sampler_tests::{Daemon, Workload, inject, preload, wait};

/// Every allocation is sampled.
const EVERYTHING: [&str; 2] = ["--interval", "1"];

/// Attaches samplerd to `late.c`. The sampler is injected by the option `--inject`, or by
/// `sampler-inject`.
fn attach(workload: &Workload, is_option: bool) -> Result<Daemon> {
    if is_option {
        return Daemon::start(&[workload.pid()], &[&EVERYTHING[..], &["--inject"]].concat());
    }
    inject::inject(workload.pid(), 1)?;
    Daemon::start(&[workload.pid()], &EVERYTHING)
}

fn is_named(library: &str, when: &str, is_option: bool) -> Result<()> {
    let path = preload::debian(library)?.display().to_string();
    let mut workload = Workload::start("late.c", &[&path, when])?;
    let daemon = attach(&workload, is_option)?;
    workload.go()?;
    let truth = workload.truth()?;
    let profile = daemon.profile("alloc", &[])?;
    let [by_malloc, by_address] =
        ["by_malloc", "by_address"].map(|name| (truth.function(name), profile.row(name)));
    let (of, row) = (by_malloc.0?, by_malloc.1);
    let seen = (row.alloc_space.sum, row.inuse_space.sum);
    let expected = (of.alloc.bytes as f64, of.live.bytes as f64);
    ensure!(seen == expected, "{seen:?} is not {expected:?}: {}", profile.folded());
    let (of, row) = (by_address.0?, by_address.1);
    ensure!(of.alloc.bytes > 0 && row.alloc_space.sum == 0.0, "{}", profile.folded());
    wait::until("the line about the other allocator", || {
        let blind_spots = daemon.status()?["blind"].to_string();
        Ok((blind_spots.contains(library) && blind_spots.contains("not seen")).then_some(()))
    })
    .with_context(|| daemon.log())?;
    workload.exit()?;
    daemon.stop()
}

/// Allocators that can be opened. jemalloc is not among them: a late jemalloc finds no room for its
/// thread-local variables.
const OPENED: [&str; 2] = ["libtcmalloc_minimal.so.4", "libmimalloc.so.2.0"];

#[test]
fn an_allocator_loaded_by_dlopen_is_blind() -> Result<()> {
    for library in OPENED {
        for when in ["before", "after"] {
            let named = is_named(library, when, when == "after");
            named.with_context(|| format!("{library}, opened {when} the injection"))?;
        }
    }
    Ok(())
}
