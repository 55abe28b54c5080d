//! The target's mappings, and the free memory between them.

use crate::plan::Layout;
use anyhow::{Context, Result};
use procfs::process::{MMPermissions, MMapPath, Process};
use std::fs::File;
use std::ops::Range;
use std::path::Path;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// The kernel maps nothing below this address (`vm.mmap_min_addr` of every distribution).
const MIN_MAPPED_ADDRESS: u64 = 0x1_0000;
/// Nothing can be mapped from this address on: 47 bits less the guard page.
const HIGHEST: u64 = 0x7fff_ffff_f000;
/// One mapping.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// First address of the mapping.
    pub start: u64,
    /// Address behind the mapping.
    pub end: u64,
    /// Offset of the mapping in its file.
    pub offset: u64,
    /// Inode of the file; 0: the mapping has no file.
    pub inode: u64,
    /// Device of the file: major, minor.
    pub device: (i32, i32),
    /// Whether the mapping is executable.
    pub is_executable: bool,
    /// Whether the mapping is writable.
    pub is_writable: bool,
    /// Path of the file as the kernel shows it, or a name such as `[heap]`.
    pub name: String,
}

impl Mapping {
    /// Whether the mapping contains an address.
    #[must_use]
    pub fn has(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Whether both mappings belong to one file.
    #[must_use]
    pub fn is_of_file_of(&self, other: &Mapping) -> bool {
        self.inode != 0 && self.inode == other.inode && self.device == other.device
    }

    /// Name of the file without folders.
    #[must_use]
    pub fn file_name(&self) -> &str {
        let path = self.name.strip_suffix(" (deleted)").unwrap_or(&self.name);
        path.rsplit('/').next().unwrap_or(path)
    }
}

/// All mappings of a process, lowest first.
#[derive(Clone, Debug)]
pub struct Maps {
    pid: i32,
    /// The mappings.
    pub all: Vec<Mapping>,
    /// Soft limit of the main thread's stack, bytes.
    stack_limit: u64,
}

impl Maps {
    /// Reads the current mappings.
    ///
    /// # Errors
    /// If /proc cannot be read.
    pub fn read(pid: i32) -> Result<Maps> {
        let process = Process::new(pid).with_context(|| format!("open /proc/{pid}"))?;
        let maps = process.maps().with_context(|| format!("read /proc/{pid}/maps"))?;
        let limits = process.limits().with_context(|| format!("read /proc/{pid}/limits"))?;
        let stack = match limits.max_stack_size.soft_limit {
            procfs::process::LimitValue::Value(bytes) => bytes,
            procfs::process::LimitValue::Unlimited => u64::MAX,
        };
        let all = maps.into_iter().map(mapping).collect();
        Ok(Maps { pid, all, stack_limit: stack })
    }

    /// The mapping that contains an address.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<&Mapping> {
        let index = self.all.partition_point(|mapping| mapping.end <= address);
        self.all.get(index).filter(|mapping| mapping.has(address))
    }

    /// Opens the file of a mapping, also if the file was deleted or lies in another mount
    /// namespace.
    ///
    /// # Errors
    /// If this process may not open the file.
    pub fn open(&self, mapping: &Mapping) -> Result<File> {
        let pid = self.pid;
        let exact = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end);
        if let Ok(file) = File::open(exact) {
            return Ok(file);
        }
        let path = Path::new("/proc").join(pid.to_string()).join("root");
        let path = path.join(mapping.name.trim_start_matches('/'));
        File::open(&path).with_context(|| format!("open {}", path.display()))
    }

    /// The free memory: nothing is mapped there, and no stack grows into it. The heap has room to
    /// grow by `heap_growth` bytes.
    #[must_use]
    pub fn layout(&self, heap_growth: u64) -> Layout {
        let range = |of: &Mapping| of.start..of.end;
        let named = |name: &str| self.all.iter().find(|of| of.name == name).map(range);
        // A heap that does not exist yet will begin above the program.
        let programs = self.all.iter().filter(|of| of.is_writable && self.is_program(&of.name));
        let growing = |of: Range<u64>| of.start..of.end.saturating_add(heap_growth);
        let heaps = programs.map(range).map(growing);
        let ends = [0..MIN_MAPPED_ADDRESS, HIGHEST..u64::MAX];
        let mapped = self.all.iter().map(range).chain(heaps).chain(ends);
        Layout::new(mapped, named("[heap]").map(growing), named("[stack]"), self.stack_limit)
    }

    /// Whether a mapping of this name belongs to the lowest file. That file is the program. Memory
    /// without a file may lie below it, as mimalloc's does.
    fn is_program(&self, name: &str) -> bool {
        self.all.iter().find(|of| of.inode != 0).is_some_and(|first| first.name == name)
    }
}

fn mapping(of: procfs::process::MemoryMap) -> Mapping {
    let name = match of.pathname {
        MMapPath::Path(path) => path.to_string_lossy().into_owned(),
        MMapPath::Heap => "[heap]".to_owned(),
        MMapPath::Stack => "[stack]".to_owned(),
        MMapPath::Vdso => "[vdso]".to_owned(),
        _ => String::new(),
    };
    Mapping {
        start: of.address.0,
        end: of.address.1,
        offset: of.offset,
        inode: of.inode,
        device: of.dev,
        is_executable: of.perms.contains(MMPermissions::EXECUTE),
        is_writable: of.perms.contains(MMPermissions::WRITE),
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::HEAP_GROWTH_BYTES;

    /// Minimum of free memory below the stack.
    const STACK_ROOM: u64 = 128 << 20;

    #[test]
    fn gaps_are_free_and_leave_room_for_the_stack() {
        let maps = Maps::read(std::process::id().cast_signed()).unwrap();
        let gaps: Vec<_> = maps.layout(HEAP_GROWTH_BYTES[0]).gaps().collect();
        assert!(!gaps.is_empty());
        for Range { start, end } in gaps {
            assert!(start < end);
            for mapping in &maps.all {
                assert!(mapping.end <= start || mapping.start >= end, "{mapping:?}");
                if mapping.name == "[stack]" {
                    assert!(end + STACK_ROOM <= mapping.end || start >= mapping.end);
                }
            }
        }
    }
}
