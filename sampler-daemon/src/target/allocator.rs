//! Finds the allocators of a process and the functions to probe in them.
//!
//! Looks into every file of which the process has code mapped, so allocators in containers,
//! opened late by `dlopen`, replaced or deleted are found alike. What a file contains is decided
//! in `contents`; this is about processes.

use super::contents::Contents;
use super::coverage;
use super::link_order;
use super::mappings::{self, Backing, Mapping};
use super::placement::Placement;
use super::usdt::Usdt;
use sampler_common::wire::Role;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// Most files remembered; when full, all are forgotten (reading them again takes milliseconds).
const REMEMBERED_FILES: usize = 256;
/// Most lines about what cannot be seen in one process.
const BLIND_LINES: usize = 16;

/// What is said of a process in which nothing was found.
pub const NONE_MAPPED: &str = "no allocator is mapped (yet): none of its allocations are seen";

/// A function to probe; aliases at one address are one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Every name of it, the most usual first.
    pub symbols: Vec<String>,
    /// What it does.
    pub role: Role,
    /// File offset of its first instruction.
    pub offset: u64,
    /// Where its probe goes.
    pub placement: Placement,
}

/// An allocator: a file that defines the malloc family.
#[derive(Clone, Debug)]
pub struct Allocator {
    /// What it is: `glibc`.
    pub name: &'static str,
    /// Path in the process.
    pub path: String,
    /// GNU build id, lower-case hex, empty if it has none.
    pub build_id: String,
    /// Device and inode: the identity of the file.
    pub identity: (u64, u64),
    /// The very file that is mapped.
    pub file: Arc<File>,
    /// What to probe.
    pub functions: Vec<Function>,
}

/// What was found in a process.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// Allocators that can be probed.
    pub allocators: Vec<Allocator>,
    /// What cannot be seen in it, and why, one line each.
    pub blind: Vec<String>,
    /// Files that sample their allocations by themselves; their own malloc family is not among the allocators.
    pub samplers: Vec<SelfSampler>,
    /// One of these is the process's own `malloc`: what it allocates through other files' is what that one has asked them for.
    pub is_sampled: bool,
}

/// A file that samples its allocations by itself, see [`super::usdt`].
#[derive(Clone, Debug)]
pub struct SelfSampler {
    /// The file, with its probes as functions.
    pub allocator: Allocator,
    /// Its probes.
    pub usdt: Arc<Usdt>,
}

/// Finds allocators; remembers files that it has already read (by device, inode, size and change time; bounded).
#[derive(Debug, Default)]
pub struct Discoverer {
    remembered: HashMap<Version, Arc<Contents>>,
    /// Of the same files, where probes of self-sampling files are used.
    usdt: Option<HashMap<Version, Arc<Usdt>>>,
}

