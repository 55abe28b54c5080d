//! Allocators that stand in front of the library, in the program itself or preloaded before it: what they have no function for comes to us,
//! and goes back to them.

use anyhow::{Result, ensure};
use sampler_tests::child::finish;
use sampler_tests::{build, preload};
use std::process::Command;

/// Mean bytes between samples, or everything.
const INTERVALS: [u64; 2] = [1, 512 << 10];

/// A program that aborts on a block that is not of its own.
#[test]
fn a_program_with_an_allocator_of_its_own() -> Result<()> {
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
fn behind_other_allocators() -> Result<()> {
    let program = build::compile("preload.c", &[])?;
    for allocator in preload::ALLOCATORS {
        // Debian's mimalloc does not say of aligned blocks how large they are.
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
