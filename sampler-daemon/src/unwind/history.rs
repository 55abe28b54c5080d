//! The mapped code of processes over time, as the kernel's events reported it. It serves samples
//! that are read after their process is gone or has replaced its program.
//!
//! One program image lasts from a fork or `execve` to the next `execve` or the exit. Events and
//! samples have times of the same clock, so a sample finds the image of its time. Events do not
//! show `munmap`, so a mapping stays until another one replaces it.

use crate::inspect::mappings::{Backing, Mapping};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Most mappings of one image. A program with more is read from `/proc` when it is sampled. (A
/// mapping with a long path counts for several.)
pub const MAX_IMAGE_MAPPINGS: usize = 4096;
/// Bytes of a path that count as one more mapping.
const PATH_BYTES: usize = 256;
/// Most mappings of all images. Each image counts the mappings that it shares with the image from
/// which it was forked.
pub const MAX_HELD: usize = 512 * 1024;

/// The mappings of a program image.
#[derive(Clone, Debug)]
pub struct PastImage {
    /// When the image began. The time identifies the image of a process.
    pub start_ns: u64,
    /// The parent from which the process was forked, 0 if unknown.
    pub parent: u32,
    /// Executable mappings, in the order in which they were made.
    pub mappings: Arc<Vec<Mapping>>,
    /// Changes with each change of the mappings.
    pub version: u32,
    /// What the mappings count against the bounds.
    weight: usize,
    has_ended: bool,
}

/// The images of all processes since the events began, bounded.
#[derive(Debug, Default)]
pub struct History {
    /// By process: images in the order of time.
    processes: FxHashMap<u32, Vec<PastImage>>,
    /// Processes with too many mappings. The mappings of such a process are not read again at each
    /// of its forks.
    large: FxHashSet<u32>,
    /// Ends of images: the time of the end, the process, and the start of the image.
    ends: Vec<(u64, u32, u64)>,
    held: usize,
    refused: u64,
}

impl History {
    /// Records that a process was forked. `read` gives the parent's mappings, and is called only if
    /// no event has reported them.
    pub fn forked(
        &mut self,
        time_ns: u64,
        child: u32,
        parent: u32,
        read: impl FnOnce() -> Option<Vec<Mapping>>,
    ) {
        // The child is a new process, even if its pid was used before.
        self.large.remove(&child);
        if self.at(parent, time_ns).is_none() {
            self.add_running(parent, read);
        }
        let Some(of_parent) = self.at(parent, time_ns) else { return };
        let mappings = Arc::clone(&of_parent.mappings);
        self.begin(child, PastImage::new(time_ns, parent, mappings));
    }

    /// Records a running process. `read` gives its mappings, and is called only if no event has
    /// reported any.
    pub fn add_running(&mut self, pid: u32, read: impl FnOnce() -> Option<Vec<Mapping>>) {
        let is_known = self.processes.contains_key(&pid) || self.large.contains(&pid);
        let Some(mappings) = (!is_known).then(read).flatten() else { return };
        if weight(&mappings) > MAX_IMAGE_MAPPINGS {
            self.give_up(pid);
        } else {
            self.begin(pid, PastImage::new(0, 0, mappings.into()));
        }
    }

    /// Records that a process has replaced its program.
    pub fn replaced(&mut self, time_ns: u64, pid: u32) {
        let parent = self.at(pid, time_ns).map_or(0, |image| image.parent);
        self.exited(time_ns, pid);
        self.large.remove(&pid);
        self.begin(pid, PastImage::new(time_ns, parent, Arc::default()));
    }

    /// Records that code was mapped into a process.
    pub fn mapped(&mut self, time_ns: u64, pid: u32, mapping: Mapping) {
        let room = self.held < MAX_HELD;
        let Some(image) = self.at_mut(pid, time_ns) else { return };
        if !room || image.weight >= MAX_IMAGE_MAPPINGS {
            // No image is better than one with missing mappings.
            self.give_up(pid);
            return;
        }
        let before = image.weight;
        place(Arc::make_mut(&mut image.mappings), mapping);
        image.version = image.version.wrapping_add(1);
        image.weight = weight(&image.mappings);
        let after = image.weight;
        self.held = self.held + after - before;
    }

    /// Records that the first thread of a process has exited, and most often the process with it.
    pub fn exited(&mut self, time_ns: u64, pid: u32) {
        if let Some(image) = self.at_mut(pid, time_ns)
            && !std::mem::replace(&mut image.has_ended, true)
        {
            let start_ns = image.start_ns;
            self.ends.push((time_ns, pid, start_ns));
        }
        self.large.remove(&pid);
    }

    /// The image of a process at a time; `None` if no event reported it.
    pub fn at(&self, pid: u32, time_ns: u64) -> Option<&PastImage> {
        self.processes.get(&pid)?.iter().rev().find(|image| image.start_ns <= time_ns)
    }

    /// Forgets images that ended before `time_ns`. The last image of a process is kept if `stays`
    /// says so.
    pub fn forget_ended(&mut self, time_ns: u64, stays: impl Fn(u32) -> bool) {
        let mut ends = std::mem::take(&mut self.ends);
        ends.retain(|(end_ns, pid, start_ns)| {
            let Some(images) = self.processes.get_mut(pid) else { return false };
            let is_last = images.last().is_some_and(|last| last.start_ns == *start_ns);
            if *end_ns >= time_ns || is_last && stays(*pid) {
                return true;
            }
            images.retain(|image| {
                let stays = image.start_ns != *start_ns;
                self.held -= if stays { 0 } else { image.weight };
                stays
            });
            if images.is_empty() {
                self.processes.remove(pid);
            }
            false
        });
        self.ends = ends;
    }

    /// Whether any image has ended.
    pub fn has_ends(&self) -> bool {
        !self.ends.is_empty()
    }

    /// Forgets everything, because an unknown part of the events was lost.
    pub fn clear(&mut self) {
        *self = History { refused: self.refused, ..History::default() };
    }

    /// Mappings held, and the bound.
    pub fn usage(&self) -> (usize, usize) {
        (self.held, MAX_HELD)
    }

    /// Images that were given up at a bound.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn at_mut(&mut self, pid: u32, time_ns: u64) -> Option<&mut PastImage> {
        self.processes.get_mut(&pid)?.iter_mut().rev().find(|image| image.start_ns <= time_ns)
    }

    fn begin(&mut self, pid: u32, image: PastImage) {
        // A sixteenth is reserved for programs that have nothing mapped yet.
        if self.held + image.weight > MAX_HELD / 16 * 15 {
            // The new image must not be mistaken for the process's last one.
            self.give_up(pid);
            return;
        }
        self.held += image.weight;
        let images = self.processes.entry(pid).or_default();
        // Events of several CPUs may arrive out of order.
        let at = images.partition_point(|known| known.start_ns <= image.start_ns);
        images.insert(at, image);
    }

    /// Forgets all images of a process until the process runs another program.
    fn give_up(&mut self, pid: u32) {
        self.refused += 1;
        let images = self.processes.remove(&pid).into_iter().flatten();
        self.held -= images.map(|image| image.weight).sum::<usize>();
        self.large.insert(pid);
    }
}

