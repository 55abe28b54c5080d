//! Hooks the allocator of a running program, this very test: every function at every place, under
//! four threads that check what they get.
//!
//! Each allocator runs in a process of its own, which is this file's test `in_child` again. Its
//! hooks lead to stubs that count the call, spoil every register that carries nothing, and go on
//! with the function as it was.

#![allow(unsafe_code, reason = "writes machine code into its own process")]
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod allocator;
mod hooks;
mod work;

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use allocator::{Allocator, Family, Maps};
use hooks::Hooks;
use sampler_inject::plan::{Candidate, plan};
use work::Work;

/// Set in a child: the child is to hook its allocator.
const IN_CHILD: &str = "SAMPLER_INJECT_LIVE";
/// What the child prints at its end.
const DONE: &str = "live: all places were tried:";

#[test]
fn glibc() {
    with_allocator(None);
}

#[test]
fn jemalloc() {
    with_allocator(Some(("libjemalloc2", "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2")));
}

#[test]
fn tcmalloc() {
    with_allocator(Some(("libgoogle-perftools4", "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4")));
}

#[test]
fn tcmalloc_minimal() {
    let library = "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4";
    with_allocator(Some(("libtcmalloc-minimal4", library)));
}

#[test]
fn mimalloc() {
    with_allocator(Some(("libmimalloc2.0", "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2.0")));
}

/// Runs this file's test `in_child` with an allocator: the package and its library.
fn with_allocator(allocator: Option<(&str, &str)>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["in_child", "--exact", "--nocapture"]).env(IN_CHILD, "1");
    if let Some((package, library)) = allocator {
        let is_there = Path::new(library).exists();
        assert!(is_there, "{library} is missing: apt-get install {package}");
        command.env("LD_PRELOAD", library);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}{error}", output.status);
    let line = text.lines().find(|line| line.contains(DONE));
    println!("{allocator:?} {}", line.unwrap_or_else(|| panic!("{text}{error}")));
}

/// The child's work. Without [`IN_CHILD`] there is none.
#[test]
fn in_child() {
    if std::env::var_os(IN_CHILD).is_none() {
        return;
    }
    let allocator = Allocator::of_this_process();
    let families = &allocator.families;
    // What fails without hooks is no finding.
    Work::done_by_four_threads(families);
    println!("live: the allocator works without hooks");
    let candidates = allocator.candidates();
    let rounds = candidates.iter().map(|of| of.places.len()).max().unwrap();
    let mut counts = Counts::default();
    for round in 0..rounds {
        let candidates: Vec<Candidate> = candidates.iter().map(|of| at_place(of, round)).collect();
        let plan = plan(&candidates, &Maps::of_this_process().layout());
        counts.occupied +=
            plan.unplaced.iter().filter(|of| !candidates[**of].places.is_empty()).count();
        let hooks = Hooks::put_in(&plan, &candidates);
        let calls = Work::done_by_four_threads(families);
        compare(families, &calls, &hooks.take_out(), &mut counts);
    }
    println!("{DONE} {} functions, {counts:?}", families.len());
    assert!(counts.hooked > counts.disturbed, "{counts:?}");
}

/// Hooks by what became of them.
#[derive(Debug, Default)]
struct Counts {
    hooked: usize,
    /// Something of this process lies at a landing.
    occupied: usize,
    /// Another tool's breakpoint came over the hook, and took it along when it went.
    disturbed: usize,
}

/// The candidate with one place only.
fn at_place<'a>(candidate: &Candidate<'a>, place: usize) -> Candidate<'a> {
    let places = candidate.places.get(place).cloned().into_iter().collect();
    Candidate { function: candidate.function, places }
}

/// Each hooked function was counted for every call of it. Calls by the allocator and by Rust come
/// on top.
fn compare(
    families: &[Family],
    calls: &HashMap<&str, u64>,
    counted: &HashMap<usize, Option<u64>>,
    counts: &mut Counts,
) {
    for (candidate, count) in counted {
        let name = families[*candidate].name;
        let least = calls.get(name).copied().unwrap_or_default();
        assert!(least > 0, "{name} was not called");
        match count {
            Some(count) => assert!(*count >= least, "{name}: {count} of {least} were counted"),
            None => counts.disturbed += 1,
        }
        counts.hooked += 1;
    }
}
