//! `sampler run --preload` starts a program with the library.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Finished, finish};
use sampler_tests::{Profile, again, build};
use std::fs;
use std::process::Command;

/// Runs `command` with every allocation sampled. Returns its output and its profile.
fn run(command: &[&str]) -> Result<(Finished, Profile)> {
    run_with(&["--interval", "1", "--max-samples-per-process", "unlimited"], command)
}

/// Runs `command` with these options. Returns its output and its profile.
fn run_with(options: &[&str], command: &[&str]) -> Result<(Finished, Profile)> {
    build::require_root()?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("profile");
    let mut run = Command::new(build::program("sampler")?);
    run.args(["run", "--preload"]).args(options);
    run.args(["--format", "json", "-o"]).arg(&file);
    for variable in ["SUDO_UID", "SUDO_GID", "SUDO_USER"] {
        run.env_remove(variable);
    }
    // The programs here leak on purpose. ASAN_OPTIONS of the environment must stay.
    run.env("ASAN_OPTIONS", "detect_leaks=0");
    let finished = finish(run.arg("--").args(command))?;
    let contents = fs::read(&file).with_context(|| finished.stderr.clone())?;
    Ok((finished, Profile::parse(&contents)?))
}

/// The program and its children are sampled from their first allocation on.
#[test]
fn a_tree_of_programs_is_counted_whole() -> Result<()> {
    let program = build::compile("tree.c", &[])?.display().to_string();
    let (finished, profile) = run(&[&program, "now"])?;
    ensure!(finished.code() == 0, "{}", finished.stderr);
    let said = String::from_utf8(finished.stdout)?;
    let mut truth = (0u64, 0u64);
    for line in said.lines() {
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [_, objects, bytes] = numbers[..] else { anyhow::bail!("three numbers: {line:?}") };
        truth = (truth.0 + objects, truth.1 + bytes);
    }
    let seen = &profile.totals;
    let seen = (seen.alloc_objects.value, seen.alloc_space.value);
    ensure!(truth.1 > 0 && seen == (truth.0 as f64, truth.1 as f64), "{seen:?} is not {truth:?}");
    Ok(())
}

/// AddressSanitizer ends programs in which a library is loaded before it, unless an option disables
/// that check.
#[test]
fn a_program_under_address_sanitizer_is_sampled() -> Result<()> {
    let sanitized = &["-fsanitize=address"];
    let program = build::compile("tree.c", sanitized)?.display().to_string();
    let (finished, profile) = run(&[&program, "leaf", "10"])?;
    ensure!(finished.code() == 0 && !finished.stdout.is_empty(), "{}", finished.stderr);
    ensure!(profile.samples >= 10, "{} samples: {}", profile.samples, finished.stderr);
    Ok(())
}

/// A program that cannot load the library runs as usual, and the profile has a note about it.
#[test]
fn a_static_program_runs_unsampled_with_a_note() -> Result<()> {
    let program = build::compile("tree.c", &["-static"])?.display().to_string();
    let (finished, profile) = run(&[&program, "leaf", "10"])?;
    ensure!(finished.code() == 0 && !finished.stdout.is_empty(), "{}", finished.stderr);
    ensure!(profile.samples == 0, "{}", profile.folded());
    let notes = profile.json["notes"].to_string();
    let words = ["nothing has come from a library", "does not sample by itself"];
    ensure!(words.iter().any(|words| notes.contains(words)), "{notes}");
    Ok(())
}

/// A limit holds for a program that runs for less than a second, too. samplerd finds the sampling
/// process by its first sample.
#[test]
fn a_short_program_keeps_the_limit() -> Result<()> {
    again::until("a limit that arrives in time", 5, keeps_the_limit)
}

fn keeps_the_limit() -> Result<Result<(), String>> {
    // The program runs for a fifth of a second. Without the limit more than half of the blocks
    // would be sampled, up to the number of samples that samplerd accepts from a process that
    // samples itself.
    const BLOCKS: u64 = 17_000;
    const BYTES: u64 = 100_000;
    let program = format!("for _ in range({BLOCKS}): bytearray({BYTES})");
    let options = ["--interval", "128KiB", "--max-samples-per-process", "200"];
    let options = [&options[..], &["--confidence", "0.999999999"]].concat();
    let (finished, profile) = run_with(&options, &["python3", "-c", &program])?;
    ensure!(finished.code() == 0, "{}", finished.stderr);
    let of = profile.totals.alloc_space;
    // The interpreter itself allocates some megabytes.
    let [least, most] = [1.0, 1.1].map(|times| times * (BLOCKS * BYTES) as f64);
    println!("{} samples, {:.0} to {:.0}", profile.samples, of.low, of.high);
    ensure!(of.low <= most && least <= of.high, "{of:?}");
    Ok(match profile.samples < BLOCKS / 3 {
        true => Ok(()),
        false => Err(format!("{} samples of {BLOCKS}", profile.samples)),
    })
}
