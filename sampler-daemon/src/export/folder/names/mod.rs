//! Names off the hosts (`sampler symbolize parquet:FOLDER`): frames that hosts wrote without names
//! get them from the files of this machine, and from debuginfod servers.
//!
//! ```text
//! FOLDER/symbols/dt=2026-11-29/HOST-20261129T131502.123456Z-names.parquet
//! ```
//!
//! The names of a day's frames go to that day, so that a statement on a part of the days finds
//! them. samplerd removes no such file: it is removed here, once the day's frames are gone.

mod frames;
mod sources;

use super::place::Place;
use crate::debuginfod::Debuginfod;
use crate::export::stamp::{Host, Stamp};
use anyhow::{Context as _, anyhow};
use frames::Unnamed;
use rustc_hash::FxHashMap;
use rustix::io::Errno;
use sampler_common::encode::tables::{Table, symbols};
use sampler_common::profile::Line;
use sources::Sources;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The end of the names of the files that are written here. samplerd's own files end differently.
const SUFFIX: &str = "-names.parquet";

/// What was looked up.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Frames without a name before.
    pub frames: u64,
    /// Frames of them that have a name now.
    pub named: u64,
    /// Files with frames without a name before.
    pub files: u64,
    /// Files of them that were found nowhere.
    pub not_found: Vec<NotFound>,
    /// Why files are not read completely, and why debuginfod has not sent some: one line for each
    /// reason.
    pub limits: Vec<String>,
    /// Files of names that were written: one for each day.
    pub written: u64,
    /// Files of names that were removed, because their day has no frames any more.
    pub removed: u64,
}

/// A file that was found neither on this machine nor on a server.
#[derive(Debug)]
pub struct NotFound {
    /// The GNU build id, or the `htlhash` of a file without one.
    pub build_id: String,
    /// A path of the file on a host, empty if no host has named one.
    pub path: String,
}

/// Looks up the names of frames that have none, and adds them to the folder. `program` is samplerd,
/// which reads the files in a process of its own.
///
/// # Errors
/// If the folder has no tables, or if one of them cannot be read or written. If no process can be
/// started that reads files.
pub fn symbolize(
    path: &Path,
    program: &Path,
    debuginfod: Option<Debuginfod>,
) -> anyhow::Result<Outcome> {
    add_names(path, program, debuginfod).map_err(|error| match error.root_cause().downcast_ref() {
        Some(&(Errno::ACCESS | Errno::PERM | Errno::ROFS)) => {
            anyhow!("{error:#} (run it as a user who can read and write the folder)")
        }
        Some(&(Errno::NOENT | Errno::NOTDIR)) => {
            anyhow!("{error:#} (give a folder that samplerd --export parquet:FOLDER writes to)")
        }
        _ => error,
    })
}

fn add_names(
    path: &Path,
    program: &Path,
    debuginfod: Option<Debuginfod>,
) -> anyhow::Result<Outcome> {
    let place = Place::open(path)?;
    let unnamed = Unnamed::read(&place)?;
    for day in unnamed.days.keys() {
        let folder = [Table::Symbols.name(), day];
        place.check(&folder).with_context(|| format!("write to {}", folder.join("/")))?;
    }
    let mut outcome = Outcome {
        frames: unnamed.frames(),
        files: unnamed.files.len() as u64,
        removed: remove_outdated(&place)?,
        ..Outcome::default()
    };
    let mut sources = Sources::new(program, debuginfod);
    let mut names: FxHashMap<i64, Arc<[Line]>> = FxHashMap::default();
    for file in &unnamed.files {
        match sources.look_up(file)? {
            Some(lines) => {
                let named = file.frames.iter().zip(lines);
                names.extend(named.filter_map(|((id, _), lines)| Some((*id, lines?))));
            }
            None => outcome.not_found.push(NotFound {
                build_id: file.id.clone(),
                path: file.paths.first().cloned().unwrap_or_default(),
            }),
        }
    }
    outcome.named = names.len() as u64;
    outcome.limits = sources.limits();
    outcome.written = write(&place, &unnamed, &names)?;
    Ok(outcome)
}

/// Writes the names of each day. Returns the number of files.
fn write(
    place: &Place,
    unnamed: &Unnamed,
    names: &FxHashMap<i64, Arc<[Line]>>,
) -> anyhow::Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let stamp = Stamp::new(now.as_nanos() as u64);
    let name = stamp.window(&Host::of_this_machine()) + SUFFIX;
    let mut written = 0;
    for (day, ids) in &unnamed.days {
        let of = |id: &i64| names.get(id).map(|lines| (*id, &**lines));
        let mut rows = ids.iter().filter_map(of).peekable();
        if rows.peek().is_none() {
            continue;
        }
        let folder = [Table::Symbols.name(), day];
        place
            .write(&folder, &name, &symbols(rows)?.bytes)
            .with_context(|| format!("{}/{name}", folder.join("/")))?;
        written += 1;
    }
    Ok(written)
}

/// Removes the names of days that have no frames any more. Returns the number of files.
fn remove_outdated(place: &Place) -> anyhow::Result<u64> {
    let mut removed = 0;
    for day in frames::days(place, Table::Symbols)? {
        if !frames::files(place, Table::Frames, &day)?.is_empty() {
            continue;
        }
        for name in frames::files(place, Table::Symbols, &day)? {
            if name.ends_with(SUFFIX) {
                removed += u64::from(place.remove(&[Table::Symbols.name(), &day], &name));
            }
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Host {
        Host::new(name)
    }

    #[test]
    fn no_samplerd_takes_the_files_for_its_own() {
        let of_this = host("a-b");
        let name = Stamp::new(1).window(&of_this) + SUFFIX;
        assert!(["a-b", "a", "a-b-19700101T000000.000000Z"].iter().all(|of| !host(of).owns(&name)));
    }

    #[test]
    fn names_go_with_the_frames_of_their_day() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::open(directory.path()).unwrap();
        let file = |table: Table, day: &str, name: &str| {
            place.write(&[table.name(), day], name, b"x").unwrap();
            directory.path().join(table.name()).join(day).join(name)
        };
        let kept = [
            file(Table::Frames, "dt=2026-11-29", "a-1.parquet"),
            file(Table::Symbols, "dt=2026-11-29", "a-1-names.parquet"),
            file(Table::Symbols, "dt=2026-11-28", "a-1.parquet"),
        ];
        let gone = file(Table::Symbols, "dt=2026-11-27", "a-1-names.parquet");
        assert_eq!(remove_outdated(&place).unwrap(), 1);
        assert!(kept.iter().all(|path| path.exists()) && !gone.exists());
    }
}
