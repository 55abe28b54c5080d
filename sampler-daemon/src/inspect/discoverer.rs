//! Finds the allocators of a process and the functions to probe in them.
//!
//! The search covers every file of which the process has code mapped. So it finds allocators in
//! containers, allocators that `dlopen` loads late, and allocators in replaced or deleted files.
//! `contents` decides what a file contains; this file handles processes.

mod large_files;

use super::allocator::Allocator;
use super::allocator::contents::Contents;
use super::allocator::spec::{self, Spec};
use super::code::moved;
use super::code::moving::{self, Executables};
use super::coverage;
use super::discovery::{Discovery, InForce, NONE_MAPPED, SelfSampler};
use super::elf::{Elf, ElfError};
use super::mappings::{self, Backing, Mapping};
use super::process::in_force;
use super::process::injected::Image;
use super::process::preloaded::Preloaded;
use super::usdt::Usdt;
use crate::regular_file::open_regular;
use large_files::LargeFiles;
use sampler_common::note::BlindSpot;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Most files remembered. At the bound all files are forgotten. The bound is several times
/// [`MAX_FILES`].
const REMEMBERED_FILES: usize = 4 * MAX_FILES;
/// Most files of a process that are searched. Large programs have some hundreds. Reading a new file
/// takes some 50 µs, during which all samples wait.
const MAX_FILES: usize = 2048;
/// Most code of a library that is searched for code that moves code, in bytes.
const SEARCHED_LIBRARY_BYTES: u64 = 8 << 20;
/// A file of which more has to be read, in bytes, is searched by another thread.
const LARGE_BYTES: u64 = 32 << 20;
/// Longest wait for the search of large files, where nothing else waits.
const LONGEST_SEARCH: Duration = Duration::from_secs(10);
/// Reported about a large file until it has been searched.
const BEING_SEARCHED: &str = "is large, and is still being searched for allocators";
/// Name of a file that samples its own allocations.
const SAMPLER: &str = "otel_memory";

/// Allocators of C libraries.
const LIBCS: [&str; 2] = ["glibc", "musl"];

/// Logged about an executable before it is probed.
const RISK: &str = "its allocator is in the executable: if it moved its code to anonymous memory while it is probed, it would be killed; \
     nothing in it looks as if it did (--probe-executables none: leaves such programs alone)";

/// Finds allocators, and remembers the files that it has read (by device, inode, size and change
/// time; bounded).
#[derive(Debug)]
pub struct Discoverer {
    remembered: HashMap<Version, Arc<Contents>>,
    /// Whether a library has code that moves code; at most [`REMEMBERED_FILES`] libraries.
    movers: HashMap<Version, bool>,
    /// USDT probes of the files, if probes of self-sampling files are used; at most
    /// [`REMEMBERED_FILES`] files.
    usdt: Option<HashMap<Version, Arc<Usdt>>>,
    spec: &'static Spec,
    /// Files of our own programs, which are never profiled. Above all, `sampler run` starts as the
    /// client and then becomes the user's program.
    own: Vec<(u64, u64)>,
    samplers_only: bool,
    executables: Executables,
    large_files: LargeFiles,
    /// Number of large files that have been searched.
    searched: u64,
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
    /// Modification time, seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Discoverer {
    /// A discoverer that uses the built-in allocators and the user's `spec`; `with_usdt`: it also
    /// finds files that sample themselves.
    pub fn new(with_usdt: bool, spec: &'static Spec) -> Discoverer {
        Discoverer {
            remembered: HashMap::new(),
            movers: HashMap::new(),
            usdt: with_usdt.then(HashMap::new),
            spec,
            own: own_programs(),
            samplers_only: false,
            executables: Executables::default(),
            large_files: LargeFiles::default(),
            searched: 0,
        }
    }

    /// Sets whether only files that sample themselves are found.
    pub fn samplers_only(self, samplers_only: bool) -> Discoverer {
        Discoverer { samplers_only, ..self }
    }

    /// Sets which allocators in executables are probed.
    pub fn executables(self, executables: Executables) -> Discoverer {
        Discoverer { executables, ..self }
    }

