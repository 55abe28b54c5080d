//! Finds the program image that a record belongs to.
//!
//! If the kernel reports process events, images are built from these events, which say what was
//! mapped when the sample was taken.
//! Otherwise images are read from `/proc`, which shows the current mappings.

use super::ingest::Ingest;
use crate::pipeline::processes::process::ProfiledProcess;
use crate::unwind::Image;
use rustc_hash::FxHashSet;

impl Ingest {
    /// Reads the mappings of the process in `slot` before it can exit, unless events have reported
    /// them. If that fails, the next sample tries again.
    pub(in crate::pipeline) fn open_image(&mut self, slot: u32) {
        if let Some(profiled) = self.table.get_mut(slot)
            && profiled.image.is_none()
            && self.history.at(profiled.pid, u64::MAX).is_none()
        {
            let by = profiled.holder(&self.processes);
            profiled.image = Image::open(by, &mut self.modules).ok();
        }
    }

    /// The image of a process to which a record of this time and generation belongs.
    pub(in crate::pipeline) fn image<'a>(
        &mut self,
        profiled: &'a mut ProfiledProcess,
        generation: u32,
        time_ns: u64,
    ) -> Option<&'a mut Image> {
        let by = profiled.holder(&self.processes);
        let past = self.history.at(profiled.pid, time_ns);
        if generation != profiled.generation {
            // The process runs another program by now: `/proc` would give wrong names.
            let past = past?;
            let kept = profiled.earlier.take().filter(|(of, _)| *of == generation);
            let mut image = match kept {
                Some((_, image)) => image,
                None => Image::of_past(by, past, &mut self.modules),
            };
            if !image.follow(past, &mut self.modules) {
                image = Image::of_past(by, past, &mut self.modules);
            }
            image.sampled_at(time_ns);
            return Some(&mut profiled.earlier.insert((generation, image)).1);
        }
        match (&mut profiled.image, past) {
            (Some(image), Some(past)) => {
                if !image.follow(past, &mut self.modules) {
                    profiled.image = None;
                }
            }
            (Some(image), None) => image.events_missed(),
            (None, _) => {}
        }
        if profiled.image.is_none() {
            profiled.image = match past {
                Some(past) => Some(Image::of_past(by, past, &mut self.modules)),
                None => Image::open(by, &mut self.modules).ok(),
            };
        }
        let image = profiled.image.as_mut()?;
        image.sampled_at(time_ns);
        Some(image)
    }

    /// Forgets images that ended before `time_ns`: all records from before have been read.
    pub(super) fn forget_images(&mut self, time_ns: u64) {
        if self.history.has_ends() {
            let attached: FxHashSet<u32> =
                self.table.values().map(|profiled| profiled.pid).collect();
            self.history.forget_ended(time_ns, |pid| attached.contains(&pid));
        }
    }
}
