//! Writes windows to a folder, and removes old windows.

use super::bounds::{Bounds, Kept, measure, remove_oldest};
use super::place::Place;
use super::stamp::{Host, Stamp};
use crate::export::outbox::Attempt;
use anyhow::Context as _;
use sampler_common::encode::push::Push;
use sampler_common::encode::tables::{Files, Known, files};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

/// Most rows of dictionaries that are remembered, 8 bytes each and some for the table. Beyond that,
/// rows are written again.
const MAX_KNOWN: usize = 1 << 20;

/// Writes the windows of a host to a folder.
pub(super) struct Writer {
    path: PathBuf,
    host: Host,
    bounds: Bounds,
    kept: Arc<Kept>,
    /// The rows of dictionaries that are in the folder, and the day for which they are.
    known: Known,
    day: String,
    /// The hour in which old windows were last removed; `None`: the folder was not measured yet.
    hour: Option<String>,
}

impl Writer {
    pub(super) fn new(path: PathBuf, bounds: Bounds, kept: Arc<Kept>) -> Writer {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let (known, day, hour) = (Known::default(), String::new(), None);
        Writer { path, host: Host::new(&host), bounds, kept, known, day, hour }
    }

    /// Writes a window. The folder is opened each time, so that it can be unmounted.
    pub(super) fn write(&mut self, pushes: &[Push]) -> Attempt {
        match Place::open(&self.path).and_then(|place| self.write_to(&place, pushes)) {
            Ok(bytes) => Attempt::Written(bytes),
            Err(error) => Attempt::Failed(format!("{error:#}")),
        }
    }

    fn write_to(&mut self, place: &Place, pushes: &[Push]) -> anyhow::Result<u64> {
        let stamp = Stamp::new(pushes.first().map_or(0, |push| push.start_unix_ns));
        let (day, hour) = (stamp.day(), stamp.hour());
        if self.hour.is_none() {
            self.kept.bytes.store(measure(place, &self.host), Relaxed);
        }
        if self.day != day || self.known.len() > MAX_KNOWN {
            self.known.clear();
            self.day.clone_from(&day);
        }
        let Files { files, new } = files(pushes, &self.known)?;
        let name = stamp.file(&self.host);
        let mut bytes = 0;
        for file in files {
            let table = file.table.name();
            let folders = [table, &day, &hour];
            let folders = if file.table.is_dictionary() { &folders[..2] } else { &folders };
            let replaced = place
                .write(folders, &name, &file.bytes)
                .with_context(|| format!("{}/{name}", folders.join("/")))?;
            let length = file.bytes.len() as u64;
            let kept = self.kept.bytes.load(Relaxed);
            self.kept.bytes.store((kept + length).saturating_sub(replaced), Relaxed);
            bytes += length;
        }
        self.known.add(&new);
        self.keep_bounds(place, format!("{day}/{hour}"));
        Ok(bytes)
    }

    /// Removes old windows, once an hour and when the folder is full.
    fn keep_bounds(&mut self, place: &Place, hour: String) {
        let is_full = self.kept.bytes.load(Relaxed) > self.bounds.bytes;
        if !is_full && self.hour.as_ref() == Some(&hour) {
            return;
        }
        self.hour = Some(hour);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = now.as_nanos() as u64;
        let days = remove_oldest(place, &self.host, self.bounds, now, &self.kept);
        if days.contains(&self.day) {
            self.known.clear();
        }
    }
}