    /// The allocators mapped into process `pid` now. Waits for the search of large files.
    ///
    /// # Errors
    /// If the mappings of the process cannot be read, or the process has none (any more). A file
    /// that cannot be read is an entry of [`Discovery::blind_spots`], not an error.
    pub fn discover(&mut self, pid: u32) -> io::Result<Discovery> {
        let mappings = mappings::read_some(pid)?;
        self.finished(|discoverer| discoverer.discover_in_mappings(pid, &mappings))
    }

    /// The result of `inspect`, after the search of large files.
    fn finished<E>(
        &mut self,
        inspect: impl Fn(&mut Discoverer) -> Result<Discovery, E>,
    ) -> Result<Discovery, E> {
        let discovery = inspect(self)?;
        if !discovery.is_unfinished {
            return Ok(discovery);
        }
        self.wait_for_large_files();
        inspect(self)
    }

    /// Waits until all large files have been searched, ten seconds at most.
    pub fn wait_for_large_files(&self) {
        self.large_files.wait(LONGEST_SEARCH);
    }

    /// Number of large files that have been searched so far. If it has changed, another inspection
    /// of an unfinished process or file finds more.
    pub fn searched_large_files(&mut self) -> u64 {
        for (version, path, contents) in self.large_files.take() {
            self.searched += 1;
            self.remember(version, &path, contents);
        }
        self.searched
    }

    /// The allocators of a process whose mappings have just been read. Large files are searched
    /// meanwhile ([`Discovery::is_unfinished`]).
    ///
    /// # Errors
    /// As [`Discoverer::discover`].
    pub fn discover_in_mappings(
        &mut self,
        pid: u32,
        mappings: &[Mapping],
    ) -> io::Result<Discovery> {
        let mut discovery = Discovery::default();
        let (mut opened, mut unopened) = (Vec::new(), Vec::new());
        // Files that export a malloc to other files.
        let mut exporting: Vec<InForce> = Vec::new();
        let moved: Vec<&Mapping> = moved::files(mappings).collect();
        let mut files = files_with_code(mappings, &moved);
        let left_out = drop_middle_files(&mut files);
        if left_out > 0 {
            let why = format!("{left_out} of its files with code are not searched: too many");
            discovery.blind_spots.push(why.into());
            discovery.has_unseen_allocations = true;
        }
        for (mapping, path) in files.iter().copied() {
            match mappings::open(pid, mapping) {
                Ok(file) => {
                    let file = Arc::new(file);
                    opened.push((Arc::clone(&file), path));
                    exporting.extend(self.look_into(file, path, &mut discovery));
                }
                // Devices and other special files hold no allocator.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                Err(error) => unopened.push((mapping.clone(), error)),
            }
        }
        if !unopened.is_empty() {
            // A file that is not mapped any more needs no search.
            let now = mappings::read_some(pid)?;
            unopened.retain(|(mapping, _)| now.contains(mapping));
        }
        let not_searched = |(_, error)| BlindSpot::from(format!("{error}: not searched"));
        discovery.has_unseen_allocations |= !unopened.is_empty();
        discovery.blind_spots.extend(unopened.into_iter().map(not_searched));
        self.leave_movable(&opened, &mut discovery);
        for of in moved {
            if let Backing::File(path) = &of.backing {
                discovery.exclude_moved(path, |offset| moved::is_code(mappings, of, offset));
            }
        }
        let paths = files.iter().map(|(_, path)| *path);
        coverage::complete(pid, paths, &mut discovery.blind_spots);
        discovery.in_force = match in_force::link_order(pid, mappings) {
            Ok(order) if !order.is_empty() => {
                let of = |path: &String| exporting.iter().find(|of| of.path == *path);
                let mut in_order = order.iter().filter_map(of);
                discovery.behind_malloc = behind_malloc(in_order.clone());
                in_order.next().cloned()
            }
            // A static program uses its own malloc. A list that cannot be read gives no answer.
            Ok(_) => discovery.only(),
            Err(_) => None,
        };
        let image = Image::find(pid, mappings);
        if let Some(image) = image.filter(|image| image.is_hooked() == Some(true)) {
            discovery.prefer_injected(&image.past_malloc());
        }
        discovery.prefer_samplers();
        if self.samplers_only {
            discovery.only_samplers();
        }
        let has_none = discovery.allocators.is_empty() && discovery.samplers.is_empty();
        if has_none && discovery.blind_spots.is_empty() {
            discovery.blind_spots.push(NONE_MAPPED.into());
        }
        discovery.shorten();
        Ok(discovery)
    }

