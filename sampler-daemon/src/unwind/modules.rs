//! The table of modules. Modules stay after their processes are gone, as long as a stack needs
//! them.
//!
//! A module belongs to the process that had it first, and no process holds more than its share of
//! the table ([`share`](sampler_common::share)). [`Modules::collect`] forgets modules that no
//! process has mapped and no stack needs.

use super::cfi::Cfi;
use super::cfi::cache::CfiCache;
use super::elf::{Headers, Sections};
use super::generated::GeneratedCode;
use super::generated::name_budget::NameBudget;
use super::image::mapped::read_own_vdso;
use super::module::{Life, Module, ModuleId, ModuleKind};
use super::python::PythonLines;
use crate::inspect::mappings::{self, Backing, Mapping};
use rustc_hash::{FxHashMap, FxHashSet};
use sampler_common::share::{Holder, Shares};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Most modules held. Modules beyond a process's share are `[unknown]`, and frames in them keep
/// their addresses.
pub const MAX_MODULES: usize = 16 * 1024;

/// Most files held open, and never more than half of the descriptors that we may have; the rest is
/// for clients. A file beyond a process's share keeps its path, build id and unwind information,
/// but is closed. Its module is of kind [`ModuleKind::Unknown`], and its frames are named
/// `file+0xoffset`.
pub const MAX_OPEN_FILES: usize = 4096;

/// Bound of the recently mapped files. They are held open for a moment, in case a sample has a
/// frame in them.
const MAX_RECENT: usize = 64;
const RECENT: Duration = Duration::from_secs(2);

/// The identity of a file: device and inode, as the process's mappings show them.
type Identity = ((i32, i32), u64);

/// Attributes that show whether a file was overwritten, or its inode was given to another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    device: u64,
    /// Number of hard links, 0 for a deleted file.
    links: u64,
}

impl Stamp {
    fn of(file: &File) -> Option<Stamp> {
        let it = file.metadata().ok()?;
        Some(Stamp {
            size: it.size(),
            modified: (it.mtime(), it.mtime_nsec()),
            changed: (it.ctime(), it.ctime_nsec()),
            device: it.dev(),
            links: it.nlink(),
        })
    }

    /// Whether a file that is held open has not been overwritten in place. (The time of change does
    /// not count, since deleting the file changes it.)
    fn is_as_long_and_old(&self, other: &Stamp) -> bool {
        (self.size, self.modified) == (other.size, other.modified)
    }
}

#[derive(Debug)]
struct Entry {
    module: Arc<Module>,
    headers: Option<Headers>,
    stamp: Option<Stamp>,
    /// The process that had the module first; 0: our own.
    by: Holder<u32>,
}

/// The modules, bounded. Further ones are `[unknown]`.
#[derive(Debug)]
pub struct Modules {
    entries: FxHashMap<ModuleId, Entry>,
    unknown: Arc<Module>,
    /// The id of the next module. Ids are never reused, because names are remembered by them.
    next: u32,
    shares: Shares<u32>,
    /// Number of modules after the last [`Modules::collect`].
    collected: usize,
    files: FxHashMap<Identity, ModuleId>,
    vdsos: FxHashMap<Arc<[u8]>, ModuleId>,
    own_vdso: Option<Arc<[u8]>>,
    recent: VecDeque<(Instant, Identity, Arc<File>)>,
    /// Device of the root directory, which is never unmounted.
    root_device: Option<u64>,
    open_files: usize,
    max_open_files: usize,
    open_shares: Shares<u32>,
    /// Generated code that may hold its perf map open, with the process of the code.
    generated: Vec<(Holder<u32>, Weak<GeneratedCode>)>,
    names: Arc<NameBudget>,
    cfi: CfiCache,
    counts: Counts,
    views: u64,
}

/// How often each bound was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Modules that became `[unknown]` because their process had its share of the table.
    pub table_full: u64,
    /// Files that could not be opened.
    pub unopened: u64,
    /// Files that were read but not kept open, see [`MAX_OPEN_FILES`].
    pub unheld: u64,
    /// Names of generated code for which there was no room, see
    /// [`MAX_NAME_BYTES`](super::MAX_NAME_BYTES).
    pub names_refused: u64,
    /// Modules without unwind information because of [`MAX_UNWIND_BYTES`](super::MAX_UNWIND_BYTES).
    pub no_room_for_sections: u64,
}