impl PastImage {
    fn new(start_ns: u64, parent: u32, mappings: Arc<Vec<Mapping>>) -> PastImage {
        let weight = weight(&mappings);
        PastImage { start_ns, parent, mappings, version: 0, weight, has_ended: false }
    }

    /// Path of the program, whose own code is mapped first.
    pub fn exe(&self) -> Option<&str> {
        self.mappings.iter().find_map(|mapping| match &mapping.backing {
            Backing::File(path) => Some(path.as_str()),
            _ => None,
        })
    }
}

/// What mappings count against the bounds.
fn weight(mappings: &[Mapping]) -> usize {
    let one = |mapping: &Mapping| match &mapping.backing {
        Backing::File(path) | Backing::Other(path) => 1 + path.len() / PATH_BYTES,
        Backing::Vdso | Backing::Uprobes | Backing::Anonymous => 1,
    };
    mappings.iter().map(one).sum()
}

/// Adds a mapping, and removes the addresses that it covers from other mappings.
fn place(mappings: &mut Vec<Mapping>, mut new: Mapping) {
    let is_anonymous = |it: &Mapping| it.backing == Backing::Anonymous;
    if is_anonymous(&new) {
        // JIT compilers let their memory grow piece by piece.
        mappings.retain(|old| {
            let joins = is_anonymous(old) && old.start <= new.end && new.start <= old.end;
            if joins {
                (new.start, new.end) = (new.start.min(old.start), new.end.max(old.end));
            }
            !joins
        });
    }
    let mut rests = Vec::new();
    mappings.retain_mut(|old| {
        if old.end <= new.start || new.end <= old.start {
            return true;
        }
        if new.end < old.end {
            let offset = old.offset.wrapping_add(new.end - old.start);
            rests.push(Mapping { start: new.end, offset, ..old.clone() });
        }
        old.end = new.start;
        old.start < old.end
    });
    mappings.append(&mut rests);
    mappings.push(new);
}

#[cfg(test)]
mod tests;
