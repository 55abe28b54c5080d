//! Folders that cannot be written to, that are full, or that are not what they seem to be.

use anyhow::{Context as _, Result, ensure};
use sampler_common::units::utc_micros;
use sampler_tests::child::finish;
use sampler_tests::{Daemon, Workload, build, wait};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) fn ticking() -> Result<Workload> {
    let mut workload = Workload::edge(&["ticks"])?;
    workload.go()?;
    workload.truth()?;
    Ok(workload)
}

fn exporting(pid: u32, folder: &Path) -> Result<Daemon> {
    let folder = format!("parquet:{}", folder.display());
    Daemon::start(&[pid], &["--interval", "1", "--export", &folder, "--export-every", "1s"])
}

/// Waits until `holds` is true of the folder's counters. No window has vanished from them.
fn counts(daemon: &Daemon, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
    wait::until(what, || {
        let counts = daemon.status()?["exports"][0].clone();
        let of = |key: &str| counts[key].as_u64().with_context(|| format!("{key} in {counts}"));
        ensure!(of("made")? == of("sent")? + of("refused")? + of("dropped")? + of("waiting")?);
        Ok(Some(counts).filter(|counts| holds(counts)))
    })
}

/// All files below a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => found.push(path),
        }
    }
    Ok(found)
}

#[test]
fn a_folder_that_cannot_be_written_to_is_refused() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("file");
    fs::write(&file, "")?;
    let missing = directory.path().join("missing");
    for (place, code) in [(&*file, 1), (&missing, 1), (Path::new("/proc"), 1), (Path::new(""), 2)] {
        let place = format!("parquet:{}", place.display());
        let pid = std::process::id().to_string();
        let mut command = Command::new(build::program("samplerd")?);
        let finished = finish(command.args(["--pid", &pid, "--export", &place]))?;
        let said = &finished.stderr;
        ensure!(finished.code() == code && said.contains(&place), "{place}: {said}");
        ensure!(code == 2 || said.lines().count() == 1, "{said}");
    }
    Ok(())
}

#[test]
fn files_are_for_the_folders_owner_and_group() -> Result<()> {
    let directory = tempfile::tempdir()?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
    let workload = ticking()?;
    let daemon = exporting(workload.pid(), directory.path())?;
    counts(&daemon, "two windows", |of| of["sent"].as_u64() > Some(1))?;
    daemon.stop()?;
    let files = files(directory.path())?;
    for table in ["alloc", "live", "coverage", "stacks", "frames", "symbols", "mappings"] {
        let of = files.iter().filter(|file| file.starts_with(directory.path().join(table)));
        ensure!(of.count() > 0, "no {table} in {files:?}");
    }
    for file in &files {
        let mode = |path: &Path| -> Result<u32> { Ok(fs::metadata(path)?.permissions().mode()) };
        ensure!(mode(file)? & 0o7777 == 0o640, "{}", file.display());
        let folder = file.parent().context("a folder")?;
        ensure!(mode(folder)? & 0o7777 == 0o750, "{}", folder.display());
        ensure!(file.extension().is_some_and(|of| of == "parquet"), "{}", file.display());
    }
    Ok(())
}