impl Default for Modules {
    fn default() -> Modules {
        let unknown = Module {
            id: ModuleId::UNKNOWN,
            path: "[unknown]".to_owned(),
            build_id: String::new(),
            code: Vec::new(),
            kind: ModuleKind::Unknown,
            life: Life::default(),
        };
        Modules {
            entries: FxHashMap::default(),
            unknown: Arc::new(unknown),
            next: 1,
            shares: Shares::default(),
            collected: 0,
            files: FxHashMap::default(),
            vdsos: FxHashMap::default(),
            own_vdso: None,
            recent: VecDeque::new(),
            root_device: fs::metadata("/").ok().map(|root| root.dev()),
            open_files: 0,
            max_open_files: (descriptor_limit() / 2).min(MAX_OPEN_FILES),
            open_shares: Shares::default(),
            generated: Vec::new(),
            names: Arc::default(),
            cfi: CfiCache::default(),
            counts: Counts::default(),
            views: 0,
        }
    }
}

impl Modules {
    /// The module with this id, `[unknown]` if the table has none.
    pub fn get(&self, id: ModuleId) -> &Arc<Module> {
        self.entries.get(&id).map_or(&self.unknown, |entry| &entry.module)
    }

    /// Modules held, and the bound.
    pub fn usage(&self) -> (usize, usize) {
        (self.entries.len(), MAX_MODULES)
    }

    /// How often the bounds were reached.
    pub fn counts(&self) -> Counts {
        Counts { names_refused: self.names.refused(), ..self.counts }
    }

    /// Bytes of the names of generated code.
    pub fn name_bytes(&self) -> usize {
        self.names.used()
    }

    /// A new number for the present mappings of an image, see [`Image::view`](super::Image::view).
    pub(super) fn next_view(&mut self) -> u64 {
        self.views += 1;
        self.views
    }

    /// Whether the table has grown by a sixteenth since the last [`Modules::collect`], so that
    /// another collection is due.
    pub fn has_grown(&self) -> bool {
        self.entries.len() >= self.collected + MAX_MODULES / 16
    }

    /// Forgets all modules but those that processes have mapped and those that stacks need.
    pub fn collect(&mut self, mapped: &FxHashSet<ModuleId>, needed: &FxHashSet<ModuleId>) {
        self.entries.retain(|id, _| mapped.contains(id) || needed.contains(id));
        self.files.retain(|_, id| self.entries.contains_key(id));
        self.vdsos.retain(|_, id| self.entries.contains_key(id));
        self.cfi.retain(|id| self.entries.contains_key(&id));
        self.shares.recount(self.entries.values().map(|entry| entry.by));
        for entry in self.entries.iter().filter(|(id, _)| !mapped.contains(id)) {
            if let ModuleKind::Jit(code, _) = &entry.1.module.kind {
                code.end();
            }
        }
        self.collected = self.entries.len();
        self.recount_open();
    }

    fn recount_open(&mut self) {
        self.generated.retain(|(_, code)| code.upgrade().is_some_and(|code| code.may_open()));
        let is_file = |entry: &&Entry| matches!(entry.module.kind, ModuleKind::File(_));
        let files = self.entries.values().filter(is_file).map(|entry| entry.by);
        let open = files.chain(self.generated.iter().map(|(by, _)| *by)).collect::<Vec<_>>();
        self.open_files = open.len();
        self.open_shares.recount(open.into_iter());
    }

    /// Whether one more file may be held open for a process. If so, the file is counted as open.
    fn may_hold_open(&mut self, by: Holder<u32>) -> bool {
        let may = self.open_shares.grow(by, self.open_files, self.max_open_files);
        self.open_files += usize::from(may);
        may
    }

