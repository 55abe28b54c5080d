//! The executable mappings of one process, by address.

use super::moved::name_moved;
use crate::inspect::mappings::{self, Backing, Mapping};
use crate::unwind::cfi::Cfi;
use crate::unwind::history::PastImage;
use crate::unwind::module::ModuleId;
use crate::unwind::modules::Modules;
use sampler_common::share::Holder;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// Most bytes of a vdso, which has two pages, or four on the newest kernels.
const MAX_VDSO_BYTES: u64 = 1 << 20;

/// Beginnings of the paths of shared memory: of memfd_create(2), `MAP_SHARED | MAP_ANONYMOUS`,
/// huge pages, shm_overview(7) and shmget(2).
const SHARED_MEMORY: [&str; 5] = ["/memfd:", "/dev/zero", "/anon_hugepage", "/dev/shm/", "/SYSV"];

/// The code in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::unwind) enum Code {
    /// Code of a file or of the vdso.
    Module(ModuleId),
    /// Code of a JIT compiler.
    Jit,
    /// The kernel's uprobe trampoline.
    Trampoline,
}

/// An executable mapping.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(in crate::unwind) mapping: Mapping,
    pub(in crate::unwind) code: Code,
    /// Call frame information, and the difference between its stated addresses and addresses of the
    /// process; none until [`Region::load`], or if there is none.
    pub(in crate::unwind) cfi: Option<(Arc<Cfi>, u64)>,
    loaded: bool,
}

impl Region {
    /// File offset of an address in the region.
    pub(in crate::unwind) fn offset(&self, address: u64) -> u64 {
        address.wrapping_sub(self.mapping.start).wrapping_add(self.mapping.offset)
    }

    /// Gets the call frame information, at the first frame in this region.
    pub(in crate::unwind) fn load(&mut self, modules: &mut Modules) {
        if std::mem::replace(&mut self.loaded, true) {
            return;
        }
        let Code::Module(id) = self.code else { return };
        let stated = modules.headers(id).and_then(|it| it.svma(self.mapping.offset));
        if let Some(stated) = stated
            && let Some(cfi) = modules.cfi(id)
        {
            self.cfi = Some((cfi, stated.wrapping_sub(self.mapping.start)));
        }
    }
}

/// The executable mappings of one process, sorted by address.
#[derive(Debug, Default)]
pub(super) struct Regions(Vec<Region>);

impl Regions {
    /// Reads the mappings of a process. Regions of `self` that are unchanged keep their code.
    pub(super) fn reread(&self, by: Holder<u32>, modules: &mut Modules) -> io::Result<Regions> {
        let mut mappings = mappings::read(by.process)?;
        name_moved(&mut mappings, |file| {
            let id = modules.file(by, file);
            modules.headers(id).cloned()
        });
        let executable = mappings.into_iter().filter(|mapping| mapping.executable);
        Ok(self.renewed(executable, |mapping| code(by, mapping, modules)))
    }

    /// The mappings that events have reported about a process that may be gone.
    pub(super) fn retraced(
        &self,
        by: Holder<u32>,
        past: &PastImage,
        modules: &mut Modules,
    ) -> Regions {
        let mut mappings = Vec::clone(&past.mappings);
        mappings.sort_unstable_by_key(|mapping| mapping.start);
        name_moved(&mut mappings, |file| {
            let id = modules.past_file(by, past.parent, file);
            modules.headers(id).cloned()
        });
        self.renewed(mappings.into_iter(), |mapping| past_code(by, past.parent, mapping, modules))
    }

    fn renewed(
        &self,
        mappings: impl Iterator<Item = Mapping>,
        mut code: impl FnMut(&Mapping) -> Code,
    ) -> Regions {
        let mut regions = Vec::with_capacity(self.0.len());
        for mapping in mappings {
            let kept = mapping.without_path();
            let code = match self.find(mapping.start) {
                Some(known) if known.mapping == kept => known.code,
                _ => code(&mapping),
            };
            regions.push(Region { mapping: kept, code, cfi: None, loaded: false });
        }
        regions.sort_unstable_by_key(|region| region.mapping.start);
        Regions(regions)
    }

