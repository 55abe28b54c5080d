//! Every function of the malloc family is sampled once for each call, whatever functions the
//! allocator calls internally. The library counts the samples itself, without a listener.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::finish;
use sampler_tests::{build, preload};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Functions of `counted.c`, and forms of `constructed.cpp`.
const FUNCTIONS: usize = 8;
/// Bytes of each request.
const SIZE: f64 = 64.0;
/// Mean bytes between samples.
const INTERVAL: u64 = 4096;

/// Name and samples of each function, as `program` prints them with these files preloaded.
fn samples(
    program: &[&Path],
    files: &[PathBuf],
    interval: u64,
    calls: u64,
) -> Result<Vec<(String, u64)>> {
    let (program, more) = program.split_first().context("a program")?;
    let mut command = Command::new(program);
    preload::load(command.arg(calls.to_string()).args(more), interval, files);
    let finished = finish(&mut command)?;
    ensure!(finished.code() == 0, "{files:?}: {} {}", finished.code(), finished.stderr);
    let said = String::from_utf8(finished.stdout)?;
    let of = |line: &str| -> Result<(String, u64)> {
        let (name, samples) = line.split_once(' ').context("a name and a number")?;
        Ok((name.to_owned(), samples.parse()?))
    };
    said.lines().map(|line| of(line).with_context(|| line.to_owned())).collect()
}

/// Checks the number of samples. With everything sampled it is the number of calls. At [`INTERVAL`]
/// it is the expected number, within six standard deviations.
fn judge(program: &[&Path], files: &[PathBuf]) -> Result<()> {
    let all = samples(program, files, 1, 1000)?;
    ensure!(all.len() == FUNCTIONS, "{files:?}: {all:?}");
    ensure!(all.iter().all(|(_, samples)| *samples == 1000), "{files:?}: {all:?}");
    let calls = 200_000;
    let chance = 1.0 - (1.0 - 1.0 / INTERVAL as f64).powf(SIZE);
    let (mean, deviation) =
        (calls as f64 * chance, (calls as f64 * chance * (1.0 - chance)).sqrt());
    let some = samples(program, files, INTERVAL, calls)?;
    let is_near = |samples: u64| (samples as f64 - mean).abs() < 6.0 * deviation;
    ensure!(some.iter().all(|(_, samples)| is_near(*samples)), "{files:?}: {some:?}, not {mean}");
    Ok(())
}

#[test]
fn each_function_is_counted_in_front_of_each_allocator() -> Result<()> {
    let program = build::compile("counted.c", &[])?;
    judge(&[&program], &[preload::library()?])?;
    for allocator in preload::ALLOCATORS {
        judge(&[&program], &[preload::library()?, preload::debian(allocator)?])?;
    }
    Ok(())
}

/// The allocators' functions call each other by names that the library replaces. In one allocator
/// all others call `malloc`; in the other, `malloc` and `free` call others.
#[test]
fn functions_are_counted_once_if_allocators_call_themselves() -> Result<()> {
    for source in ["nested.c", "turned.c"] {
        let allocator = build::compile(source, &["-shared", "-fPIC"])?;
        judge(&[&build::compile("counted.c", &[])?], &[preload::library()?, allocator])?;
    }
    Ok(())
}

/// The functions of musl are counted, too.
#[test]
fn functions_are_counted_in_a_musl_program() -> Result<()> {
    judge(&[&build::compile("counted.c", &[build::MUSL])?], &[preload::library()?])
}

/// Of two copies of the library the second samples, and the first forwards calls to it.
#[test]
fn one_of_two_library_copies_samples() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let files = [preload::copy(directory.path())?, preload::library()?];
    judge(&[&build::compile("counted.c", &[])?, &files[0], &files[1]], &files)
}

/// Every form of `operator new`, of operators that call `malloc` and of operators that do not.
/// Exceptions pass through.
#[test]
fn each_operator_new_is_counted() -> Result<()> {
    let program = build::compile("constructed.cpp", &[])?;
    let throwing = [&*program, Path::new("throws")];
    judge(&throwing, &[preload::library()?])?;
    let inlined = build::compile("inlined.cpp", &["-shared", "-fPIC"])?;
    judge(&throwing, &[preload::library()?, inlined])?;
    for allocator in preload::ALLOCATORS.iter().chain(&["libtbbmalloc_proxy.so.2"]) {
        // Debian's mimalloc is compiled as C, and ends the program.
        let throws = !allocator.contains("mimalloc");
        let program = if throws { &throwing[..] } else { &throwing[..1] };
        judge(program, &[preload::library()?, preload::debian(allocator)?])?;
    }
    Ok(())
}

/// The operators are loaded while the program runs. No `operator new` exists at its start.
#[test]
fn later_loaded_operators_are_called() -> Result<()> {
    let program = build::compile("preload.c", &[])?;
    let later = build::compile("later.cpp", &["-shared", "-fPIC"])?;
    let mut command = Command::new(&program);
    let alone = finish(command.arg("dlopen").arg(&later))?;
    ensure!(alone.code() == 0, "alone: {}", alone.stderr);
    for interval in [1, INTERVAL] {
        let mut command = Command::new(&program);
        preload::load(command.arg("dlopen").arg(&later), interval, &[preload::library()?]);
        let sampled = finish(&mut command)?;
        ensure!(sampled.code() == 0, "{interval}: {} {}", sampled.code(), sampled.stderr);
        ensure!(sampled.stdout == alone.stdout, "{interval}");
    }
    Ok(())
}
