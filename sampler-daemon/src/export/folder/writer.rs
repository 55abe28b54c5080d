//! Writes windows to a folder, and removes old windows.

use super::bounds::{Bounds, FolderContents, measure, remove_oldest};
use super::place::Place;
use crate::export::outbox::Attempt;
use crate::export::stamp::{Host, Stamp};
use crate::export::window::{Dictionaries, Window};
use anyhow::Context as _;
use sampler_common::encode::tables::Files;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes the windows of a host to a folder.
pub(super) struct Writer {
    path: PathBuf,
    host: Host,
    bounds: Bounds,
    kept: Arc<FolderContents>,
    dictionaries: Dictionaries,
    /// The hour in which old windows were last removed; `None`: the folder was not measured yet.
    hour: Option<String>,
}

impl Writer {
    pub(super) fn new(path: PathBuf, bounds: Bounds, kept: Arc<FolderContents>) -> Writer {
        let (host, dictionaries) = (Host::of_this_machine(), Dictionaries::default());
        Writer { path, host, bounds, kept, dictionaries, hour: None }
    }

    /// Writes a window. The folder is opened each time, so that it can be unmounted.
    pub(super) fn write(&mut self, window: &Window) -> Attempt {
        match Place::open(&self.path).and_then(|place| self.write_to(&place, window)) {
            Ok(bytes) => Attempt::Written(bytes),
            Err(error) => Attempt::Failed(format!("{error:#}")),
        }
    }

    fn write_to(&mut self, place: &Place, window: &Window) -> anyhow::Result<u64> {
        let stamp = Stamp::new(window.start_unix_ns());
        let (day, hour) = (stamp.day(), stamp.hour());
        if self.hour.is_none() {
            self.kept.bytes.store(measure(place, &self.host), Relaxed);
        }
        let Files { files, new } = self.dictionaries.encode(window, &day)?;
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
        self.dictionaries.add(&new);
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
        if days.iter().any(|day| day == self.dictionaries.day()) {
            self.dictionaries.clear();
        }
    }
}
