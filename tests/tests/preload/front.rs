//! Allocators before the library, in the program itself or preloaded earlier. Calls of functions
//! that they lack reach the library, which passes them back to the allocator.

use anyhow::{Result, ensure};
use sampler_tests::child::finish;
use sampler_tests::{build, preload};
use std::process::Command;

/// Mean bytes between samples. At 1 everything is sampled.
const INTERVALS: [u64; 2] = [1, 512 << 10];

/// The program aborts on a block that its own allocator has not made.
#[test]
fn a_program_with_its_own_allocator_runs_unchanged() -> Result<()> {
    let program = build::compile("front.c", &[])?;
    let alone = finish(&mut Command::new(&program))?;
    ensure!(alone.code() == 0, "alone: {}", alone.stderr);
    for interval in INTERVALS {
        let mut command = Command::new(&program);
        preload::preload(&mut command, interval, None)?;
        let sampled = finish(&mut command)?;
        ensure!(sampled.code() == 0, "{interval}: {} {}", sampled.code(), sampled.stderr);
        ensure!(sampled.stderr == alone.stderr, "{} alone {}", sampled.stderr, alone.stderr);
    }
    Ok(())
}

#[test]
fn the_library_forwards_to_other_allocators() -> Result<()> {
    let program = build::compile("preload.c", &[])?;
    for allocator in preload::ALLOCATORS {
        // Debian's mimalloc does not report the usable size of aligned blocks.
        let case = if allocator.contains("mimalloc") { "life" } else { "calls" };
        for interval in INTERVALS {
            let mut command = Command::new(&program);
            preload::in_front(command.arg(case), interval, allocator)?;
            let sampled = finish(&mut command)?;
            let outcome = (sampled.code(), String::from_utf8_lossy(&sampled.stdout).into_owned());
            ensure!(outcome.0 == 0, "{allocator} {interval}: {outcome:?} {}", sampled.stderr);
        }
    }
    Ok(())
}
