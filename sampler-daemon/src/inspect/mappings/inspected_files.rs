//! Files whose code processes have mapped. Each file is searched for allocators once, when an event
//! reports its first mapping.

use super::{Backing, Mapping, open_past};
use crate::inspect::allocator::Allocator;
use crate::inspect::discoverer::Discoverer;
use crate::inspect::discovery::Discovery;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most files remembered. At the bound all files are forgotten and searched again.
const MAX_INSPECTED: usize = 16 * 1024;
/// Most files that wait for their search. The survey finds further ones.
const MAX_WAITING: usize = 1024;
/// Most large files that wait for the end of their search. The survey finds further ones.
const MAX_UNFINISHED: usize = 64;
/// Longest time of one call of `search_waiting`, during which samples wait.
const MAX_TURN: Duration = Duration::from_millis(5);

/// A file: device, inode, and generation, which distinguishes files that had one inode number.
type Identity = ((i32, i32), u64, u64);

/// A file that has been searched.
#[derive(Debug)]
pub struct Found {
    /// The process that mapped the file.
    pub pid: u32,
    /// The mapping of the file.
    pub mapping: Mapping,
    /// The opened file.
    pub file: Arc<File>,
    /// What can be probed in the file, most often nothing.
    pub contents: Discovery,
}

/// The searched files, and the files that wait.
#[derive(Debug, Default)]
pub struct InspectedFiles {
    /// By file: what can be probed in it.
    seen: FxHashMap<Identity, Vec<Allocator>>,
    /// Programs among the files that Go's linker made, by device and inode.
    go_programs: FxHashSet<((i32, i32), u64)>,
    waiting: VecDeque<(u32, u32, Identity, Mapping)>,
    /// Large files that are being searched, at most [`MAX_UNFINISHED`].
    unfinished: VecDeque<(u32, u32, Identity, Mapping)>,
    /// [`Discoverer::searched_large_files`] when they were tried last.
    searched: u64,
    missed: u64,
}

impl InspectedFiles {
    /// Whether the mapping needs no search: it has no file, or its file has been searched or waits.
    pub fn has(&self, mapping: &Mapping, generation: u64) -> bool {
        !matches!(mapping.backing, Backing::File(_))
            || self.seen.contains_key(&(mapping.device, mapping.inode, generation))
    }

    /// Records that process `pid`, a child of `parent` (0: not known), has mapped a file. The
    /// generation distinguishes files that had one inode number. Returns what can be probed in the
    /// file, if it has been searched before.
    pub fn mapped(
        &mut self,
        pid: u32,
        parent: u32,
        mapping: &Mapping,
        generation: u64,
    ) -> &[Allocator] {
        let identity = (mapping.device, mapping.inode, generation);
        let is_new = !self.has(mapping, generation);
        if is_new && self.waiting.len() >= MAX_WAITING {
            self.missed += 1;
        } else if is_new {
            if self.seen.len() >= MAX_INSPECTED {
                self.seen.clear();
                self.go_programs.clear();
            }
            self.seen.insert(identity, Vec::new());
            self.waiting.push_back((pid, parent, identity, mapping.clone()));
        }
        self.seen.get(&identity).map_or(&[], Vec::as_slice)
    }

    /// Searches files that wait, for a few milliseconds at most.
    pub fn search_waiting(&mut self, discoverer: &mut Discoverer) -> Vec<Found> {
        let searched = discoverer.searched_large_files();
        if searched != std::mem::replace(&mut self.searched, searched) {
            self.waiting.append(&mut self.unfinished);
        }
        let mut found = Vec::new();
        let begin = Instant::now();
        while begin.elapsed() < MAX_TURN
            && let Some((pid, parent, identity, mapping)) = self.waiting.pop_front()
        {
            let pids = [pid, parent];
            let pids = if parent == 0 { &pids[..1] } else { &pids };
            match open_past(pids, &mapping) {
                Ok(file) => {
                    let Backing::File(path) = &mapping.backing else { continue };
                    let file = Arc::new(file);
                    let contents = discoverer.contents_of(Arc::clone(&file), path);
                    if contents.is_unfinished {
                        if self.unfinished.len() < MAX_UNFINISHED {
                            self.unfinished.push_back((pid, parent, identity, mapping));
                        } else {
                            // The survey finds the file.
                            self.seen.remove(&identity);
                            self.missed += 1;
                        }
                        continue;
                    }
                    self.seen.insert(identity, contents.files().cloned().collect());
                    let program = (identity.0, identity.1);
                    match contents.is_go_program {
                        true => self.go_programs.insert(program),
                        false => self.go_programs.remove(&program),
                    };
                    found.push(Found { pid, mapping, file, contents });
                }
                // Devices and other special files hold no allocator.
                Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {}
                Err(_) => {
                    // Another process may map the file where it can be opened.
                    self.seen.remove(&identity);
                    self.missed += 1;
                }
            }
        }
        found
    }

    /// Whether files wait.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Number of files that could not be searched when they were mapped.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Forgets every file with an allocator that `keep` rejects. Such a file is searched again when
    /// it is mapped again.
    pub fn keep(&mut self, keep: impl Fn(&Allocator) -> bool) {
        self.seen.retain(|_, allocators| allocators.iter().all(&keep));
    }

    /// Whether one of these mappings is of a program that Go's linker made, as far as files have
    /// been searched.
    pub fn has_go_program(&self, mappings: &[Mapping]) -> bool {
        let is_go = |of: &Mapping| self.go_programs.contains(&(of.device, of.inode));
        mappings.iter().any(is_go)
    }

    /// The allocators in the searched files that a process has mapped.
    pub fn allocators(&self, mappings: &[Mapping]) -> Vec<Allocator> {
        let has = |of: &Identity| {
            mappings.iter().any(|mapping| (mapping.device, mapping.inode) == (of.0, of.1))
        };
        let with = self.seen.iter().filter(|(of, allocators)| !allocators.is_empty() && has(of));
        with.flat_map(|(_, allocators)| allocators.iter().cloned()).collect()
    }
}
