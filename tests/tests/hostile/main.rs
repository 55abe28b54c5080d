//! Files that were made to harm their readers. samplerd, and all other processes, work as before.

mod elf;
mod full;
mod privileges;

use anyhow::{Context as _, Result, ensure};
use elf::Elf;
use sampler_tests::{Daemon, Profile, Workload, usage};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Longest time until an honest process's profile.
const PROFILE: Duration = Duration::from_secs(2);
/// Longest time of an answer that needs no names.
const STATUS: Duration = Duration::from_secs(1);
/// Longest time from SIGTERM to the end.
const END: Duration = Duration::from_secs(2);
/// Largest resident memory of samplerd and its parser, without the ring.
const MAX_RESIDENT_BYTES: u64 = 256 * MIB;

/// A directory that anybody may read, and a file in it.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Result<Place> {
        let directory = tempfile::tempdir()?;
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
        Ok(Place { directory })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// A process that allocates from code in `file`.
fn foreign(file: &Path) -> Result<Workload> {
    let file = file.to_str().context("a path")?;
    Workload::start("foreign.c", &[file])
}

/// The child process of samplerd that reads names, if it runs.
fn parser(daemon: &Daemon) -> Result<Option<u32>> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid()))?;
    for task in tasks.flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for pid in children.split_whitespace() {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if name.trim() == "samplerd-parser" {
                return Ok(Some(pid.parse()?));
            }
        }
    }
    Ok(None)
}

fn resident(daemon: &Daemon) -> Result<u64> {
    let own = usage::resident_without_ring(daemon.pid())?;
    // The parser may end meanwhile.
    let parser = parser(daemon)?.and_then(|pid| usage::resident(pid).ok());
    Ok(own + parser.map_or(0, |(all, _)| all))
}

/// Checks that the frames of `beside.c` have their names, those in libc too.
fn honest_is_named(profile: &Profile) -> Result<()> {
    for name in ["honest_inner", "honest_outer", "main", "__libc_start_main_impl"] {
        ensure!(named(profile, name), "{name} is missing: {}", profile.folded());
    }
    Ok(())
}

/// Profiles a hostile process and an honest one. `during` runs while frames are symbolized.
fn survives(file: &Path, during: impl FnOnce(&Daemon) -> Result<()>) -> Result<Daemon> {
    let (mut hostile, mut honest) = (foreign(file)?, Workload::start("beside.c", &[])?);
    let daemon = Daemon::start(&[hostile.pid(), honest.pid()], &["--interval", "4KiB"])?;
    hostile.go()?;
    honest.go()?;
    daemon.profile_where(
        "samples of both",
        "alloc",
        &["--pid", &hostile.pid().to_string()],
        |of| of.samples > 0,
    )?;
    during(&daemon)?;
    for _ in 0..2 {
        // The profile has both processes, so that a sample is in the hostile file.
        let begin = Instant::now();
        let profile = daemon.profile("alloc", &[])?;
        let took = begin.elapsed();
        ensure!(took < PROFILE, "the profile took {took:?}");
        honest_is_named(&profile).with_context(|| daemon.log())?;
        let begin = Instant::now();
        daemon.status()?;
        ensure!(begin.elapsed() < STATUS, "status took {:?}", begin.elapsed());
        let resident = resident(&daemon)?;
        ensure!(resident < MAX_RESIDENT_BYTES, "{} MiB", resident / MIB);
    }
    Ok(daemon)
}

fn ends(daemon: &mut Daemon) -> Result<()> {
    let begin = Instant::now();
    daemon.child().signal(libc::SIGTERM)?;
    let status = daemon.child().wait()?;
    ensure!(status.success() && begin.elapsed() < END, "{status}, after {:?}", begin.elapsed());
    Ok(())
}

/// A file with debug information: this depth of inlined functions, and this many rows of lines.
fn debug(depth: usize, rows: usize) -> Elf {
    let (abbreviations, info) = elf::inlined(depth);
    let elf = Elf::default().section(".debug_abbrev", abbreviations).section(".debug_info", info);
    elf.section(".debug_line", elf::lines(rows)).symbol("hostile_symbol")
}

/// Profiles a process with one hostile file.
fn survives_file(elf: Elf) -> Result<Daemon> {
    let place = Place::new()?;
    let path = place.path("hostile");
    elf.write(&path)?;
    survives(&path, |_| Ok(()))
}

fn named(profile: &Profile, function: &str) -> bool {
    profile.stacks_of(function).next().is_some()
}

fn status_says(daemon: &Daemon, line_part: &str) -> Result<()> {
    let status = daemon.status()?;
    let blind_spots = status["blind"].as_array().context("blind")?;
    let is_there =
        blind_spots.iter().any(|line| line.as_str().is_some_and(|line| line.contains(line_part)));
    ensure!(is_there, "{line_part:?} is not in {blind_spots:?}");
    Ok(())
}

#[test]
fn notes_and_unwind_tables_of_any_size_are_survived() -> Result<()> {
    ends(&mut survives_file(Elf::default().notes(6 * GIB))?)?;
    ends(&mut survives_file(Elf::default().claiming(".eh_frame", 6 * GIB))?)?;
    ends(&mut survives_file(Elf::default().claiming(".eh_frame", 100 * MIB))?)?;
    let many = (0..40).fold(Elf::default(), |elf, _| elf.claiming(".eh_frame", 31 * MIB));
    ends(&mut survives_file(many)?)
}

