//! Bounds of what a host keeps in a folder. The oldest windows are removed first.
//!
//! Dictionaries are written once a day. So the dictionaries of a day are removed after the last of
//! the day's windows, and no kept window refers to a removed row.

use super::place::{Entry, Place, finished_name};
use crate::export::stamp::{Host, Stamp};
use sampler_common::encode::tables::Table;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The smallest bound of all files of a host in a folder.
pub const MIN_KEPT_BYTES: u64 = 1 << 20;
/// The shortest time for which files are kept: they are removed by the hour.
pub const MIN_KEPT_FOR: Duration = Duration::from_secs(3600);
/// Part of the bound that is freed at once, so that folders are not listed for every window.
const FREED_PART: u64 = 16;

/// How much a host keeps in a folder.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of all files.
    pub bytes: u64,
    /// Age of a window, to the hour.
    pub age: Duration,
}

/// What a host keeps in a folder, and what it has removed there since its start.
#[derive(Debug, Default)]
pub(in crate::export) struct FolderContents {
    pub(in crate::export) bytes: AtomicU64,
    pub(in crate::export) removed_files: AtomicU64,
    pub(in crate::export) removed_bytes: AtomicU64,
}

const MOMENTS: [Table; 3] = [Table::Alloc, Table::Live, Table::Coverage];

/// Returns the bytes of all files of a host. Removes unfinished files, which a killed samplerd has
/// left.
pub(super) fn measure(place: &Place, host: &Host) -> u64 {
    let is_unfinished = |name: &str| finished_name(name).is_some_and(|name| host.owns(name));
    let in_folder = |folder: &[&str]| {
        for file in place.files(folder, is_unfinished) {
            place.remove(folder, &file.name);
        }
        place.files(folder, |name| host.owns(name)).iter().map(|file| file.bytes).sum::<u64>()
    };
    let mut bytes = 0;
    for table in Table::ALL.map(Table::name) {
        for day in place.folders(&[table], "dt=") {
            bytes += in_folder(&[table, &day]);
            for hour in place.folders(&[table, &day], "hour=") {
                bytes += in_folder(&[table, &day, &hour]);
            }
        }
    }
    bytes
}

/// Removes what is too old, and the oldest windows of a host until the rest is within bounds.
/// Returns the days whose dictionaries were removed.
pub(super) fn remove_oldest(
    place: &Place,
    host: &Host,
    bounds: Bounds,
    now_unix_ns: u64,
    kept: &FolderContents,
) -> Vec<String> {
    let is_full = kept.bytes.load(Relaxed) > bounds.bytes;
    let wanted = if is_full { bounds.bytes - bounds.bytes / FREED_PART } else { u64::MAX };
    let oldest = Stamp::new(now_unix_ns.saturating_sub(bounds.age.as_nanos() as u64));
    let (oldest_day, oldest_hour) = (oldest.day(), oldest.hour());
    let is_enough = || kept.bytes.load(Relaxed) <= wanted;
    let mut removed = Vec::new();
    for day in names(place, &Table::ALL, &[], "dt=") {
        for hour in names(place, &MOMENTS, &[&day], "hour=") {
            let is_old = (&day, &hour) < (&oldest_day, &oldest_hour);
            for (file, table) in windows(place, host, &day, &hour) {
                if !is_old && is_enough() {
                    return removed;
                }
                remove(place, &[table.name(), &day, &hour], &file, kept);
            }
        }
        if day >= oldest_day && is_enough() {
            return removed;
        }
        for table in Table::ALL.into_iter().filter(|table| table.is_dictionary()) {
            let folder = [table.name(), &day];
            for file in place.files(&folder, |name| host.owns(name)) {
                remove(place, &folder, &file, kept);
            }
        }
        removed.push(day);
    }
    removed
}