    /// Whether both may be of the same program image: the code of some file is still at the same
    /// address. (Another program has all its addresses drawn anew.)
    pub(super) fn may_follow(&self, earlier: &Regions) -> bool {
        let files = |regions: &Regions| {
            let files = regions.0.iter().map(|region| region.mapping.clone());
            files.filter(|it| matches!(it.backing, Backing::File(_))).collect::<Vec<_>>()
        };
        let (ours, theirs) = (files(self), files(earlier));
        theirs.is_empty() || ours.iter().any(|mapping| theirs.contains(mapping))
    }

    /// The modules of all regions.
    pub(in crate::unwind) fn modules(&self) -> impl Iterator<Item = ModuleId> {
        self.0.iter().filter_map(|region| match region.code {
            Code::Module(id) => Some(id),
            Code::Jit | Code::Trampoline => None,
        })
    }

    /// Whether a region has code of a JIT compiler.
    pub(super) fn has_generated_code(&self) -> bool {
        self.0.iter().any(|region| region.code == Code::Jit)
    }

    /// Whether both have the same mappings at the same addresses.
    pub(in crate::unwind) fn is_same(&self, other: &Regions) -> bool {
        self.0.iter().map(|it| &it.mapping).eq(other.0.iter().map(|it| &it.mapping))
    }

    fn find(&self, address: u64) -> Option<&Region> {
        self.index(address).map(|index| &self.0[index])
    }

    /// The region that holds an address.
    pub(super) fn find_mut(&mut self, address: u64) -> Option<&mut Region> {
        self.index(address).map(|index| &mut self.0[index])
    }

    fn index(&self, address: u64) -> Option<usize> {
        let index = self.0.partition_point(|it| it.mapping.start <= address).checked_sub(1)?;
        (address < self.0[index].mapping.end).then_some(index)
    }
}

fn code(by: Holder<u32>, mapping: &Mapping, modules: &mut Modules) -> Code {
    match &mapping.backing {
        Backing::Uprobes => Code::Trampoline,
        Backing::Vdso => Code::Module(match read_vdso(by.process, mapping) {
            Some(bytes) => modules.vdso(by, &bytes),
            None => ModuleId::UNKNOWN,
        }),
        Backing::File(path) => file_code(path, modules.file(by, mapping), modules),
        Backing::Anonymous => Code::Jit,
        // `[vsyscall]` and the like.
        Backing::Other(_) => Code::Module(ModuleId::UNKNOWN),
    }
}

/// As for [`code`], from events.
fn past_code(by: Holder<u32>, parent: u32, mapping: &Mapping, modules: &mut Modules) -> Code {
    match &mapping.backing {
        Backing::Uprobes => Code::Trampoline,
        Backing::Vdso => Code::Module(modules.own_vdso(mapping.end.wrapping_sub(mapping.start))),
        Backing::File(path) => file_code(path, modules.past_file(by, parent, mapping), modules),
        Backing::Anonymous => Code::Jit,
        Backing::Other(_) => Code::Module(ModuleId::UNKNOWN),
    }
}

/// The code of a file mapping. JIT compilers map shared memory twice, to write and to execute (.NET,
/// Erlang), or share it between processes (PHP). Such memory has a path, but is no ELF file.
fn file_code(path: &str, module: ModuleId, modules: &Modules) -> Code {
    match SHARED_MEMORY.iter().any(|it| path.starts_with(it)) && modules.headers(module).is_none() {
        true => Code::Jit,
        false => Code::Module(module),
    }
}

/// The vdso of the daemon itself. All 64-bit processes have the same vdso.
pub(in crate::unwind) fn read_own_vdso() -> Option<Vec<u8>> {
    let own = std::process::id();
    let mappings = mappings::read(own).ok()?;
    let vdso = mappings.iter().find(|mapping| mapping.backing == Backing::Vdso)?;
    read_vdso(own, vdso)
}

fn read_vdso(pid: u32, mapping: &Mapping) -> Option<Vec<u8>> {
    let size = mapping.end.checked_sub(mapping.start).filter(|size| *size <= MAX_VDSO_BYTES)?;
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    memory.read_exact_at(&mut bytes, mapping.start).ok()?;
    Some(bytes)
}
