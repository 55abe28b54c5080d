//! Symbolizes frames of modules whose process may be gone.

use super::cached_lines::{Bounds, CachedLines, size};
use super::given_name;
use super::vdso::Vdso;
use crate::unwind::{GeneratedCode, Module, ModuleId, ModuleKind};
use rustc_hash::{FxHashMap, FxHashSet};
use sampler_common::profile::{Line, interposed};
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bounds of the cached names. At one of them, all locations are forgotten and looked up again.
const BOUNDS: Bounds = Bounds { locations: 1 << 20, bytes: 64 << 20 };
/// Bounds of the names of closed files. At one of them, these names are forgotten.
const CLOSED_BOUNDS: Bounds = Bounds { locations: 1 << 18, bytes: 16 << 20 };

/// Maximum bytes of the names of one file in one query. Names beyond the bound are shown as
/// addresses.
const MAX_FILE_BYTES: usize = 16 << 20;

/// Minimum time for the names of a file, however slow other files were before it.
const MIN_TIME: Duration = Duration::from_millis(250);

/// Reads names from files.
pub trait Reader {
    /// Lines of offsets in a module's file, innermost inlined function first; none for an unknown
    /// offset. The call takes about `time` at most. `None` if it would have taken longer, or if the
    /// lines cannot be known now.
    fn lines(
        &mut self,
        module: &Module,
        file: &File,
        offsets: &[u64],
        time: Duration,
    ) -> Option<Vec<Option<Vec<Line>>>>;

    /// Whether the reader may have more lines of a module's file than at the last call of
    /// [`Reader::lines`].
    fn has_more(&mut self, module: &Module) -> bool;

    /// Whether a part of a module's file, or of its debug file, is no longer read after failures.
    fn unread(&self, module: &Module) -> bool;

    /// Tells the reader that no query is running.
    fn rest(&mut self);
}

/// Symbolizes frames, and caches names by module and offset. A symbolizer lives on one thread, and
/// serves the modules of one [`crate::unwind::Modules`].
///
/// A module is one file as it was at one time. Files with one build id are different modules,
/// because anybody can write another file's build id into a file of their own.
pub struct Symbolizer<R> {
    reader: R,
    /// Time for one file, if no other file was slow before it.
    file_time: Duration,
    cached: CachedLines,
    /// Names in closed files, which cannot be looked up again.
    of_closed: CachedLines,
    vdsos: FxHashMap<ModuleId, Vdso>,
}

impl<R: Reader> Symbolizer<R> {
    /// A symbolizer that reads files by `reader`, with `file_time` for each file.
    pub fn new(reader: R, file_time: Duration) -> Symbolizer<R> {
        Symbolizer {
            reader,
            file_time,
            cached: CachedLines::new(BOUNDS),
            of_closed: CachedLines::new(CLOSED_BOUNDS),
            vdsos: FxHashMap::default(),
        }
    }

    /// Looks up frames of files that will be closed, and keeps their names.
    pub fn keep(&mut self, frames: &[(Arc<Module>, u64)]) {
        let named = self.symbolize(frames);
        self.of_closed.make_room(named.len());
        for ((module, offset), lines) in frames.iter().zip(named) {
            self.of_closed.insert(module, *offset, lines);
        }
    }

    /// Tells the reader that no query is running.
    pub fn rest(&mut self) {
        self.reader.rest();
    }

    /// The files of these frames that cannot be read completely.
    pub fn unread(&self, frames: &[(Arc<Module>, u64)]) -> Vec<String> {
        let modules = frames.iter().map(|(module, _)| module);
        // Few modules are unread, among many frames. So the filter comes before sorting.
        let mut unread: Vec<_> = modules.filter(|module| self.reader.unread(module)).collect();
        unread.sort_unstable_by_key(|module| module.id);
        unread.dedup_by_key(|module| module.id);
        unread.into_iter().map(|module| module.path.clone()).collect()
    }

    /// Lines of each frame `(module, offset as in crate::unwind::Frame)`, in the given order.
    /// Innermost inlined function first, at least one line each. The function of an unknown offset
    /// is `basename+0xoffset`.
    pub fn symbolize(&mut self, frames: &[(Arc<Module>, u64)]) -> Vec<Arc<[Line]>> {
        self.forget_outdated(frames);
        self.look_up_files(frames);
        let mut refreshed = Vec::new();
        frames
            .iter()
            .map(|(module, offset)| match &module.kind {
                ModuleKind::File(_) | ModuleKind::Closed => {
                    let known = self.cached.get(module.id, *offset);
                    let known = known.or_else(|| self.of_closed.get(module.id, *offset));
                    // Missing if the reader did not answer, or if one call has more locations than
                    // the cache holds.
                    known.cloned().unwrap_or_else(|| nameless(module, *offset))
                }
                ModuleKind::Vdso(bytes) => {
                    let vdso = self.vdsos.entry(module.id).or_insert_with(|| Vdso::parse(bytes));
                    named(vdso.find(*offset), module, *offset)
                }
                ModuleKind::Jit(code, naming) => {
                    if !refreshed.contains(&module.id) {
                        code.refresh();
                        refreshed.push(module.id);
                    }
                    let name = code.name(*offset, *naming);
                    name.map_or_else(
                        || nameless(module, *offset),
                        |name| Arc::from([given_name::line(&name)]),
                    )
                }
                ModuleKind::Python(lines) => match lines.line(*offset) {
                    Some(line) => Arc::from([line]),
                    None => nameless(module, *offset),
                },
                ModuleKind::Unknown => nameless(module, *offset),
            })
            .collect()
    }

