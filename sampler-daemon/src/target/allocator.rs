//! Finds the allocators of a process and the functions to probe in them.
//!
//! Looks into every file of which the process has code mapped, so allocators in containers,
//! opened late by `dlopen`, replaced or deleted are found alike. What a file contains is decided
//! in `contents`; this is about processes.

use super::contents::Contents;
use super::coverage;
use super::in_force;
use super::mappings::{self, Backing, Mapping};
use super::placement::Placement;
use super::preloaded::Preloaded;
use super::spec::{self, Spec};
use super::usdt::Usdt;
use sampler_common::wire::{Role, Shape};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most files remembered; when full, all are forgotten (reading them again takes milliseconds).
const REMEMBERED_FILES: usize = 256;
/// Most lines about what cannot be seen in one process.
const BLIND_LINES: usize = 16;

/// What files are called that sample by themselves.
const SAMPLER: &str = "otel_memory";

/// What is said of a process in which nothing was found.
pub const NONE_MAPPED: &str = "no allocator is mapped (yet): none of its allocations are seen";

/// What is said of a process that does not sample by itself where nothing else is probed.
const NOT_PRELOADED: &str = "does not sample by itself (--samplers-only): none of its allocations are seen; the preloaded \
     library does not enter static and setuid programs";

/// What is said of an allocator that programs call by other names than `malloc`, where a library samples `malloc`.
const PAST_MALLOC: &str = ": is called past malloc, which the preloaded library samples: what it gives out is not seen (start the program without that library, or samplerd with --no-usdt)";

/// A function to probe; aliases at one address are one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Every name of it, the most usual first.
    pub symbols: Vec<String>,
    /// What it does.
    pub role: Role,
    /// Where its arguments are.
    pub shape: Shape,
    /// File offset of its first instruction.
    pub offset: u64,
    /// Where its probe goes.
    pub placement: Placement,
}

impl Function {
    /// File offset of its probe.
    pub fn probed(&self) -> u64 {
        self.offset + u64::from(self.placement.displacement)
    }
}

/// A file with an allocator, or several.
#[derive(Clone, Debug)]
pub struct Allocator {
    /// What it is: `glibc`, `jemalloc and glibc`.
    pub name: String,
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

impl Allocator {
    /// What it is, and where.
    pub fn title(&self) -> String {
        format!("{} ({})", self.name, self.path)
    }

    /// Whether programs reach it by `malloc`, and not only by names of its own.
    fn is_malloc(&self) -> bool {
        self.functions.iter().any(|of| of.symbols.iter().any(|name| name == "malloc"))
    }

    /// The name of the function that is probed at this offset of the file at this path.
    pub fn probed_at(&self, path: &str, offset: u64) -> Option<&String> {
        let mut functions = self.functions.iter().filter(|_| self.path == path);
        functions.find(|of| of.probed() == offset)?.symbols.first()
    }
}

#[cfg(test)]
impl Allocator {
    /// One without functions.
    pub fn none() -> Allocator {
        Allocator {
            name: "none".to_owned(),
            path: "/dev/null".to_owned(),
            build_id: String::new(),
            identity: (0, 0),
            file: Arc::new(File::open("/dev/null").unwrap()),
            functions: Vec::new(),
        }
    }
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
    /// The allocator whose `malloc` the process uses, if that can be told.
    pub in_force: Option<InForce>,
}

/// A file that samples its allocations by itself, see [`super::usdt`].
#[derive(Clone, Debug)]
pub struct SelfSampler {
    /// The file, with its probes as functions.
    pub allocator: Allocator,
    /// Its probes.
    pub usdt: Arc<Usdt>,
    /// Its settings, if it is our own library.
    pub preloaded: Option<Preloaded>,
}

/// The allocator whose `malloc` a process uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// What it is, empty if it is none that we know.
    pub name: String,
    /// Path in the process.
    pub path: String,
}

/// Finds allocators; remembers files that it has already read (by device, inode, size and change time; bounded).
#[derive(Debug)]
pub struct Discoverer {
    remembered: HashMap<Version, Arc<Contents>>,
    /// Of the same files, where probes of self-sampling files are used.
    usdt: Option<HashMap<Version, Arc<Usdt>>>,
    spec: &'static Spec,
    /// Our own programs: nobody wants to know what they allocate, least of all who runs under one of them at first (`sampler run`).
    own: Vec<(u64, u64)>,
    samplers_only: bool,
}

