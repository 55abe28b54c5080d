//! Which program image a record belongs to.
//!
//! Where the kernel tells what happens to processes, images are made of that: it says what was mapped when the sample was taken.
//! Else they are read from `/proc`, which shows what is there now.

use super::ingest::Ingest;
use super::source::Source;
use crate::unwind::Image;
use rustc_hash::FxHashSet;

impl Ingest {
    /// Reads the mappings of the process in `slot` before it can exit, unless events have told them. If that fails the next sample
    /// tries again.
    pub(super) fn open_image(&mut self, slot: u32) {
        if let Some(source) = self.sources.get_mut(&slot)
            && source.image.is_none()
            && self.history.at(source.pid, u64::MAX).is_none()
        {
            source.image = Image::open(source.pid, &mut self.modules).ok();
        }
    }

    /// The image of a source that a record of this time and generation belongs to.
    pub(super) fn image<'a>(
        &mut self,
        source: &'a mut Source,
        generation: u32,
        time_ns: u64,
    ) -> Option<&'a mut Image> {
        let pid = source.pid;
        let past = self.history.at(pid, time_ns);
        if generation != source.generation {
            // The process has become another program meanwhile: what `/proc` shows would give wrong names.
            let past = past?;
            let kept = source.earlier.take().filter(|(of, _)| *of == generation);
            let mut image = match kept {
                Some((_, image)) => image,
                None => Image::of_past(pid, past, &mut self.modules),
            };
            if !image.follow(past, &mut self.modules) {
                image = Image::of_past(pid, past, &mut self.modules);
            }
            image.sampled_at(time_ns);
            return Some(&mut source.earlier.insert((generation, image)).1);
        }
        match (&mut source.image, past) {
            (Some(image), Some(past)) => {
                if !image.follow(past, &mut self.modules) {
                    source.image = None;
                }
            }
            (Some(image), None) => image.not_told(),
            (None, _) => {}
        }
        if source.image.is_none() {
            source.image = match past {
                Some(past) => Some(Image::of_past(pid, past, &mut self.modules)),
                None => Image::open(pid, &mut self.modules).ok(),
            };
        }
        let image = source.image.as_mut()?;
        image.sampled_at(time_ns);
        Some(image)
    }

    /// Forgets images that ended before `time_ns`: all records from before have been read.
    pub(super) fn forget_images(&mut self, time_ns: u64) {
        if self.history.has_ends() {
            let attached: FxHashSet<u32> = self.sources.values().map(|source| source.pid).collect();
            self.history.forget_ended(time_ns, |pid| attached.contains(&pid));
        }
    }
}
