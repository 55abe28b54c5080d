//! `samplerd --export-names server` and `sampler symbolize`: names come off the host.

use super::place::{Mounted, ticking};
use anyhow::{Context as _, Result, ensure};
use sampler_tests::daemon::sampler;
use sampler_tests::fleet::{Row, ask, python, text};
use sampler_tests::{Daemon, wait};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Exports two windows of a process.
fn export(pid: u32, folder: &Path, names: &[&str]) -> Result<()> {
    let place = format!("parquet:{}", folder.display());
    let arguments = ["--interval", "1", "--export", &place, "--export-every", "1s"];
    let daemon = Daemon::start(&[pid], &[&arguments, names].concat())?;
    wait::until("two windows", || {
        let sent = daemon.status()?["exports"][0]["sent"].as_u64();
        Ok((sent > Some(1)).then_some(()))
    })?;
    daemon.stop()
}

/// Adds names to a folder.
fn symbolize(folder: &Path) -> Result<Value> {
    let place = format!("parquet:{}", folder.display());
    let answer = sampler(&["symbolize", "--json", &place])?.success("sampler symbolize")?;
    Ok(serde_json::from_slice(&answer.stdout)?)
}

/// The functions in an answer.
fn functions(rows: &[Row]) -> Result<BTreeSet<String>> {
    rows.iter().map(|row| Ok(text(row, "function")?.to_owned())).collect()
}

/// The files of a table, of all days.
fn files(folder: &Path, table: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for day in fs::read_dir(folder.join(table))? {
        for file in fs::read_dir(day?.path())? {
            files.push(file?.path());
        }
    }
    Ok(files)
}

#[test]
fn names_off_the_host_are_those_of_the_host() -> Result<()> {
    let Some(python) = python()? else { return Ok(()) };
    let workload = ticking()?;
    let of = |folder: &Path| -> Result<BTreeSet<String>> {
        functions(&ask(&python, folder, "duckdb", &["by_function"])?.remove(0))
    };
    let with_names = tempfile::tempdir()?;
    export(workload.pid(), with_names.path(), &[])?;
    let expected = of(with_names.path())?;
    ensure!(["ticking", "main", "malloc"].iter().all(|name| expected.contains(*name)));
    let directory = tempfile::tempdir()?;
    let folder = directory.path();
    export(workload.pid(), folder, &["--export-names", "server"])?;
    let before = of(folder)?;
    ensure!(!before.contains("ticking") && !before.contains("main"), "{before:?}");
    // No stack is lost meanwhile.
    ensure!(before.iter().any(|name| name.starts_with("edges") && name.contains("+0x")));
    let outcome = symbolize(folder)?;
    // One file a day, and two around midnight.
    let written = outcome["written_files"].as_u64();
    ensure!(outcome["named"].as_u64() > Some(1) && matches!(written, Some(1 | 2)), "{outcome}");
    ensure!(outcome["not_found"] == Value::Array(Vec::new()), "{outcome}");
    let found = of(folder)?;
    ensure!(found == expected, "{found:?} {expected:?} {outcome}");
    // A second time there is nothing to do.
    let written = files(folder, "symbols")?;
    let outcome = symbolize(folder)?;
    ensure!(outcome["named"] == 0 && outcome["written_files"] == 0, "{outcome}");
    ensure!(files(folder, "symbols")? == written);
    // The names go with their frames.
    for file in files(folder, "frames")? {
        fs::remove_file(file)?;
    }
    let outcome = symbolize(folder)?;
    ensure!(outcome["frames"] == 0 && outcome["removed_files"] == 1, "{outcome}");
    Ok(())
}

/// Checks that a folder is refused in one line.
fn is_refused(folder: &Path, says: &str) -> Result<()> {
    let place = format!("parquet:{}", folder.display());
    let finished = sampler(&["symbolize", &place])?;
    let said = &finished.stderr;
    ensure!(finished.code() == 1 && said.lines().count() == 1, "{said}");
    ensure!(said.contains(&place) && said.contains(says), "{said}");
    ensure!(finished.stdout.is_empty());
    Ok(())
}

#[test]
fn folders_that_cannot_get_names_are_refused() -> Result<()> {
    ensure!(sampler(&["symbolize", "/tmp"])?.code() == 2);
    let directory = tempfile::tempdir()?;
    is_refused(&directory.path().join("missing"), "No such file")?;
    is_refused(directory.path(), "no table \"frames\"")?;
    let disk = Mounted::new(directory.path(), "size=16m")?;
    let workload = ticking()?;
    export(workload.pid(), directory.path(), &["--export-names", "server"])?;
    disk.remount("ro")?;
    is_refused(directory.path(), "Read-only file system")?;
    disk.remount("rw")?;
    let file = files(directory.path(), "frames")?.pop().context("no frames")?;
    let whole = fs::read(&file)?;
    let name = file.file_name().and_then(|name| name.to_str()).context("a name")?;
    let version = b"sampler.schema\x18\x011";
    let at = whole.windows(version.len()).position(|bytes| bytes == version);
    let at = at.context("no version")? + version.len() - 1;
    let mut other = whole.clone();
    other[at] = b'2';
    fs::write(&file, &other)?;
    is_refused(directory.path(), "schema \"2\"")?;
    for damaged in [&whole[..whole.len() / 2], b"", b"no Parquet"] {
        fs::write(&file, damaged)?;
        is_refused(directory.path(), name)?;
    }
    fs::remove_file(&file)?;
    fs::create_dir(&file)?;
    is_refused(directory.path(), "no regular file")?;
    fs::remove_dir(&file)?;
    fs::write(&file, whole)?;
    ensure!(symbolize(directory.path())?["named"].as_u64() > Some(1));
    Ok(())
}
