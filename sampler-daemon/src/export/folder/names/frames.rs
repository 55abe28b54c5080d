//! The frames of a folder that have no name.

use super::super::place::Place;
use anyhow::{Context as _, ensure};
use rustc_hash::{FxHashMap, FxHashSet};
use sampler_common::encode::tables::{ReadError, Table, frames, mappings, qualities};
use std::collections::{BTreeMap, BTreeSet};

/// Most frames without a name, of all days.
const MAX_FRAMES: usize = 1 << 25;
/// Most paths of a file that are remembered. Hosts may have a file at different paths.
const MAX_PATHS: usize = 16;

/// Frames without a name.
#[derive(Default)]
pub(super) struct Unnamed {
    /// The frames of each day, sorted.
    pub(super) days: BTreeMap<String, Vec<i64>>,
    /// The files that contain them.
    pub(super) files: Vec<Wanted>,
}

/// A file with frames that have no name.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Its GNU build id, or its `htlhash` if it has none.
    pub(super) id: String,
    /// Whether `id` is the `htlhash`.
    pub(super) is_hash: bool,
    /// Where hosts have it.
    pub(super) paths: BTreeSet<String>,
    /// The frames, and their addresses as the file states them.
    pub(super) frames: Vec<(i64, u64)>,
}

impl Unnamed {
    /// Reads the dictionaries of all days.
    pub(super) fn read(place: &Place) -> anyhow::Result<Unnamed> {
        // A host that was not drawn writes coverage only.
        ensure!(
            has(place, Table::Frames)? || has(place, Table::Coverage)?,
            "it has no table {:?} (give a folder that samplerd --export parquet:FOLDER writes to)",
            Table::Frames.name()
        );
        let mut reading = Reading::default();
        for day in days(place, Table::Frames)? {
            reading.read_day(place, day)?;
        }
        for day in days(place, Table::Mappings)? {
            reading.read_paths(place, &day)?;
        }
        Ok(reading.unnamed)
    }

    /// Number of frames without a name.
    pub(super) fn frames(&self) -> u64 {
        self.files.iter().map(|file| file.frames.len() as u64).sum()
    }
}

#[derive(Default)]
struct Reading {
    unnamed: Unnamed,
    /// Frames that were seen on some day.
    seen: FxHashSet<i64>,
    /// Index of each file, by its id.
    files: FxHashMap<String, usize>,
}

impl Reading {
    fn read_day(&mut self, place: &Place, day: String) -> anyhow::Result<()> {
        // Names come after their frames, and so are read after them.
        let mut of_day: FxHashMap<i64, (String, u64)> = FxHashMap::default();
        each(place, Table::Frames, &day, frames, |row| {
            if !row.build_id.is_empty() {
                of_day.insert(row.frame_id, (row.build_id, row.address));
            }
        })?;
        each(place, Table::Symbols, &day, qualities, |(id, quality)| {
            if quality > 0 {
                of_day.remove(&id);
            }
        })?;
        let mut ids: Vec<i64> = of_day.keys().copied().collect();
        ids.sort_unstable();
        for id in &ids {
            if self.seen.insert(*id)
                && let Some((file, address)) = of_day.remove(id)
            {
                self.file(file).frames.push((*id, address));
            }
        }
        ensure!(
            self.seen.len() <= MAX_FRAMES,
            "more than {MAX_FRAMES} frames have no name (divide the folder by days)"
        );
        if !ids.is_empty() {
            self.unnamed.days.insert(day, ids);
        }
        Ok(())
    }

    fn file(&mut self, id: String) -> &mut Wanted {
        let files = &mut self.unnamed.files;
        let index = *self.files.entry(id).or_insert_with_key(|id| {
            files.push(Wanted { id: id.clone(), ..Wanted::default() });
            files.len() - 1
        });
        &mut files[index]
    }

    fn read_paths(&mut self, place: &Place, day: &str) -> anyhow::Result<()> {
        each(place, Table::Mappings, day, mappings, |row| {
            if let Some(index) = self.files.get(&row.build_id) {
                let file = &mut self.unnamed.files[*index];
                file.is_hash |= row.htlhash == row.build_id;
                if file.paths.len() < MAX_PATHS {
                    file.paths.insert(row.path);
                }
            }
        })
    }
}

fn has(place: &Place, table: Table) -> anyhow::Result<bool> {
    Ok(place.entries(&[table.name()])?.is_some())
}

/// The days of a table, sorted.
pub(super) fn days(place: &Place, table: Table) -> anyhow::Result<Vec<String>> {
    let names = place.entries(&[table.name()]).with_context(|| table.name())?;
    Ok(names.into_iter().flatten().filter(|name| name.starts_with("dt=")).collect())
}

/// The finished files of a table's day, sorted.
pub(super) fn files(place: &Place, table: Table, day: &str) -> anyhow::Result<Vec<String>> {
    let names = place.entries(&[table.name(), day]);
    let names = names.with_context(|| format!("{}/{day}", table.name()))?;
    // As engines do, which take no file with such a beginning.
    let is_finished = |name: &String| name.ends_with(".parquet") && !name.starts_with(['.', '_']);
    Ok(names.into_iter().flatten().filter(is_finished).collect())
}

/// Takes each row of a table's day.
fn each<T>(
    place: &Place,
    table: Table,
    day: &str,
    read: impl Fn(Vec<u8>) -> Result<Vec<T>, ReadError>,
    take: impl FnMut(T),
) -> anyhow::Result<()> {
    let mut take = take;
    for name in files(place, table, day)? {
        let rows = place.read(&[table.name(), day], &name).and_then(|bytes| {
            // A file that is gone was too old.
            Ok(bytes.map(&read).transpose()?.unwrap_or_default())
        });
        let path = || format!("read {}/{day}/{name}", table.name());
        rows.with_context(path)?.into_iter().for_each(&mut take);
    }
    Ok(())
}