#[test]
fn a_running_daemon_removes_its_oldest_windows() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let host = fs::read_to_string("/proc/sys/kernel/hostname")?.trim().to_owned();
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    // The file of a window that began two days and so many minutes ago.
    let file = |host: &str, minutes: u64| -> Result<PathBuf> {
        let ago = Duration::from_secs(2 * 24 * 3600 + 60 * minutes);
        let stamp = utc_micros(now.saturating_sub(ago).as_nanos() as u64);
        let (day, hour) = (&stamp[..10], &stamp[11..13]);
        let folder = directory.path().join(format!("alloc/dt={day}/hour={hour}"));
        fs::create_dir_all(&folder)?;
        let digits: String = stamp.chars().filter(|c| !"-:".contains(*c)).collect();
        let path = folder.join(format!("{host}-{digits}.parquet"));
        fs::write(&path, vec![0; 300 << 10])?;
        Ok(path)
    };
    // Four windows of this host and one of another, each more than a quarter of the bound.
    let own = [4, 3, 2, 1].map(|minutes| file(&host, minutes));
    let own = own.into_iter().collect::<Result<Vec<PathBuf>>>()?;
    let other = file("other.host", 5)?;
    let workload = ticking()?;
    let place = format!("parquet:{}", directory.path().display());
    let arguments = ["--interval", "1", "--export", &place, "--export-every", "1s"];
    let started =
        |bounds: [&str; 2]| Daemon::start(&[workload.pid()], &[&arguments[..], &bounds].concat());
    let daemon = started(["--export-keep-bytes", "1MiB"])?;
    let counts = counts(&daemon, "a removal", |of| of["removed_files"].as_u64() > Some(0))?;
    ensure!(counts["removed_files"] == 1 && counts["removed_bytes"] == 300 << 10, "{counts}");
    ensure!(counts["kept_bytes"].as_u64().is_some_and(|kept| kept <= 1 << 20), "{counts}");
    let there: Vec<bool> = own.iter().chain([&other]).map(|path| path.exists()).collect();
    ensure!(there == [false, true, true, true, true], "{there:?}");
    let text = String::from_utf8(daemon.sampler(&["status"])?.success("status")?.stdout)?;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(text.contains("1 old files removed"), "{text}");
    daemon.stop()?;
    // A window that is older than the bound goes, whatever its size.
    let daemon = started(["--export-keep-time", "1h"])?;
    let counts = self::counts(&daemon, "old windows", |of| of["removed_files"].as_u64() > Some(2))?;
    ensure!(counts["removed_files"] == 3, "{counts}");
    ensure!(own.iter().all(|path| !path.exists()) && other.exists(), "{counts}");
    daemon.stop()
}

/// A file system in memory; unmounted when dropped.
pub(super) struct Mounted(PathBuf);

impl Mounted {
    pub(super) fn new(path: &Path, options: &str) -> Result<Mounted> {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "none"]).arg(path);
        finish(&mut command)?.success("mount")?;
        Ok(Mounted(path.to_owned()))
    }

    pub(super) fn remount(&self, options: &str) -> Result<()> {
        let mut command = Command::new("mount");
        command.args(["-o", &format!("remount,{options}")]).arg(&self.0);
        finish(&mut command)?.success("mount")?;
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_holds_up_nothing_and_loses_nothing() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let disk = Mounted::new(directory.path(), "size=64k")?;
    let workload = ticking()?;
    let daemon = exporting(workload.pid(), directory.path())?;
    let full = counts(&daemon, "a full disk", |of| of["retried"].as_u64() > Some(1))?;
    ensure!(full["last_error"].to_string().contains("No space left"), "{full}");
    let samples = daemon.profile("alloc", &[])?.samples;
    daemon.profile_where("more samples", "alloc", &[], |profile| profile.samples > samples)?;
    // Between two attempts no unfinished file is there.
    let unfinished = |file: &PathBuf| {
        file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
    };
    wait::until("no unfinished file", || {
        Ok((!files(directory.path())?.iter().any(unfinished)).then_some(()))
    })?;
    disk.remount("size=64m")?;
    let counts = counts(&daemon, "an empty queue", |of| of["waiting"] == 0)?;
    ensure!(counts["dropped"] == 0 && counts["missed_ns"] == 0, "{counts}");
    daemon.stop()
}

#[test]
fn a_link_in_the_folder_is_not_followed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let outside = tempfile::tempdir()?;
    symlink(outside.path(), directory.path().join("coverage"))?;
    let workload = ticking()?;
    let daemon = exporting(workload.pid(), directory.path())?;
    let counts = counts(&daemon, "a failure", |of| of["retried"].as_u64() > Some(0))?;
    ensure!(
        counts["sent"] == 0 && counts["last_error"].to_string().contains("coverage"),
        "{counts}"
    );
    ensure!(fs::read_dir(outside.path())?.count() == 0, "a link was followed");
    daemon.stop()
}
