//! A build machine in fast motion: each program exists once, as a new file with a build id of its
//! own, allocates, and is removed. What samplerd holds must become flat.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::Child;
use sampler_tests::{Daemon, build, usage};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// Programs that are built, run and removed in a round.
const PROGRAMS: usize = 500;
/// Rounds before the first measurement. By then all tables but one are as full as they become.
const WARM_UP: usize = 16;
/// Later rounds. Together with the first ones, this is a new program a minute for ten days.
const ROUNDS: usize = 12;
/// Programs whose files stay, because samplerd may be behind.
const BEHIND: usize = 100;
/// Largest growth of samplerd's memory in all later rounds: 10 KiB for each program.
const GROWTH_BYTES: u64 = 60 << 20;
/// The table of the samples at each program's peak grows until its own bound.
const PEAK: &str = "peak";
/// Descriptors that clients and files on their way may add.
const MORE_DESCRIPTORS: u64 = 64;
/// Entries that any table may have more. An entry for each later program would be more than that.
const MORE_ENTRIES: u64 = 5000;
/// Header of the note with the build id, before the 20 bytes of the id itself.
const NOTE: &[u8] = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";

/// What samplerd holds.
#[derive(Debug)]
struct Held {
    bytes: u64,
    descriptors: u64,
    /// Used entries by table.
    tables: BTreeMap<String, u64>,
}

fn held(daemon: &Daemon) -> Result<Held> {
    let status = daemon.status()?;
    let tables = status["tables"].as_object().context("status has no tables")?;
    let used = |(name, of): (&String, &Value)| Some((name.clone(), of["used"].as_u64()?));
    Ok(Held {
        bytes: usage::resident_without_ring(daemon.pid())?,
        descriptors: usage::descriptors(daemon.pid())? as u64,
        tables: tables.iter().filter_map(used).collect(),
    })
}

/// Runs each program that it is sent the path of, and prints the exit code.
const BUILDER: &str = r#"while read -r program; do "$program"; echo $?; done"#;

/// Makes a program with a build id of its own.
fn make(template: &[u8], id_at: usize, number: usize, file: &Path) -> Result<()> {
    let mut program = template.to_vec();
    program[id_at..id_at + 8].copy_from_slice(&(number as u64).to_ne_bytes());
    fs::write(file, program)?;
    Ok(fs::set_permissions(file, fs::Permissions::from_mode(0o755))?)
}

#[test]
#[ignore = "it takes some five minutes"]
fn a_week_of_builds_leaves_nothing() -> Result<()> {
    let template = fs::read(build::compile("builds.c", &["-Wl,--build-id"])?)?;
    let note = template.windows(NOTE.len()).position(|bytes| bytes == NOTE);
    let id_at = note.context("no build id")? + NOTE.len();
    let directory = tempfile::tempdir()?;
    let file = |number: usize| directory.path().join(format!("build-{number}"));
    let mut builder = Child::start("sh", Command::new("sh").args(["-c", BUILDER]))?;
    let daemon = Daemon::start(&[builder.pid()], &["--follow", "--interval", "1"])?;
    let mut first = None;
    for round in 0..WARM_UP + ROUNDS {
        for number in round * PROGRAMS..(round + 1) * PROGRAMS {
            make(&template, id_at, number, &file(number))?;
            builder.send(&file(number).to_string_lossy())?;
            let code = builder.line()?;
            ensure!(code == "0", "program {number}: exit code {code}");
            if let Some(old) = number.checked_sub(BEHIND) {
                fs::remove_file(file(old))?;
            }
        }
        // Questions read names.
        for kind in ["alloc", "live"] {
            daemon.profile(kind, &[])?;
        }
        let now = held(&daemon)?;
        println!("{} programs: {now:?}", (round + 1) * PROGRAMS);
        if round + 1 == WARM_UP {
            first = Some(now);
        } else if let Some(first) = &first {
            ensure!(now.bytes <= first.bytes + GROWTH_BYTES, "{now:?} after {first:?}");
            ensure!(
                now.descriptors <= first.descriptors + MORE_DESCRIPTORS,
                "{now:?} after {first:?}"
            );
            for (name, used) in now.tables.iter().filter(|(name, _)| *name != PEAK) {
                // Between two collections a table may grow to twice its size.
                let before = first.tables.get(name).copied().unwrap_or(0);
                ensure!(*used <= 3 * before + MORE_ENTRIES, "{name}: {used} after {before}");
            }
        }
    }
    daemon.stop()
}