impl Default for Discoverer {
    fn default() -> Discoverer {
        Discoverer::new(false, &spec::EMPTY)
    }
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
    /// Of what is known and what the user says; one that also looks for files that sample by themselves, if asked to.
    pub fn new(with_usdt: bool, spec: &'static Spec) -> Discoverer {
        Discoverer {
            remembered: HashMap::new(),
            usdt: with_usdt.then(HashMap::new),
            spec,
            own: own_programs(),
            samplers_only: false,
        }
    }

    /// The same, which finds nothing else than files that sample by themselves, if so asked.
    pub fn samplers_only(self, samplers_only: bool) -> Discoverer {
        Discoverer { samplers_only, ..self }
    }

    /// The allocators mapped into process `pid` now.
    ///
    /// # Errors
    /// If the process' mappings cannot be read or it has none (any more). A file that cannot be
    /// read is a line in [`Discovery::blind`].
    pub fn discover(&mut self, pid: u32) -> io::Result<Discovery> {
        self.discover_among(pid, &read_mappings(pid)?)
    }

    /// The same of a process whose mappings have just been read.
    ///
    /// # Errors
    /// As [`Discoverer::discover`].
    pub fn discover_among(&mut self, pid: u32, mappings: &[Mapping]) -> io::Result<Discovery> {
        let mut discovery = Discovery::default();
        let mut seen = HashSet::new();
        let mut unopened = Vec::new();
        // Files that others may bind their malloc to.
        let mut exporting: Vec<InForce> = Vec::new();
        for mapping in mappings.iter().filter(|mapping| mapping.executable) {
            let Backing::File(path) = &mapping.backing else { continue };
            if !seen.insert((mapping.device, mapping.inode, path.clone())) {
                continue;
            }
            match mappings::open(pid, mapping) {
                Ok(file) => {
                    exporting.extend(self.look_into(file, path, &mut discovery));
                }
                // Devices and the like hold no allocator.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                Err(error) => unopened.push((mapping.clone(), error)),
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
        discovery.in_force = match in_force::link_order(pid, mappings) {
            Ok(order) if !order.is_empty() => {
                let first = |path: &String| exporting.iter().find(|of| of.path == *path);
                order.iter().find_map(first).cloned()
            }
            // A static program uses its own; a list that cannot be read tells nothing.
            Ok(_) => discovery.only(),
            Err(_) => None,
        };
        discovery.prefer_samplers();
        if self.samplers_only {
            discovery.only_samplers();
        }
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
        // Of those there is nothing else to be probed.
        if self.samplers_only { Vec::new() } else { discovery.allocators }
    }

    /// The allocator in a file, whether any process has mapped it or not.
    ///
    /// # Errors
    /// If it cannot be opened. One that cannot be read is a line in [`Discovery::blind`].
    pub fn discover_in(&mut self, path: &Path) -> io::Result<Discovery> {
        let mut discovery = Discovery::default();
        self.look_into(File::open(path)?, &path.to_string_lossy(), &mut discovery);
        if self.samplers_only {
            discovery.allocators.clear();
        }
        discovery.shorten();
        Ok(discovery)
    }

    /// Looks into one file; whether its `malloc` is for others too.
    fn look_into(&mut self, file: File, path: &str, discovery: &mut Discovery) -> Option<InForce> {
        let read =
            Version::of(&file).and_then(|version| Ok((version, self.read(version, &file, path)?)));
        let (version, contents) = match read {
            Ok(read) => read,
            Err(error) => {
                discovery.blind.push(format!("{path}: {error}: not searched"));
                return None;
            }
        };
        if self.own.contains(&version.identity) {
            return None;
        }
        let file = Arc::new(file);
        if let Some(usdt) = self.look_for_usdt(version, &file, path, discovery) {
            let of = || InForce { name: SAMPLER.to_owned(), path: path.to_owned() };
            return usdt.defines_malloc.then(of);
        }
        discovery.blind.extend(contents.blind(path));
        let known = discovery.allocators.iter().any(|a| a.identity == version.identity);
        if !contents.functions.is_empty() && !known {
            discovery.allocators.push(Allocator {
                name: contents.name.clone(),
                path: path.to_owned(),
                build_id: contents.build_id.clone(),
                identity: version.identity,
                file,
                functions: contents.functions.clone(),
            });
        }
        let of = || InForce { name: contents.name.clone(), path: path.to_owned() };
        contents.exports_malloc.then(of)
    }

    /// What a file that samples by itself, in a way that we understand, says of that.
    fn look_for_usdt(
        &mut self,
        version: Version,
        file: &Arc<File>,
        path: &str,
        discovery: &mut Discovery,
    ) -> Option<Arc<Usdt>> {
        let remembered = self.usdt.as_mut()?;
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
            return None;
        }
        if discovery.samplers.iter().any(|of| of.allocator.identity == version.identity) {
            return Some(usdt);
        }
        let allocator = Allocator {
            name: SAMPLER.to_owned(),
            path: path.to_owned(),
            build_id: usdt.build_id.clone(),
            identity: version.identity,
            file: Arc::clone(file),
            functions: usdt.functions(),
        };
        let preloaded = if usdt.defines_malloc { Preloaded::find(file) } else { None };
        discovery.samplers.push(SelfSampler { allocator, usdt: Arc::clone(&usdt), preloaded });
        Some(usdt)
    }

    fn read(&mut self, version: Version, file: &File, path: &str) -> io::Result<Arc<Contents>> {
        if let Some(contents) = self.remembered.get(&version) {
            return Ok(Arc::clone(contents));
        }
        let contents = Arc::new(Contents::read(file, path, self.spec)?);
        if self.remembered.len() >= REMEMBERED_FILES {
            self.remembered.clear();
        }
        self.remembered.insert(version, Arc::clone(&contents));
        Ok(contents)
    }
}

/// This program and the client beside it.
fn own_programs() -> Vec<(u64, u64)> {
    let Ok(own) = std::env::current_exe() else { return Vec::new() };
    let programs = [own.with_file_name("samplerd"), own.with_file_name("sampler")];
    let identity = |path: &PathBuf| path.metadata().ok().map(|of| (of.dev(), of.ino()));
    programs.iter().filter_map(identity).collect()
}

/// The mappings of a process that still has some: an exiting one gives up its memory first.
///
/// # Errors
/// If they cannot be read, or there are none (any more).
pub fn read_mappings(pid: u32) -> io::Result<Vec<Mapping>> {
    let mappings = mappings::read(pid)?;
    if mappings.is_empty() {
        let message = format!("read /proc/{pid}/maps: no mappings (the process has exited)");
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    Ok(mappings)
}

impl Discovery {
    /// Whether this file is among those that can be probed.
    pub fn has(&self, identity: (u64, u64)) -> bool {
        let samplers = self.samplers.iter().map(|sampler| &sampler.allocator);
        self.allocators.iter().chain(samplers).any(|of| of.identity == identity)
    }

    /// Whether a file that samples by itself is the process's own `malloc`: it comes before every other one in the loader's order.
    /// Then those others serve it, or nobody, and to probe them as well would count twice; or they have a heap of their own, of which nothing is seen.
    fn prefer_samplers(&mut self) {
        let in_force = self.in_force.as_ref();
        let is_own = |of: &SelfSampler| in_force.is_some_and(|it| it.path == of.allocator.path);
        self.is_sampled = self.samplers.iter().any(|of| of.usdt.defines_malloc && is_own(of));
        if self.is_sampled {
            self.leave_allocators();
        }
    }

    /// Says which of the allocators that are not probed are not behind `malloc` either.
    fn leave_allocators(&mut self) {
        let past = self.allocators.drain(..).filter(|of| !of.is_malloc());
        self.blind.extend(past.map(|of| format!("{}{PAST_MALLOC}", of.title())));
    }

    /// Leaves nothing but files that sample by themselves. A process without is not seen, whatever else could not be.
    fn only_samplers(&mut self) {
        self.leave_allocators();
        if self.samplers.is_empty() {
            self.blind = vec![NOT_PRELOADED.to_owned()];
        }
    }

    /// The allocator of a process that has only one.
    fn only(&self) -> Option<InForce> {
        match self.allocators.as_slice() {
            [one] => Some(InForce { name: one.name.clone(), path: one.path.clone() }),
            _ => None,
        }
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