    /// What of an opened file can be probed, whether any process has mapped the file or not. A file
    /// that cannot be read is an entry of [`Discovery::blind_spots`].
    pub fn contents_of(&mut self, file: Arc<File>, path: &str) -> Discovery {
        let mut discovery = Discovery::default();
        self.look_into(file, path, &mut discovery);
        if self.samplers_only {
            discovery.allocators.clear();
        }
        discovery.shorten();
        discovery
    }

    /// What of the file at this path can be probed. Waits for the search of a large file.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn discover_in(&mut self, path: &Path) -> io::Result<Discovery> {
        let file = Arc::new(open_regular(path)?);
        let path = path.to_string_lossy();
        self.finished(|discoverer| Ok(discoverer.contents_of(Arc::clone(&file), &path)))
    }

    /// Leaves out allocators in the executable if code of another file may move the executable's
    /// code.
    fn leave_movable(&mut self, opened: &[(Arc<File>, &str)], discovery: &mut Discovery) {
        if self.executables != Executables::Checked {
            return;
        }
        let in_program = |of: &Allocator| {
            let version = Version::of(&of.file).ok();
            version.and_then(|of| self.remembered.get(&of)).is_some_and(|of| of.is_program)
        };
        let programs: Vec<String> = discovery
            .allocators
            .iter()
            .filter(|of| in_program(of))
            .map(|of| of.path.clone())
            .collect();
        if programs.is_empty() {
            return;
        }
        let mut others = opened.iter().filter(|(_, path)| !programs.iter().any(|of| of == path));
        let mover = others.find(|(file, _)| self.moves_code(file)).map(|(_, path)| *path);
        if let Some(mover) = mover {
            discovery.exclude_programs(&programs, mover);
        }
    }

    /// Whether code of a library may move code. Very large libraries are not searched, since all
    /// libraries of a process have to be.
    fn moves_code(&mut self, file: &File) -> bool {
        let Ok(version) = Version::of(file) else { return false };
        if let Some(known) = self.movers.get(&version) {
            return *known;
        }
        let find = || {
            let elf = Elf::read(file)?;
            let bytes: u64 = elf.code_segments().map(|(_, bytes)| bytes).sum();
            if bytes > SEARCHED_LIBRARY_BYTES { Ok(None) } else { moving::find(&elf) }
        };
        // A file that cannot be read counts as one that moves no code.
        let moves = matches!(find(), Ok::<_, ElfError>(Some(_)));
        if self.movers.len() >= REMEMBERED_FILES {
            self.movers.clear();
        }
        self.movers.insert(version, moves);
        moves
    }

    /// Searches one file. Returns its name and path if it exports `malloc` to other files.
    fn look_into(
        &mut self,
        file: Arc<File>,
        path: &str,
        discovery: &mut Discovery,
    ) -> Option<InForce> {
        let read =
            Version::of(&file).and_then(|version| Ok((version, self.read(version, &file, path)?)));
        let (version, contents) = match read {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                discovery.is_unfinished = true;
                discovery.blind_spots.push(BlindSpot::at(path, BEING_SEARCHED));
                return None;
            }
            Err(error) => {
                discovery.blind_spots.push(BlindSpot::at(path, format!("{error}: not searched")));
                return None;
            }
        };
        if self.own.contains(&version.identity) {
            return None;
        }
        discovery.is_go_program |= contents.is_go_program;
        if !contents.is_left_alone()
            && let Some(usdt) = self.read_usdt(version, &file, path, discovery)
        {
            let of = || InForce { name: SAMPLER.to_owned(), path: path.to_owned() };
            return usdt.defines_malloc.then(of);
        }
        discovery.has_unseen_allocations |= contents.has_unseen_allocations();
        discovery.blind_spots.extend(contents.blind_spots(path));
        let known = discovery.allocators.iter().any(|a| a.identity == version.identity);
        if !contents.probed().is_empty() && !known {
            discovery.allocators.push(Allocator {
                name: contents.name.clone(),
                path: path.to_owned(),
                build_id: contents.build_id.clone(),
                identity: version.identity,
                file,
                functions: contents.probed().to_vec(),
            });
        }
        let of = || InForce { name: contents.name.clone(), path: path.to_owned() };
        contents.exports_malloc.then(of)
    }

    /// The USDT probes of a file that samples itself, if the probes are of a kind that we read.
    fn read_usdt(
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
                // The search for allocators has already reported a file that cannot be read.
                let usdt = Arc::new(Usdt::read(file).unwrap_or_default());
                if remembered.len() >= REMEMBERED_FILES {
                    remembered.clear();
                }
                remembered.insert(version, Arc::clone(&usdt));
                usdt
            }
        };
        if let Some(why) = &usdt.refused {
            let why = format!("its otel_memory probes are not used: {why}");
            discovery.blind_spots.push(BlindSpot::at(path, why));
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

    /// What a file contains. `WouldBlock`: the file is large, and is searched meanwhile.
    fn read(
        &mut self,
        version: Version,
        file: &Arc<File>,
        path: &str,
    ) -> io::Result<Arc<Contents>> {
        self.searched_large_files();
        if let Some(contents) = self.remembered.get(&version) {
            return Ok(Arc::clone(contents));
        }
        if version.size > LARGE_BYTES
            && Elf::read(file).is_ok_and(|elf| elf.searched_bytes() > LARGE_BYTES)
            && self.large_files.search(version, file, path, (self.spec, self.executables))
        {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let contents = Contents::read(file, path, self.spec, self.executables)?;
        Ok(self.remember(version, path, contents))
    }

    fn remember(&mut self, version: Version, path: &str, contents: Contents) -> Arc<Contents> {
        let contents = Arc::new(contents);
        let is_at_risk = contents.is_program && !contents.probed().is_empty();
        if is_at_risk && self.executables == Executables::Checked {
            tracing::info!(path, "{RISK}");
        }
        if self.remembered.len() >= REMEMBERED_FILES {
            self.remembered.clear();
        }
        self.remembered.insert(version, Arc::clone(&contents));
        contents
    }
}

/// Files of which a process has code mapped, then the files of `others`; each file once.
fn files_with_code<'a>(
    mappings: &'a [Mapping],
    others: &[&'a Mapping],
) -> Vec<(&'a Mapping, &'a str)> {
    let mut seen = HashSet::new();
    let executable = mappings.iter().filter(|mapping| mapping.executable);
    let mapped = executable.chain(others.iter().copied()).filter_map(|of| match &of.backing {
        Backing::File(path) => Some((of, path.as_str())),
        _ => None,
    });
    mapped.filter(|(of, path)| seen.insert((of.device, of.inode, *path))).collect()
}

/// Leaves out files from the middle of the list beyond [`MAX_FILES`], and returns how many. The
/// program is the first of a process's mappings, and the libraries that were loaded first are the
/// last.
fn drop_middle_files<T>(files: &mut Vec<T>) -> usize {
    let left_out = files.len().saturating_sub(MAX_FILES);
    if left_out > 0 {
        files.drain(MAX_FILES / 2..MAX_FILES / 2 + left_out);
    }
    left_out
}

/// Paths of the files that may serve the process's `malloc`, from the files that define `malloc`,
/// in link order.
///
/// The first file that does not sample itself serves `malloc`. That file may take its memory from
/// the C library.
fn behind_malloc<'a>(in_order: impl Iterator<Item = &'a InForce>) -> Vec<String> {
    let allocators = in_order.filter(|of| of.name != SAMPLER).enumerate();
    let may_serve = |(at, of): &(usize, &InForce)| *at == 0 || LIBCS.contains(&&*of.name);
    allocators.filter(may_serve).map(|(_, of)| of.path.clone()).collect()
}

/// The files of this program and of the client in the same directory.
fn own_programs() -> Vec<(u64, u64)> {
    let Ok(own) = std::env::current_exe() else { return Vec::new() };
    let programs = [own.with_file_name("samplerd"), own.with_file_name("sampler")];
    let identity = |path: &PathBuf| path.metadata().ok().map(|of| (of.dev(), of.ino()));
    programs.iter().filter_map(identity).collect()
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
