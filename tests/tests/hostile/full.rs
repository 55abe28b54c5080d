//! Processes that fill tables. Other processes keep their stacks and names.

use super::{
    GIB, MAX_RESIDENT_BYTES, MIB, PROFILE, Place, STATUS, elf::Elf, ends, honest_is_named, named,
    resident,
};
use anyhow::{Context as _, Result, ensure};
use sampler_tests::build;
use sampler_tests::nobody::as_nobody;
use sampler_tests::{Daemon, Workload, usage, wait};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Largest resident memory of samplerd and its parser after a process has filled its share of every
/// table.
const MAX_FULL_BYTES: u64 = 512 * MIB;
/// Options that sample every allocation: nothing raises the interval.
const ALL: &[&str] = &["--interval", "1", "--ring", "64MiB"];

fn used(daemon: &Daemon, table: &str) -> Result<u64> {
    let status = daemon.status()?;
    let used = status["tables"][table]["used"].as_u64();
    used.with_context(|| format!("status has no table {table}: {status}"))
}

/// Checks that an honest process that begins now has all its stacks and names, and soon.
fn honest_is_whole(daemon: &Daemon, honest: &mut Workload) -> Result<()> {
    honest.go()?;
    let pid = honest.pid().to_string();
    daemon.profile_where("its samples", "alloc", &["--pid", &pid], |of| of.samples > 1000)?;
    let begin = Instant::now();
    let profile = daemon.profile("alloc", &["--pid", &pid])?;
    ensure!(begin.elapsed() < PROFILE, "the profile took {:?}", begin.elapsed());
    honest_is_named(&profile)?;
    let folded = profile.folded();
    for missing in ["[stack table full]", "[unknown]", "[no unwind information]"] {
        ensure!(!folded.contains(missing), "{missing}: {folded}");
    }
    let begin = Instant::now();
    daemon.status()?;
    ensure!(begin.elapsed() < STATUS, "status took {:?}", begin.elapsed());
    let resident = resident(daemon)?;
    ensure!(resident < MAX_FULL_BYTES, "{} MiB", resident / MIB);
    Ok(())
}

/// Kills a program, and waits until it is gone: no record of it comes after the next answer.
fn end(bomb: &mut Workload) -> Result<()> {
    bomb.child().signal(libc::SIGKILL)?;
    bomb.wait()?;
    Ok(())
}

/// Waits until a table has refused an entry.
fn refused(daemon: &Daemon, what: &str) -> Result<()> {
    wait::until_deadline(what, Duration::from_secs(120), || {
        let status = daemon.status()?;
        let blind_spots = status["blind"].as_array().context("blind")?;
        let says =
            blind_spots.iter().filter_map(|line| line.as_str()).any(|line| line.contains(what));
        Ok(says.then_some(()))
    })
}

#[test]
fn endless_stacks_leave_room_for_others() -> Result<()> {
    let start = |_| Workload::start("bomb.c", &["stacks"]);
    let mut bombs = (0..3).map(start).collect::<Result<Vec<_>>>()?;
    let mut honest = [Workload::start("beside.c", &[])?, Workload::start("beside.c", &[])?];
    let pids: Vec<u32> = honest.iter().chain(&bombs).map(Workload::pid).collect();
    let mut daemon = Daemon::start(&pids, ALL)?;
    bombs[0].go()?;
    refused(&daemon, "share of the stack table")?;
    honest_is_whole(&daemon, &mut honest[0])?;
    end(&mut bombs[0])?;
    // The others follow one by one. Processes that have exited make room.
    for bomb in &mut bombs[1..] {
        let before = daemon.outcome("stack_table_full")?;
        bomb.go()?;
        wait::until_deadline("another share", Duration::from_secs(120), || {
            Ok((daemon.outcome("stack_table_full")? > before + 1000).then_some(()))
        })?;
        end(bomb)?;
        let held = used(&daemon, "stacks")?;
        ensure!(held <= 3 * 256 * 1024 / 4, "{held} stacks");
    }
    ensure!(daemon.outcome("stacks_discarded")? > 0, "{}", daemon.status()?["outcomes"]);
    honest_is_whole(&daemon, &mut honest[1])?;
    ends(&mut daemon)
}

fn files(count: u32, path: &Path) -> Result<Workload> {
    let path = path.to_str().context("a path")?;
    Workload::start("bomb.c", &["files", path, &count.to_string()])
}

#[test]
fn endless_files_leave_room_for_others() -> Result<()> {
    let place = Place::new()?;
    let path = place.path("mapped");
    Elf::default().symbol("one_of_many").write(&path)?;
    for count in [5_000, 17_000] {
        let mut bomb = files(count, &path)?;
        let mut honest = Workload::start("beside.c", &[])?;
        let mut daemon = Daemon::start(&[bomb.pid(), honest.pid()], &["--interval", "4KiB"])?;
        let before = usage::descriptors(daemon.pid())?;
        bomb.go()?;
        refused(&daemon, "of one process")?;
        honest_is_whole(&daemon, &mut honest)?;
        end(&mut bomb)?;
        // A file that no stack needs is closed at once. A file of a stack is closed once the
        // stack's names are known.
        wait::until_deadline("closed files", Duration::from_secs(120), || {
            Ok((usage::descriptors(daemon.pid())? < before + 50).then_some(()))
        })?;
        ends(&mut daemon)?;
    }
    Ok(())
}