    /// Forgets the cached locations of files for which the reader has more lines now.
    fn forget_outdated(&mut self, frames: &[(Arc<Module>, u64)]) {
        let outdated: FxHashSet<ModuleId> = files(frames)
            .into_iter()
            .filter(|module| self.reader.has_more(module))
            .map(|module| module.id)
            .collect();
        self.cached.forget(&outdated);
    }

    /// Looks up all unknown locations of a file in one call, which costs as much as many addresses.
    fn look_up_files(&mut self, frames: &[(Arc<Module>, u64)]) {
        let mut missing: FxHashMap<ModuleId, (&Arc<Module>, Vec<u64>)> = FxHashMap::default();
        for (module, offset) in frames {
            if let ModuleKind::File(_) = module.kind
                && self.cached.get(module.id, *offset).is_none()
            {
                missing.entry(module.id).or_insert((module, Vec::new())).1.push(*offset);
            }
        }
        let wanted: usize = missing.values().map(|(_, offsets)| offsets.len()).sum();
        if wanted > 0 && !self.cached.make_room(wanted) && wanted < frames.len() {
            // The known locations are gone too, so they are looked up as well.
            return self.look_up_files(frames);
        }
        let mut files: Vec<_> = missing.into_values().collect();
        // Files of root come first, because no other user has made them slow.
        files.sort_by_cached_key(|(module, _)| (!is_of_root(module), module.id));
        let mut spent = Duration::ZERO;
        for (module, offsets) in files {
            let begin = Instant::now();
            let time = self.file_time.saturating_sub(spent / 2).max(MIN_TIME);
            self.look_up_file(module, offsets, time);
            spent += begin.elapsed();
        }
    }

    fn look_up_file(&mut self, module: &Module, mut offsets: Vec<u64>, time: Duration) {
        let ModuleKind::File(file) = &module.kind else { return };
        offsets.sort_unstable();
        offsets.dedup();
        let Some(answers) = self.reader.lines(module, file, &offsets, time) else { return };
        let mut bytes = 0;
        for (offset, answer) in offsets.into_iter().zip(answers) {
            bytes += answer.as_deref().map_or(0, size);
            let answer = answer.filter(|_| bytes <= MAX_FILE_BYTES);
            let lines = answer.map_or_else(|| nameless(module, offset), as_called);
            self.cached.insert(module, offset, lines);
        }
    }
}

/// The modules of frames that are open files, each once.
pub(crate) fn files(frames: &[(Arc<Module>, u64)]) -> Vec<&Arc<Module>> {
    let mut seen = FxHashSet::default();
    let is_file = |module: &&Arc<Module>| matches!(module.kind, ModuleKind::File(_));
    let files = frames.iter().map(|(module, _)| module).filter(is_file);
    files.filter(|module| seen.insert(module.id)).collect()
}

/// The open files that have a build id, and of which a frame has no name. `named` has the lines of
/// each frame.
pub(crate) fn without_names<'a>(
    frames: &'a [(Arc<Module>, u64)],
    named: &[Arc<[Line]>],
) -> Vec<&'a Arc<Module>> {
    let nameless: FxHashSet<ModuleId> = frames
        .iter()
        .zip(named)
        .filter(|((module, offset), lines)| {
            lines[0].file.is_empty() && ***lines == *nameless(module, *offset)
        })
        .map(|((module, _), _)| module.id)
        .collect();
    let is_one = |module: &&Arc<Module>| nameless.contains(&module.id);
    files(frames).into_iter().filter(is_one).filter(|module| !module.build_id.is_empty()).collect()
}

/// The generated code of which a frame has no name. `named` has the lines of each frame.
pub(crate) fn unnamed_code(
    frames: &[(Arc<Module>, u64)],
    named: &[Arc<[Line]>],
) -> Vec<Arc<GeneratedCode>> {
    let mut unnamed: Vec<Arc<GeneratedCode>> = Vec::new();
    for ((module, offset), lines) in frames.iter().zip(named) {
        if let ModuleKind::Jit(code, _) = &module.kind
            && !unnamed.iter().any(|known| Arc::ptr_eq(known, code))
            && **lines == *nameless(module, *offset)
        {
            unnamed.push(Arc::clone(code));
        }
    }
    unnamed
}

/// The lines of a location. Functions of the in-process sampler have the names that the program
/// calls.
pub(crate) fn as_called(mut lines: Vec<Line>) -> Arc<[Line]> {
    for line in &mut lines {
        if let Some(called) = interposed(&line.function) {
            line.function = called.to_owned();
        }
    }
    Arc::from(lines)
}

fn is_of_root(module: &Module) -> bool {
    let ModuleKind::File(file) = &module.kind else { return false };
    file.metadata().is_ok_and(|file| file.uid() == 0)
}

fn named(name: Option<&Arc<str>>, module: &Module, offset: u64) -> Arc<[Line]> {
    match name {
        Some(name) => Arc::from([Line { function: name.to_string(), ..Line::default() }]),
        None => nameless(module, offset),
    }
}

fn nameless(module: &Module, offset: u64) -> Arc<[Line]> {
    Arc::from([Line::place(&module.path, offset)])
}