    /// The module behind a file mapping of a living process.
    pub(super) fn file(&mut self, by: Holder<u32>, mapping: &Mapping) -> ModuleId {
        let identity = (mapping.device, mapping.inode);
        let known = self.files.get(&identity).copied();
        if let Some(id) = self.without_opening(by, known) {
            return id;
        }
        self.opened(by, known, mapping, mappings::open(by.process, mapping).map(Arc::new))
    }

    /// The module behind a file mapping that an event has reported. The process may be gone. Then
    /// the file is opened through its parent (0: none is known).
    pub(super) fn past_file(
        &mut self,
        by: Holder<u32>,
        parent: u32,
        mapping: &Mapping,
    ) -> ModuleId {
        let identity = (mapping.device, mapping.inode);
        let pids = [by.process, parent];
        let pids = if parent == 0 { &pids[..1] } else { &pids };
        let known = self.files.get(&identity).copied();
        if let Some(id) = self.without_opening(by, known) {
            return id;
        }
        let recent = self.recent.iter().find(|(_, of, _)| *of == identity);
        let file = match recent {
            Some((_, _, file)) => Ok(Arc::clone(file)),
            None => mappings::open_past(pids, mapping).map(Arc::new),
        };
        self.opened(by, known, mapping, file)
    }

    /// The module of a file that need not be opened. Either the module holds the unchanged file, or
    /// the process has no room for another module.
    fn without_opening(&mut self, by: Holder<u32>, known: Option<ModuleId>) -> Option<ModuleId> {
        match known {
            Some(id) => self.is_unchanged(id).then_some(id),
            None if self.shares.has_room(by, self.entries.len(), MAX_MODULES) => None,
            None => {
                self.counts.table_full += 1;
                Some(ModuleId::UNKNOWN)
            }
        }
    }

    /// Keeps a file open that was opened when it was mapped first. The file may be deleted and its
    /// process gone before a sample needs the file.
    pub fn remember_file(&mut self, mapping: &Mapping, file: Arc<File>) {
        if self.recent.len() >= MAX_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((Instant::now(), (mapping.device, mapping.inode), file));
    }

    /// Closes files that are not recent any more.
    pub fn close_old(&mut self) {
        while self.recent.front().is_some_and(|(at, ..)| at.elapsed() > RECENT) {
            self.recent.pop_front();
        }
    }

    /// Files to close, which no process has mapped: files that are deleted or could be unmounted.
    /// If more than half of the permitted files are open, all files that no process has mapped.
    pub fn to_close(&self, mapped: &FxHashSet<ModuleId>) -> Vec<ModuleId> {
        let are_many = self.open_files > self.max_open_files / 2;
        let others = self.entries.iter().filter(|(id, _)| !mapped.contains(id));
        let closed = others.filter(|(_, entry)| match &entry.module.kind {
            ModuleKind::File(file) => {
                let is_of_root = |stamp: Stamp| Some(stamp.device) == self.root_device;
                are_many || !Stamp::of(file).is_some_and(|now| now.links > 0 && is_of_root(now))
            }
            _ => false,
        });
        closed.map(|(id, _)| *id).collect()
    }

    /// Closes the file of a module. The unwind information stays as long as there is room.
    pub fn close(&mut self, id: ModuleId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let ModuleKind::File(file) = &entry.module.kind else { return };
        entry.stamp = Stamp::of(file);
        Arc::make_mut(&mut entry.module).kind = ModuleKind::Closed;
        self.recount_open();
    }

    /// Holds the file of a module open, if the process has room for it. The file is new, was
    /// closed, or another process had no room for it.
    fn hold(&mut self, id: ModuleId, by: Holder<u32>, file: &Arc<File>) -> bool {
        if matches!(self.get(id).kind, ModuleKind::File(_)) {
            return true;
        }
        let may = self.may_hold_open(by);
        if may && let Some(entry) = self.entries.get_mut(&id) {
            Arc::make_mut(&mut entry.module).kind = ModuleKind::File(Arc::clone(file));
            entry.by = by;
        }
        may
    }

