//! The table of all modules ever seen: they are kept after their processes are gone.

use super::cfi::Cfi;
use super::cfi_cache::CfiCache;
use super::elf::{Headers, Sections};
use super::generated::GeneratedCode;
use super::mapped::read_own_vdso;
use super::module::{Module, ModuleId, ModuleKind};
use crate::inspect::mappings::{self, Backing, Mapping};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

/// Modules held; at the bound every further one is `[unknown]`, frames in it keep their addresses.
pub const MAX_MODULES: usize = 16 * 1024;

/// Files held open, at most (and never more than half of the descriptors that we may have, the rest is for
/// clients). At the bound a module keeps its path, build id and unwind information but no file: it is of kind
/// [`ModuleKind::Unknown`], and its frames are named `file+0xoffset`.
pub const MAX_OPEN_FILES: usize = 4096;

/// Files that were mapped lately, held open in case that a sample lies in them.
const MAX_RECENT: usize = 64;

/// What a file is known by: device and inode, as the process's mappings show them.
type Identity = ((i32, i32), u64);

/// Size and time of change: what tells that a file was overwritten in place. (Not `ctime`: deleting the
/// file changes it.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stamp(u64, i64, i64);

impl Stamp {
    fn of(file: &File) -> Option<Stamp> {
        let it = file.metadata().ok()?;
        Some(Stamp(it.size(), it.mtime(), it.mtime_nsec()))
    }
}

#[derive(Debug)]
struct Entry {
    module: Arc<Module>,
    headers: Option<Headers>,
    stamp: Option<Stamp>,
}

/// All modules ever seen, bounded; when full, further ones are `[unknown]`.
#[derive(Debug)]
pub struct Modules {
    entries: Vec<Entry>,
    files: FxHashMap<Identity, ModuleId>,
    vdsos: FxHashMap<Arc<[u8]>, ModuleId>,
    own_vdso: Option<Arc<[u8]>>,
    recent: VecDeque<(Identity, Arc<File>)>,
    open_files: usize,
    max_open_files: usize,
    cfi: CfiCache,
    counts: Counts,
    views: u64,
}

/// How often a bound was met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Modules that became `[unknown]` because the table was full.
    pub table_full: u64,
    /// Files that could not be opened.
    pub unopened: u64,
    /// Files that were read but not kept open, see [`MAX_OPEN_FILES`].
    pub unheld: u64,
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
        };
        Modules {
            entries: vec![Entry { module: Arc::new(unknown), headers: None, stamp: None }],
            files: FxHashMap::default(),
            vdsos: FxHashMap::default(),
            own_vdso: None,
            recent: VecDeque::new(),
            open_files: 0,
            max_open_files: (descriptor_limit() / 2).min(MAX_OPEN_FILES),
            cfi: CfiCache::default(),
            counts: Counts::default(),
            views: 0,
        }
    }
}

impl Modules {
    /// The module with this id, `[unknown]` if it is not one of this table.
    pub fn get(&self, id: ModuleId) -> &Arc<Module> {
        &self.entry(id).module
    }

    /// Modules held, and the bound.
    pub fn usage(&self) -> (usize, usize) {
        (self.entries.len(), MAX_MODULES)
    }

    /// How often the bounds were met.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// A name for what an image has mapped now, see [`Image::view`](super::Image::view).
    pub(super) fn next_view(&mut self) -> u64 {
        self.views += 1;
        self.views
    }

    fn entry(&self, id: ModuleId) -> &Entry {
        self.entries.get(id.0 as usize).unwrap_or(&self.entries[0])
    }

    /// The module behind a file mapping of a living process.
    pub(super) fn file(&mut self, pid: u32, mapping: &Mapping) -> ModuleId {
        let identity = (mapping.device, mapping.inode);
        let known = self.files.get(&identity).copied();
        if let Some(id) = known
            && self.is_unchanged(id)
        {
            return id;
        }
        self.opened(known, mapping, mappings::open(pid, mapping).map(Arc::new))
    }

    /// As [`Modules::file`] for a mapping that an event has told, whose process (the first of `pids`) may be gone; the others are
    /// asked for the file then.
    pub(super) fn past_file(&mut self, pids: &[u32], mapping: &Mapping) -> ModuleId {
        let identity = (mapping.device, mapping.inode);
        let known = self.files.get(&identity).copied();
        if let Some(id) = known
            && self.is_unchanged(id)
        {
            return id;
        }
        let recent = self.recent.iter().find(|(of, _)| *of == identity);
        let file = match recent {
            Some((_, file)) => Ok(Arc::clone(file)),
            None => mappings::open_past(pids, mapping).map(Arc::new),
        };
        self.opened(known, mapping, file)
    }

    /// A file that was opened when it was mapped first: soon it may be deleted and its process gone, before a sample asks for it.
    pub fn remember_file(&mut self, mapping: &Mapping, file: Arc<File>) {
        if self.recent.len() >= MAX_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(((mapping.device, mapping.inode), file));
    }