/// A file in one of its states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Version {
    identity: (u64, u64),
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Discoverer {
    /// One that also looks for files that sample by themselves, if asked to.
    pub fn new(with_usdt: bool) -> Discoverer {
        Discoverer { usdt: with_usdt.then(HashMap::new), ..Discoverer::default() }
    }

    /// The allocators mapped into process `pid` now.
    ///
    /// # Errors
    /// If the process' mappings cannot be read or it has none (any more). A file that cannot be
    /// read is a line in [`Discovery::blind`].
    pub fn discover(&mut self, pid: u32) -> io::Result<Discovery> {
        let mut discovery = Discovery::default();
        let mut seen = HashSet::new();
        let mut unopened = Vec::new();
        for mapping in read_mappings(pid)?.into_iter().filter(|mapping| mapping.executable) {
            let Backing::File(path) = &mapping.backing else { continue };
            if !seen.insert((mapping.device, mapping.inode, path.clone())) {
                continue;
            }
            match mappings::open(pid, &mapping) {
                Ok(file) => self.look_into(file, path, &mut discovery),
                // Devices and the like hold no allocator.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                Err(error) => unopened.push((mapping, error)),
            }
        }
        if !unopened.is_empty() {
            // What is not mapped any more did not need to be opened.
            let now = read_mappings(pid)?;
            unopened.retain(|(mapping, _)| now.contains(mapping));
        }
        let not_searched = |(_, error)| format!("{error}: not searched");
        discovery.blind.extend(unopened.into_iter().map(not_searched));
        let paths = seen.iter().map(|(_, _, path)| path.as_str());
        coverage::complete(pid, paths, &mut discovery.blind);
        discovery.prefer_samplers(pid)?;
        let has_none = discovery.allocators.is_empty() && discovery.samplers.is_empty();
        if has_none && discovery.blind.is_empty() {
            discovery.blind.push(NONE_MAPPED.to_owned());
        }
        discovery.shorten();
        Ok(discovery)
    }

    /// The allocators that an opened file contains; none if it cannot be read.
    pub fn allocators_of(&mut self, file: &File, path: &str) -> Vec<Allocator> {
        let mut discovery = Discovery::default();
        if let Ok(file) = file.try_clone() {
            self.look_into(file, path, &mut discovery);
        }
        discovery.allocators
    }

    fn look_into(&mut self, file: File, path: &str, discovery: &mut Discovery) {
        let read = Version::of(&file).and_then(|version| Ok((version, self.read(version, &file)?)));
        let (version, contents) = match read {
            Ok(read) => read,
            Err(error) => return discovery.blind.push(format!("{path}: {error}: not searched")),
        };
        let file = Arc::new(file);
        if self.look_for_usdt(version, &file, path, discovery) {
            return;
        }
        discovery.blind.extend(contents.blind(path));
        let known = discovery.allocators.iter().any(|a| a.identity == version.identity);
        if let (Contents::Glibc { build_id, functions, .. }, false) = (&*contents, known) {
            discovery.allocators.push(Allocator {
                name: "glibc",
                path: path.to_owned(),
                build_id: build_id.clone(),
                identity: version.identity,
                file,
                functions: functions.clone(),
            });
        }
    }

    /// Whether the file samples by itself in a way that we understand.
    fn look_for_usdt(
        &mut self,
        version: Version,
        file: &Arc<File>,
        path: &str,
        discovery: &mut Discovery,
    ) -> bool {
        let Some(remembered) = &mut self.usdt else { return false };
        let usdt = match remembered.get(&version) {
            Some(usdt) => Arc::clone(usdt),
            None => {
                // What cannot be read has been said already.
                let usdt = Arc::new(Usdt::read(file).unwrap_or_default());
                if remembered.len() >= REMEMBERED_FILES {
                    remembered.clear();
                }
                remembered.insert(version, Arc::clone(&usdt));
                usdt
            }
        };
        if let Some(why) = &usdt.refused {
            let line = format!("{path}: its otel_memory probes are not used: {why}");
            discovery.blind.push(line);
        }
        if usdt.probes.is_empty() {
            return false;
        }
        if discovery.samplers.iter().any(|of| of.allocator.identity == version.identity) {
            return true;
        }
        let allocator = Allocator {
            name: "otel_memory",
            path: path.to_owned(),
            build_id: usdt.build_id.clone(),
            identity: version.identity,
            file: Arc::clone(file),
            functions: usdt.functions(),
        };
        discovery.samplers.push(SelfSampler { allocator, usdt });
        true
    }

    fn read(&mut self, version: Version, file: &File) -> io::Result<Arc<Contents>> {
        if let Some(contents) = self.remembered.get(&version) {
            return Ok(Arc::clone(contents));
        }
        let contents = Arc::new(Contents::read(file)?);
        if self.remembered.len() >= REMEMBERED_FILES {
            self.remembered.clear();
        }
        self.remembered.insert(version, Arc::clone(&contents));
        Ok(contents)
    }
}

/// The mappings of a process that still has some: an exiting one gives up its memory first.
fn read_mappings(pid: u32) -> io::Result<Vec<Mapping>> {
    let mappings = mappings::read(pid)?;
    if mappings.is_empty() {
        let message = format!("read /proc/{pid}/maps: no mappings (the process has exited)");
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    Ok(mappings)
}

impl Discovery {
    /// Whether a file that samples by itself is the process's own `malloc`: it comes before every other one in the loader's order.
    /// Then those others serve it, or nobody, and to probe them as well would count twice.
    fn prefer_samplers(&mut self, pid: u32) -> io::Result<()> {
        if !self.samplers.iter().any(|of| of.usdt.defines_malloc) {
            return Ok(());
        }
        let order = link_order::read(pid, &read_mappings(pid)?);
        let place = |of: &Allocator| order.iter().position(|path| *path == of.path);
        let is_malloc = |of: &&Allocator| {
            of.functions.iter().any(|function| function.symbols.iter().any(|it| it == "malloc"))
        };
        let others = self.allocators.iter().filter(is_malloc).filter_map(place).min();
        let own = self.samplers.iter().filter(|of| of.usdt.defines_malloc);
        let first = own.filter_map(|of| place(&of.allocator)).min();
        self.is_sampled = match (first, others) {
            (Some(first), Some(other)) => first < other,
            (first, _) => first.is_some(),
        };
        if self.is_sampled {
            self.allocators.clear();
        }
        Ok(())
    }

    fn shorten(&mut self) {
        if let Some(more) = self.blind.len().checked_sub(BLIND_LINES).filter(|&more| more > 0) {
            self.blind.truncate(BLIND_LINES);
            self.blind.push(format!("and {more} more files"));
        }
    }
}

impl Version {
    fn of(file: &File) -> io::Result<Version> {
        let status = file.metadata()?;
        Ok(Version {
            identity: (status.dev(), status.ino()),
            size: status.size(),
            modified: (status.mtime(), status.mtime_nsec()),
            changed: (status.ctime(), status.ctime_nsec()),
        })
    }
}

#[cfg(test)]
mod tests;