    /// Whether a file with the inode of a module is still as it was when the module was read.
    fn is_as_read(&self, id: ModuleId, file: &File) -> bool {
        let stamp = self.entries.get(&id).and_then(|entry| entry.stamp);
        stamp.is_some() && stamp == Stamp::of(file)
    }

    /// Whether a changed file with the inode of a module is still the same program, because only
    /// its times were touched. The inode of a closed file may belong to another file by now.
    fn is_same_program(&self, id: ModuleId, build_id: &str) -> bool {
        let entry = self.entries.get(&id);
        entry.is_some_and(|entry| {
            !matches!(entry.module.kind, ModuleKind::Closed)
                && !build_id.is_empty()
                && entry.module.build_id == build_id
        })
    }

    fn opened(
        &mut self,
        by: Holder<u32>,
        known: Option<ModuleId>,
        mapping: &Mapping,
        file: io::Result<Arc<File>>,
    ) -> ModuleId {
        let identity = (mapping.device, mapping.inode);
        let Ok(file) = file else {
            self.counts.unopened += 1;
            return known.unwrap_or_else(|| {
                let id = self.add(by, path_of(mapping), None, ModuleKind::Unknown);
                self.remember(identity, id)
            });
        };
        if let Some(id) = known.filter(|id| self.is_as_read(*id, &file)) {
            self.hold(id, by, &file);
            self.load_unless_held(id, &file);
            return id;
        }
        let headers = Headers::of_file(&file);
        let build_id = headers.as_ref().map_or_else(String::new, |it| it.build_id.clone());
        if let Some(id) = known.filter(|id| self.is_same_program(*id, &build_id)) {
            self.hold(id, by, &file);
            self.note_stamp(id, &file);
            self.load_unless_held(id, &file);
            return id;
        }
        let id = self.add(by, path_of(mapping), headers, ModuleKind::Unknown);
        if id == ModuleId::UNKNOWN {
            return id;
        }
        let is_held = self.hold(id, by, &file);
        self.counts.unheld += u64::from(!is_held);
        self.note_stamp(id, &file);
        self.load_unless_held(id, &file);
        self.remember(identity, id)
    }