/// Names of the folders of tables, sorted, each once.
fn names(place: &Place, tables: &[Table], below: &[&str], prefix: &str) -> Vec<String> {
    let of = |table: &Table| place.folders(&[&[table.name()], below].concat(), prefix);
    let mut names: Vec<String> = tables.iter().flat_map(of).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The files of an hour, the oldest window first.
fn windows(place: &Place, host: &Host, day: &str, hour: &str) -> Vec<(Entry, Table)> {
    let of = |table: Table| {
        let files = place.files(&[table.name(), day, hour], |name| host.owns(name));
        files.into_iter().map(move |file| (file, table))
    };
    let mut files: Vec<(Entry, Table)> = MOMENTS.into_iter().flat_map(of).collect();
    files.sort_unstable();
    files
}

fn remove(place: &Place, folders: &[&str], file: &Entry, kept: &FolderContents) {
    if place.remove(folders, &file.name) {
        // Another program may have changed the file.
        let _ = kept.bytes.fetch_update(Relaxed, Relaxed, |of| Some(of.saturating_sub(file.bytes)));
        kept.removed_files.fetch_add(1, Relaxed);
        kept.removed_bytes.fetch_add(file.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const HOUR_NS: u64 = 3_600_000_000_000;
    const NOW_NS: u64 = 1_764_421_200_000_000_000;

    /// A folder with a window of 300 bytes for each of the last `hours`, and dictionaries of 50
    /// bytes for each of their days.
    fn folder(hours: u64) -> (tempfile::TempDir, Host) {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::open(directory.path()).unwrap();
        let host = Host::new("h");
        for ago in 0..hours {
            let stamp = Stamp::new(NOW_NS - ago * HOUR_NS);
            let (day, hour) = (stamp.day(), stamp.hour());
            for table in MOMENTS.map(Table::name) {
                place.write(&[table, &day, &hour], &stamp.file(&host), &[0; 100]).unwrap();
                let other = stamp.file(&Host::new("other"));
                place.write(&[table, &day, &hour], &other, &[0; 100]).unwrap();
            }
            let first = Stamp::new(NOW_NS - NOW_NS % (24 * HOUR_NS));
            if stamp.day() == first.day() {
                place.write(&["stacks", &day], &first.file(&host), &[0; 50]).unwrap();
            } else {
                place.write(&["stacks", &day], &Stamp::new(1).file(&host), &[0; 50]).unwrap();
            }
        }
        (directory, host)
    }

    fn removed(
        directory: &tempfile::TempDir,
        host: &Host,
        bounds: Bounds,
    ) -> (Vec<String>, FolderContents) {
        let place = Place::open(directory.path()).unwrap();
        let kept = FolderContents::default();
        kept.bytes.store(measure(&place, host), Relaxed);
        let days = remove_oldest(&place, host, bounds, NOW_NS, &kept);
        assert_eq!(measure(&place, host), kept.bytes.load(Relaxed));
        (days, kept)
    }

    const AGE: Duration = Duration::from_secs(365 * 24 * 3600);

    #[test]
    fn the_oldest_windows_are_removed_down_to_the_bound() {
        let (directory, host) = folder(5);
        let place = Place::open(directory.path()).unwrap();
        assert_eq!(measure(&place, &host), 5 * 300 + 50);
        let (days, kept) = removed(&directory, &host, Bounds { bytes: 1550, age: AGE });
        assert_eq!((days.len(), kept.removed_files.load(Relaxed)), (0, 0));
        // 1500 − 1500/16 = 1407: two files of the oldest window go.
        let (days, kept) = removed(&directory, &host, Bounds { bytes: 1500, age: AGE });
        assert_eq!((days.len(), kept.removed_files.load(Relaxed)), (0, 2));
        assert_eq!(kept.removed_bytes.load(Relaxed), 200);
        let other = Host::new("other");
        assert_eq!(measure(&place, &other), 5 * 300, "files of another host");
    }

    #[test]
    fn dictionaries_go_after_the_last_window_of_their_day() {
        // It is 13:00: fourteen windows of today, ten of yesterday.
        let (directory, host) = folder(24);
        let (days, kept) = removed(&directory, &host, Bounds { bytes: 14 * 300 + 100, age: AGE });
        assert_eq!(days.len(), 1);
        assert!(kept.bytes.load(Relaxed) <= 14 * 300 + 50);
        assert!(fs::read_dir(directory.path().join("stacks")).unwrap().count() == 1);
        // A bound that not even today's dictionaries are within.
        let (days, kept) = removed(&directory, &host, Bounds { bytes: 20, age: AGE });
        assert_eq!(days.last(), Some(&Stamp::new(NOW_NS).day()));
        assert_eq!(kept.bytes.load(Relaxed), 0);
    }

    #[test]
    fn old_windows_are_removed_by_the_hour() {
        let (directory, host) = folder(24);
        let age = Duration::from_secs(20 * 3600);
        let (days, kept) = removed(&directory, &host, Bounds { bytes: u64::MAX, age });
        assert_eq!((days.len(), kept.removed_files.load(Relaxed)), (0, 3 * 3));
    }

    #[test]
    fn unfinished_files_are_removed() {
        let (directory, host) = folder(1);
        let stamp = Stamp::new(NOW_NS);
        let folder = directory.path().join("alloc").join(stamp.day()).join(stamp.hour());
        let unfinished = folder.join(format!(".{}.abcdef", stamp.file(&host)));
        let of_another = folder.join(format!(".{}.abcdef", stamp.file(&Host::new("other"))));
        for path in [&unfinished, &of_another] {
            fs::write(path, "x").unwrap();
        }
        let place = Place::open(directory.path()).unwrap();
        assert_eq!(measure(&place, &host), 350);
        assert!(!unfinished.exists() && of_another.exists());
    }
}