    fn opened(
        &mut self,
        known: Option<ModuleId>,
        mapping: &Mapping,
        file: io::Result<Arc<File>>,
    ) -> ModuleId {
        let identity = (mapping.device, mapping.inode);
        let Ok(file) = file else {
            self.counts.unopened += 1;
            return known.unwrap_or_else(|| {
                let id = self.add(path_of(mapping), None, ModuleKind::Unknown);
                self.remember(identity, id)
            });
        };
        let headers = Headers::of_file(&file);
        let build_id = headers.as_ref().map_or_else(String::new, |it| it.build_id.clone());
        if let Some(id) = known
            && self.entry(id).headers.is_some()
            && !build_id.is_empty()
            && self.get(id).build_id == build_id
        {
            // The same program; its times may have been touched, or we could not keep it open.
            self.entries[id.0 as usize].stamp = Stamp::of(&file);
            self.load_unless_held(id, &file);
            return id;
        }
        let file = Arc::new(file);
        let held = self.open_files < self.max_open_files;
        let kind = if held { ModuleKind::File(Arc::clone(&file)) } else { ModuleKind::Unknown };
        let id = self.add(path_of(mapping), headers, kind);
        if id == ModuleId::UNKNOWN {
            return id;
        }
        self.open_files += usize::from(held);
        self.counts.unheld += u64::from(!held);
        let entry = &mut self.entries[id.0 as usize];
        entry.stamp = Stamp::of(&file);
        self.load_unless_held(id, &file);
        self.remember(identity, id)
    }

    /// The vdso of a process, whose bytes these are.
    pub(super) fn vdso(&mut self, bytes: &[u8]) -> ModuleId {
        if let Some(id) = self.vdsos.get(bytes) {
            return *id;
        }
        let headers = Headers::of_bytes(bytes);
        let bytes: Arc<[u8]> = Arc::from(bytes);
        let id = self.add("[vdso]".to_owned(), headers, ModuleKind::Vdso(Arc::clone(&bytes)));
        if id != ModuleId::UNKNOWN {
            self.vdsos.insert(bytes, id);
        }
        id
    }

    /// The vdso of a process that may be gone, if it is as long as ours.
    pub(super) fn own_vdso(&mut self, length: u64) -> ModuleId {
        let own = self.own_vdso.get_or_insert_with(|| read_own_vdso().unwrap_or_default().into());
        let own = Arc::clone(own);
        if own.len() as u64 == length { self.vdso(&own) } else { ModuleId::UNKNOWN }
    }

    /// The anonymous code of one program image.
    pub(super) fn generated_code(&mut self, pid: u32) -> Arc<GeneratedCode> {
        let may_open = self.open_files < self.max_open_files;
        self.open_files += usize::from(may_open);
        Arc::new(GeneratedCode::of(pid, may_open))
    }

    /// A new module for anonymous code.
    pub(super) fn jit(&mut self, pid: u32, code: &Arc<GeneratedCode>, naming: u32) -> ModuleId {
        let kind = ModuleKind::Jit(Arc::clone(code), naming);
        self.add(format!("[jit {pid}]"), None, kind)
    }

    /// ELF headers of a module, none if it is not an ELF file.
    pub(super) fn headers(&self, id: ModuleId) -> Option<&Headers> {
        self.entry(id).headers.as_ref()
    }

    /// Call frame information of a module, read when first asked for.
    pub(super) fn cfi(&mut self, id: ModuleId) -> Option<Arc<Cfi>> {
        if let Some(known) = self.cfi.get(id) {
            return known.clone();
        }
        let sections = match &self.get(id).kind {
            ModuleKind::File(file) => Sections::of_file(file),
            ModuleKind::Vdso(bytes) => Sections::of_bytes(bytes),
            ModuleKind::Jit(..) | ModuleKind::Unknown => return None,
        };
        self.keep_sections(id, sections)
    }

    fn add(&mut self, path: String, headers: Option<Headers>, kind: ModuleKind) -> ModuleId {
        let id = match u32::try_from(self.entries.len()) {
            Ok(next) if self.entries.len() < MAX_MODULES => ModuleId(next),
            _ => {
                self.counts.table_full += 1;
                return ModuleId::UNKNOWN;
            }
        };
        let build_id = headers.as_ref().map_or_else(String::new, |it| it.build_id.clone());
        let code = headers.as_ref().map_or_else(Vec::new, Headers::code_ranges);
        let module = Arc::new(Module { id, path, build_id, code, kind });
        self.entries.push(Entry { module, headers, stamp: None });
        id
    }

    fn remember(&mut self, identity: Identity, id: ModuleId) -> ModuleId {
        if id != ModuleId::UNKNOWN {
            self.files.insert(identity, id);
        }
        id
    }

    /// Whether the file of a module is held and still what it was. An inode that is held open is not
    /// given to another file.
    fn is_unchanged(&self, id: ModuleId) -> bool {
        let entry = self.entry(id);
        match &entry.module.kind {
            ModuleKind::File(file) => entry.stamp.is_some() && Stamp::of(file) == entry.stamp,
            _ => false,
        }
    }

    fn load_unless_held(&mut self, id: ModuleId, file: &File) {
        if matches!(self.get(id).kind, ModuleKind::Unknown) && self.cfi.get(id).is_none() {
            self.keep_sections(id, Sections::of_file(file));
        }
    }

    fn keep_sections(&mut self, id: ModuleId, sections: Sections) -> Option<Arc<Cfi>> {
        let has_too_large = sections.has_too_large;
        let kept = self.cfi.keep(id, Cfi::new(sections));
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
    // The usual default where the limit cannot be read.
    const USUAL: usize = 1024;
    let Ok(limits) = fs::read_to_string("/proc/self/limits") else { return USUAL };
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    match line.and_then(|line| line.split_whitespace().next()) {
        Some("unlimited") => usize::MAX,
        Some(soft) => soft.parse().unwrap_or(USUAL),
        None => USUAL,
    }
}