    fn note_stamp(&mut self, id: ModuleId, file: &File) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.stamp = Stamp::of(file);
        }
    }

    /// The vdso of a process, by its bytes.
    pub(super) fn vdso(&mut self, by: Holder<u32>, bytes: &[u8]) -> ModuleId {
        if let Some(id) = self.vdsos.get(bytes) {
            return *id;
        }
        let headers = Headers::of_bytes(bytes);
        let bytes: Arc<[u8]> = Arc::from(bytes);
        let id = self.add(by, "[vdso]".to_owned(), headers, ModuleKind::Vdso(Arc::clone(&bytes)));
        if id != ModuleId::UNKNOWN {
            self.vdsos.insert(bytes, id);
        }
        id
    }

    /// Our own vdso as that of a process that may be gone, if both have the same length.
    pub(super) fn own_vdso(&mut self, length: u64) -> ModuleId {
        let own = self.own_vdso.get_or_insert_with(|| read_own_vdso().unwrap_or_default().into());
        let own = Arc::clone(own);
        match own.len() as u64 == length {
            true => self.vdso(Holder::of_unknown_user(0), &own),
            false => ModuleId::UNKNOWN,
        }
    }

    /// The anonymous code of one program image.
    pub(super) fn generated_code(&mut self, by: Holder<u32>) -> Arc<GeneratedCode> {
        let may_open = self.may_hold_open(by);
        let code = Arc::new(GeneratedCode::within(by, may_open, &self.names));
        if may_open {
            self.generated.push((by, Arc::downgrade(&code)));
        }
        code
    }

    /// A new module for anonymous code.
    pub(super) fn jit(
        &mut self,
        by: Holder<u32>,
        code: &Arc<GeneratedCode>,
        naming: u32,
    ) -> ModuleId {
        let kind = ModuleKind::Jit(Arc::clone(code), naming);
        self.add(by, format!("[jit {}]", by.process), None, kind)
    }

    /// A new module for the Python code of a process.
    pub(super) fn python(&mut self, by: Holder<u32>) -> (Arc<PythonLines>, ModuleId) {
        let lines = Arc::new(PythonLines::within(&self.names, by.user));
        let kind = ModuleKind::Python(Arc::clone(&lines));
        (lines, self.add(by, format!("[python {}]", by.process), None, kind))
    }

    /// ELF headers of a module; none if the module is not an ELF file.
    pub(super) fn headers(&self, id: ModuleId) -> Option<&Headers> {
        self.entries.get(&id)?.headers.as_ref()
    }

    /// Call frame information of a module, read on first use.
    pub(super) fn cfi(&mut self, id: ModuleId) -> Option<Arc<Cfi>> {
        if let Some(known) = self.cfi.get(id) {
            return known.clone();
        }
        let sections = match &self.get(id).kind {
            ModuleKind::File(file) => Sections::of_file(file),
            ModuleKind::Vdso(bytes) => Sections::of_bytes(bytes),
            ModuleKind::Jit(..)
            | ModuleKind::Python(_)
            | ModuleKind::Closed
            | ModuleKind::Unknown => return None,
        };
        self.keep_sections(id, sections)
    }

    /// Adds a module of a process; `[unknown]` if the process has its share of the table.
    fn add(
        &mut self,
        by: Holder<u32>,
        path: String,
        headers: Option<Headers>,
        kind: ModuleKind,
    ) -> ModuleId {
        if !self.shares.grow(by, self.entries.len(), MAX_MODULES) {
            self.counts.table_full += 1;
            return ModuleId::UNKNOWN;
        }
        let id = ModuleId(self.next);
        self.next += 1;
        let build_id = headers.as_ref().map_or_else(String::new, |it| it.build_id.clone());
        let code = headers.as_ref().map_or_else(Vec::new, Headers::code_segments);
        let module = Arc::new(Module { id, path, build_id, code, kind, life: Life::default() });
        self.entries.insert(id, Entry { module, headers, stamp: None, by });
        id
    }

    fn remember(&mut self, identity: Identity, id: ModuleId) -> ModuleId {
        if id != ModuleId::UNKNOWN {
            self.files.insert(identity, id);
        }
        id
    }

    /// Whether the module holds its file, and the file is unchanged. The kernel gives the inode of
    /// an open file to no other file.
    fn is_unchanged(&self, id: ModuleId) -> bool {
        let Some(entry) = self.entries.get(&id) else { return false };
        match &entry.module.kind {
            ModuleKind::File(file) => {
                let now = Stamp::of(file);
                now.zip(entry.stamp).is_some_and(|(now, then)| now.is_as_long_and_old(&then))
            }
            _ => false,
        }
    }

    fn load_unless_held(&mut self, id: ModuleId, file: &File) {
        let is_held = !matches!(self.get(id).kind, ModuleKind::Unknown | ModuleKind::Closed);
        if !is_held && self.cfi.get(id).is_none() {
            self.keep_sections(id, Sections::of_file(file));
        }
    }

    fn keep_sections(&mut self, id: ModuleId, sections: Sections) -> Option<Arc<Cfi>> {
        let has_too_large = sections.has_too_large;
        let by = self.entries.get(&id).map_or(Holder::of_unknown_user(0), |entry| entry.by);
        let kept = self.cfi.keep(id, by, Cfi::new(sections));
        self.counts.no_room_for_sections += u64::from(kept.is_err() || has_too_large);
        kept.unwrap_or_default()
    }
}

fn path_of(mapping: &Mapping) -> String {
    match &mapping.backing {
        Backing::File(path) | Backing::Other(path) => path.clone(),
        Backing::Vdso => "[vdso]".to_owned(),
        Backing::Uprobes => "[uprobes]".to_owned(),
        Backing::Anonymous => "[anonymous]".to_owned(),
    }
}