/// A sparse file may claim gigabytes of symbols, and takes seconds to search. Nobody waits.
#[test]
fn files_that_take_long_to_search_keep_nobody_waiting() -> Result<()> {
    let place = Place::new()?;
    let path = place.path("sparse");
    Elf::default().claiming_symbols(GIB).write(&path)?;
    let path = path.to_str().context("a path")?;
    for is_machine in [false, true] {
        let mut bomb = Workload::start("bomb.c", &["late-files", path, "12"])?;
        let mut honest = Workload::start("beside.c", &[])?;
        let mut daemon = match is_machine {
            true => Daemon::start(&[], &["--all", "--interval", "4KiB"])?,
            false => Daemon::start(&[bomb.pid(), honest.pid()], &["--interval", "4KiB"])?,
        };
        bomb.go()?;
        wait::until_deadline("a search", Duration::from_secs(60), || {
            let begin = Instant::now();
            let blind_spots = daemon.status()?["blind"].to_string();
            ensure!(begin.elapsed() < STATUS, "status took {:?}", begin.elapsed());
            Ok(blind_spots.contains("still being searched").then_some(()))
        })?;
        honest_is_whole(&daemon, &mut honest)?;
        ends(&mut daemon)?;
        end(&mut bomb)?;
    }
    Ok(())
}

/// The processes of a user share the user's part of the tables.
#[test]
fn a_user_of_many_processes_leaves_room_for_others() -> Result<()> {
    let place = Place::new()?;
    let [bomb, mapped] = ["bomb", "mapped"].map(|name| place.path(name));
    Elf::default().symbol("one_of_many").write(&mapped)?;
    fs::copy(build::compile("bomb.c", &[])?, &bomb).context("copy bomb.c")?;
    // More files than the table of modules has room for.
    let start = |_| {
        let mut command = as_nobody(&bomb);
        Workload::spawn("bomb.c", command.arg("files").arg(&mapped).arg("1400"))
    };
    let mut bombs = (0..12).map(start).collect::<Result<Vec<_>>>()?;
    // A program of another user, with more files than a process of that user would find room for.
    let mut honest = files(500, &mapped)?;
    let pids: Vec<u32> = bombs.iter().chain([&honest]).map(Workload::pid).collect();
    let mut daemon = Daemon::start(&pids, &["--interval", "4KiB"])?;
    bombs.iter_mut().try_for_each(Workload::go)?;
    refused(&daemon, "of one process")?;
    // Seven eighths of the user's part, which is three quarters of the table.
    let limit = 16 * 1024 * 3 / 4 * 7 / 8;
    wait::until_deadline("a full part", Duration::from_secs(60), || {
        Ok((used(&daemon, "modules")? + 100 > limit).then_some(()))
    })?;
    honest.go()?;
    let pid = honest.pid().to_string();
    let profile =
        daemon.profile_where("its samples", "alloc", &["--pid", &pid], |of| of.samples > 1000)?;
    let folded = profile.folded();
    ensure!(folded.contains("one_of_many") && !folded.contains("[unknown]"), "{folded}");
    end(&mut honest)?;
    bombs.iter_mut().try_for_each(end)?;
    ends(&mut daemon)
}

/// The names stay, though the file is closed at the end of its process.
#[test]
fn a_deleted_file_is_closed_and_keeps_its_names() -> Result<()> {
    let place = Place::new()?;
    let path = place.path("deleted");
    Elf::default().symbol("symbol_of_deleted").write(&path)?;
    let mut process = super::foreign(&path)?;
    let mut honest = Workload::start("beside.c", &[])?;
    let mut daemon = Daemon::start(&[process.pid(), honest.pid()], &["--interval", "4KiB"])?;
    process.go()?;
    honest.go()?;
    let pid = process.pid().to_string();
    let name = "symbol_of_deleted";
    daemon.profile_where("its samples", "alloc", &["--pid", &pid], |of| of.samples > 0)?;
    fs::remove_file(&path)?;
    let is_held = || {
        let open = fs::read_dir(format!("/proc/{}/fd", daemon.pid()))?;
        let mut paths = open.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        anyhow::Ok(paths.any(|of| of.to_string_lossy().contains("/deleted")))
    };
    ensure!(is_held()?, "it was to be held open");
    process.child().signal(libc::SIGKILL)?;
    wait::until_deadline("closed", Duration::from_secs(20), || Ok((!is_held()?).then_some(())))?;
    let profile = daemon.profile("alloc", &["--pid", &pid])?;
    ensure!(named(&profile, name), "{name} is missing: {}", profile.folded());
    ensure!(usage::resident_without_ring(daemon.pid())? < MAX_RESIDENT_BYTES);
    ends(&mut daemon)
}