/// The table would take 4 GiB, all zeros. The memory is that of the whole run, not of its end.
#[test]
fn endless_program_headers_take_no_memory() -> Result<()> {
    let count = (4 * GIB / 56) as u32;
    let mut daemon = survives_file(Elf::default().symbol("own").programs(count))?;
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid()))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse()?;
    ensure!(peak_kib < GIB >> 10, "{peak_kib} KiB were resident");
    ends(&mut daemon)
}

#[test]
fn compressed_sections_beyond_the_limit_are_refused() -> Result<()> {
    let (abbreviations, _) = elf::inlined(0);
    for bits in [48, 63] {
        let elf = Elf::default().section(".debug_abbrev", abbreviations.clone());
        let elf = elf.compressed(".debug_info", 1 << bits, &elf::packed_zeros(1 << 20)?);
        ends(&mut survives_file(elf)?)?;
    }
    let size = 600 * MIB as usize;
    let bomb = Elf::default().section(".debug_abbrev", abbreviations);
    let bomb = bomb.compressed(".debug_info", size as u64, &elf::packed_zeros(size)?);
    let mut daemon = survives_file(bomb)?;
    status_says(&daemon, "debug information cannot be read")?;
    ends(&mut daemon)
}

#[test]
fn zstd_sections_beyond_the_limit_are_refused() -> Result<()> {
    let (abbreviations, _) = elf::inlined(0);
    let bomb = Elf::default().section(".debug_abbrev", abbreviations);
    let mut daemon = survives_file(bomb.zstd_zeros(".debug_info", 600 * MIB).symbol("own_symbol"))?;
    status_says(&daemon, "debug information cannot be read")?;
    ensure!(named(&daemon.profile("alloc", &[])?, "own_symbol"), "its own symbol is gone");
    ends(&mut daemon)
}

/// Two GiB of zeros, which xz compresses to some 300 KiB.
#[test]
fn a_compressed_symbol_table_beyond_the_limit_is_refused() -> Result<()> {
    let packed = Command::new("sh").args(["-ec", "head -c 2G /dev/zero | xz -0"]).output()?;
    ensure!(packed.status.success(), "xz: {packed:?}");
    let bomb = Elf::default().section(".gnu_debugdata", packed.stdout);
    let mut daemon = survives_file(bomb)?;
    status_says(&daemon, "cannot be read in the memory and time")?;
    ends(&mut daemon)
}

#[test]
fn too_deeply_inlined_functions_end_the_parser_only() -> Result<()> {
    let mut daemon = survives_file(debug(50_000, 64))?;
    status_says(&daemon, "ended the process that reads names")?;
    ends(&mut daemon)
}

#[test]
fn endless_line_tables_are_refused() -> Result<()> {
    let mut daemon = survives_file(debug(1, 50_000_000))?;
    status_says(&daemon, "debug information cannot be read")?;
    ends(&mut daemon)
}

#[test]
fn a_name_that_demangles_to_100_gigabytes_is_survived() -> Result<()> {
    ends(&mut survives_file(Elf::default().symbol(&elf::doubling(36)))?)
}

/// A reader would block on a FIFO as a debug file. The other targets are files that root must not
/// open.
#[test]
fn a_debug_link_to_a_foreign_file_is_not_followed() -> Result<()> {
    let place = Place::new()?;
    let (fifo, path) = (place.path("fifo"), place.path("hostile"));
    ensure!(Command::new("mkfifo").arg(&fifo).status()?.success(), "mkfifo");
    for linked in [fifo.to_str().context("a path")?, "/root/../etc/shadow", "fifo"] {
        let mut link = linked.as_bytes().to_vec();
        link.resize((link.len() + 1).next_multiple_of(4), 0);
        link.extend([1, 2, 3, 4]);
        Elf::default().symbol("linked").section(".gnu_debuglink", link).write(&path)?;
        let mut daemon = survives(&path, |_| Ok(()))?;
        let profile = daemon.profile("alloc", &[])?;
        ensure!(named(&profile, "linked"), "its own symbol is gone");
        ends(&mut daemon)?;
    }
    Ok(())
}

#[test]
fn a_file_that_shrinks_while_mapped_is_survived() -> Result<()> {
    let place = Place::new()?;
    let path = place.path("hostile");
    debug(1, 64).claiming(".debug_str", 64 * MIB).write(&path)?;
    let shrink = |_: &Daemon| Ok(fs::File::options().write(true).open(&path)?.set_len(0x1800)?);
    ends(&mut survives(&path, shrink)?)
}

/// Two files that claim the same build id.
#[test]
fn a_build_id_gives_no_names() -> Result<()> {
    let place = Place::new()?;
    let paths = [place.path("first"), place.path("second")];
    for (path, name) in paths.iter().zip(["name_of_first", "name_of_second"]) {
        Elf::default().build_id([7; 20]).symbol(name).write(path)?;
    }
    let (mut first, mut second) = (foreign(&paths[0])?, foreign(&paths[1])?);
    let daemon = Daemon::start(&[first.pid(), second.pid()], &["--interval", "4KiB"])?;
    first.go()?;
    second.go()?;
    for (process, own, other) in
        [(&first, "name_of_first", "name_of_second"), (&second, "name_of_second", "name_of_first")]
    {
        let pid = process.pid().to_string();
        let profile =
            daemon.profile_where("its samples", "alloc", &["--pid", &pid], |of| of.samples > 0)?;
        ensure!(named(&profile, own) && !named(&profile, other), "{own}: {}", daemon.log());
    }
    Ok(())
}