/// Descriptors that this process may have open (the soft limit).
fn descriptor_limit() -> usize {
    // The usual default, if the limit cannot be read.
    const USUAL: usize = 1024;
    let Ok(limits) = fs::read_to_string("/proc/self/limits") else { return USUAL };
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    match line.and_then(|line| line.split_whitespace().next()) {
        Some("unlimited") => usize::MAX,
        Some(soft) => soft.parse().unwrap_or(USUAL),
        None => USUAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_common::share::alone;

    fn of_user(process: u32) -> Holder<u32> {
        Holder { user: 1, process }
    }

    /// Adds `count` modules of a process, or fewer once the process has its share.
    fn add(modules: &mut Modules, pid: u32, count: usize) -> Vec<ModuleId> {
        let code = Arc::new(GeneratedCode::of(u32::MAX, false));
        let ids = (0..count).map(|_| modules.jit(of_user(pid), &code, 0));
        ids.filter(|id| *id != ModuleId::UNKNOWN).collect()
    }

    #[test]
    fn a_process_of_endless_modules_leaves_room_for_others() {
        let mut modules = Modules::default();
        let greedy = add(&mut modules, 10, MAX_MODULES);
        assert_eq!(greedy.len(), alone(MAX_MODULES));
        let refused = modules.counts().table_full;
        assert_eq!(refused, (MAX_MODULES - greedy.len()) as u64);
        let honest = add(&mut modules, 11, 500);
        assert_eq!((honest.len(), modules.counts().table_full), (500, refused));
        // The greedy process ends, but a stack needs its last module.
        let last = greedy[greedy.len() - 1];
        let mapped = honest.iter().copied().collect();
        assert!(modules.has_grown());
        modules.collect(&mapped, &FxHashSet::from_iter([last]));
        assert!(!modules.has_grown());
        assert_eq!(modules.usage().0, honest.len() + 1);
        assert!(honest.iter().chain([&last]).all(|id| modules.get(*id).id == *id));
        assert_eq!(modules.get(greedy[0]).id, ModuleId::UNKNOWN);
        let again = add(&mut modules, 10, 100);
        assert!(again.len() == 100 && again.iter().all(|id| *id > honest[honest.len() - 1]));
    }

    #[test]
    fn deleted_files_are_closed_and_matched_by_identity() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mapping = |inode| Mapping {
            start: 0,
            end: 4096,
            offset: 0,
            executable: true,
            device: (8, 1),
            inode,
            backing: Backing::File(file.path().display().to_string()),
        };
        let open = || Ok(Arc::new(file.reopen().unwrap()));
        let mut modules = Modules { max_open_files: 8192, ..Modules::default() };
        let id = modules.opened(of_user(10), None, &mapping(7), open());
        modules.root_device = Some(file.as_file().metadata().unwrap().dev());
        let nobody = FxHashSet::default();
        assert!(modules.is_unchanged(id) && modules.to_close(&nobody).is_empty());
        modules.root_device = None;
        assert!(modules.to_close(&FxHashSet::from_iter([id])).is_empty());
        assert_eq!(modules.to_close(&nobody), [id]);
        modules.close(id);
        assert!(matches!(modules.get(id).kind, ModuleKind::Closed));
        assert_eq!((modules.open_files, modules.is_unchanged(id)), (0, false));
        assert_eq!(modules.opened(of_user(10), Some(id), &mapping(7), open()), id);
        assert!(matches!(modules.get(id).kind, ModuleKind::File(_)));
        modules.close(id);
        file.as_file().set_len(1).unwrap();
        let other = modules.opened(of_user(10), Some(id), &mapping(7), open());
        assert!(other != id && matches!(modules.get(id).kind, ModuleKind::Closed));
    }

    #[test]
    fn open_files_are_shared() {
        let mut modules = Modules { max_open_files: 4096, ..Modules::default() };
        let greedy = (0..4096).filter(|_| modules.may_hold_open(of_user(10))).count();
        assert_eq!(greedy, alone(4096));
        assert_eq!((0..500).filter(|_| modules.may_hold_open(of_user(11))).count(), 500);
        let code = modules.generated_code(of_user(12));
        modules.collect(&FxHashSet::default(), &FxHashSet::default());
        assert_eq!(modules.open_files, 1);
        drop(code);
        modules.collect(&FxHashSet::default(), &FxHashSet::default());
        assert_eq!(modules.open_files, 0);
    }
}
