//! A real daemon on a real program.

use super::{is_interval_of, later_windows};
use anyhow::{Context as _, Result, ensure};
use sampler_tests::fleet::{ENGINES, Row, ask, number, python, script, text, whole};
use sampler_tests::{Daemon, Profile, Workload};
use std::fs;
use std::path::Path;

/// Sums of the tables without any estimate.
const SUMS: &str = "select 'alloc' as kind, cast(sum(samples) as bigint) as samples, cast(sum(bytes) as bigint) as bytes,
    cast(sum(bytes_own) as bigint) as own, sum(objects) as objects, count(*) as rows_ from alloc";

/// Starts a daemon that exports to a folder every second.
fn exporting(pid: u32, interval: &str, folder: &Path) -> Result<Daemon> {
    let folder = format!("parquet:{}", folder.display());
    let arguments = ["--interval", interval, "--export", &folder, "--export-every", "1s"];
    Daemon::start(&[pid], &[&arguments[..], &["--export-label", "env=test"]].concat())
}

/// The function's row of an answer.
fn of<'a>(rows: &'a [Row], function: &str) -> Result<&'a Row> {
    let row = rows.iter().find(|row| row["function"] == function);
    row.with_context(|| format!("no {function} in {rows:?}"))
}

/// Returns the sums of the tables.
fn sums(python: &Path, folder: &Path, engine: &str) -> Result<Row> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("sums.sql");
    fs::write(&file, SUMS)?;
    let file = file.display().to_string();
    Ok(ask(python, folder, engine, &[&file])?.remove(0).remove(0))
}

/// Checks the tables of an idle program against its profile.
fn agree(python: &Path, folder: &Path, engine: &str, profile: &Profile) -> Result<()> {
    let moments = &profile.totals.alloc_space.moments;
    let sums = sums(python, folder, engine)?;
    ensure!(whole(&sums, "samples")? as u64 == moments.samples, "{sums:?} {moments:?}");
    ensure!(whole(&sums, "own")? as f64 == moments.own, "{sums:?} {moments:?}");
    // Each row is rounded once.
    let rounded = (whole(&sums, "bytes")? as f64 - moments.sum).abs();
    ensure!(rounded <= 0.5 * number(&sums, "rows_")?, "{sums:?} {moments:?}");
    let rows = ask(python, folder, engine, &["by_function", "by_service"])?;
    let row = of(&rows[0], "ticking")?;
    let moments = profile.row("ticking").alloc_space;
    ensure!(whole(row, "samples")? as u64 == moments.samples, "{row:?} {moments:?}");
    is_interval_of(row, &moments)?;
    let row = &rows[1][0];
    ensure!(whole(row, "counted")? as u64 == profile.exact_space, "{row:?}");
    is_interval_of(row, &profile.totals.alloc_space.moments)
}

#[test]
fn the_tables_have_the_moments_of_the_profile() -> Result<()> {
    let Some(python) = python()? else { return Ok(()) };
    for interval in ["1", "512"] {
        let directory = tempfile::tempdir()?;
        let mut workload = Workload::edge(&["ticks"])?;
        let daemon = exporting(workload.pid(), interval, directory.path())?;
        workload.go()?;
        workload.truth()?;
        daemon.profile_where("some samples", "alloc", &[], |profile| profile.samples > 300)?;
        workload.stop()?;
        let profile = daemon.profile("alloc", &[])?;
        later_windows(&daemon, 2)?;
        for engine in ENGINES {
            agree(&python, directory.path(), engine, &profile).context(engine)?;
        }
        if interval == "1" {
            let rows = ask(&python, directory.path(), "duckdb", &["by_function"])?.remove(0);
            let bytes = profile.row("ticking").alloc_space.sum;
            ensure!(number(of(&rows, "ticking")?, "allocated")? == bytes, "{rows:?}");
        }
        let folded = script(&python, directory.path(), &["folded"])?;
        ensure!(folded.contains(";ticking"), "{folded}");
        let table = script(&python, directory.path(), &["by_function"])?;
        ensure!(table.contains("ticking") && table.contains("KiB"), "{table}");
        daemon.stop()?;
    }
    Ok(())
}

#[test]
fn the_growth_of_held_memory_is_in_the_tables() -> Result<()> {
    let Some(python) = python()? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    let mut workload = Workload::start("windows.c", &[])?;
    let daemon = exporting(workload.pid(), "1", directory.path())?;
    workload.go()?;
    let early = workload.truth()?.function("first")?.live.bytes;
    later_windows(&daemon, 2)?;
    workload.go()?;
    let truth = workload.truth()?;
    let [first, second] = ["first", "second"].map(|of| truth.function(of).map(|of| of.live.bytes));
    let (first, second) = (first? as f64, second? as f64);
    later_windows(&daemon, 2)?;
    for engine in ENGINES {
        let rows = ask(&python, directory.path(), engine, &["growth"])?.remove(0);
        let row = of(&rows, "second")?;
        ensure!(number(row, "growth")? == second && number(row, "low")? == second, "{row:?}");
        let row = of(&rows, "first")?;
        ensure!(number(row, "held_last")? == first, "{engine}: {row:?} {early} {first}");
        ensure!(text(row, "service")?.starts_with("windows"), "{row:?}");
    }
    daemon.stop()
}
