//! The target as the injector finds it: its memory, its mappings, the files in its loader's list,
//! and its clock.
//!
//! Reference: `struct r_debug` and `struct link_map` of link.h.

use crate::elf::{File64, Symbol};
use crate::maps::{Mapping, Maps};
use crate::memory::Memory;
use anyhow::{Context, Result};
use std::collections::HashMap;

/// Maximum number of files in the loader's list.
const MAX_FILES: usize = 4096;
/// Offsets in `struct r_debug`.
const DEBUG_MAP: u64 = 8;
const DEBUG_STATE: u64 = 24;
/// Offsets in `struct link_map`.
const MAP_DYNAMIC: u64 = 16;
const MAP_NEXT: u64 = 24;
/// Maximum size of the vDSO.
const MAX_VDSO_BYTES: u64 = 1 << 20;
/// `AT_SYSINFO_EHDR`
const AT_VDSO: u64 = 33;

/// A file that the loader has mapped.
pub struct Loaded {
    /// Difference between addresses in memory and in the file.
    pub base: u64,
    /// One mapping of the file.
    pub mapping: Mapping,
    /// The file.
    pub file: File64,
    /// The symbols that the file defines.
    pub symbols: HashMap<String, Symbol>,
}

impl Loaded {
    /// Name of the file without folders.
    #[must_use]
    pub fn name(&self) -> &str {
        self.mapping.file_name()
    }
}

/// A process.
pub struct Target {
    /// Number of the process.
    pub pid: i32,
    /// Memory of the process.
    pub memory: Memory,
    /// Mappings of the process.
    pub maps: Maps,
}

impl Target {
    /// Files in link order: the program, preloaded libraries, then what these need. Empty: the
    /// process has no glibc loader.
    ///
    /// # Errors
    /// If memory or a file cannot be read.
    pub fn files(&self) -> Result<Vec<Loaded>> {
        let Some(debug) = self.loader_list()? else { return Ok(Vec::new()) };
        let mut entry = self.memory.word(debug + DEBUG_MAP)?;
        let mut files = Vec::new();
        while entry != 0 && files.len() < MAX_FILES {
            let base = self.memory.word(entry)?;
            let dynamic = self.memory.word(entry + MAP_DYNAMIC)?;
            if let Some(mapping) = self.maps.at(dynamic).filter(|mapping| mapping.inode != 0) {
                files.push(self.loaded(base, mapping)?);
            }
            entry = self.memory.word(entry + MAP_NEXT)?;
        }
        Ok(files)
    }

    /// Whether the loader is at work, because the program starts or opens a library. The mappings
    /// are then incomplete, and not yet relocated.
    ///
    /// # Errors
    /// If memory or a file cannot be read.
    pub fn is_loading(&self) -> Result<bool> {
        let Some(debug) = self.loader_list()? else { return Ok(false) };
        let version = u32::from_le_bytes(self.memory.array(debug)?);
        let state = u32::from_le_bytes(self.memory.array(debug + DEBUG_STATE)?);
        // The loader sets the version when it begins the list. The state is RT_CONSISTENT (0) when
        // everything in the list is relocated.
        Ok(version == 0 || state != 0)
    }

    fn loaded(&self, base: u64, mapping: &Mapping) -> Result<Loaded> {
        let read = || -> Result<Loaded> {
            let file = File64::new(self.maps.open(mapping)?)?;
            let symbols = file.symbols()?;
            Ok(Loaded { base, mapping: mapping.clone(), file, symbols })
        };
        read().with_context(|| mapping.name.clone())
    }

    /// Address of the loader's `_r_debug`.
    fn loader_list(&self) -> Result<Option<u64>> {
        let is_loader = |of: &&Mapping| of.is_executable && of.file_name().starts_with("ld-");
        for mapping in self.maps.all.iter().filter(is_loader) {
            let file = File64::new(self.maps.open(mapping)?)?;
            let segments = file.segments()?;
            let code =
                segments.iter().find(|of| of.is_code() && of.offset & !4095 == mapping.offset);
            let (Some(code), Some(symbol)) = (code, file.symbols()?.get("_r_debug").copied())
            else {
                continue;
            };
            let base = mapping.start.wrapping_sub(code.address & !4095);
            return Ok(Some(base.wrapping_add(symbol.address)));
        }
        Ok(None)
    }

    /// Address of `__vdso_clock_gettime`; 0: the vDSO has none.
    #[must_use]
    pub fn clock(&self) -> u64 {
        self.find_clock().unwrap_or(0)
    }

    fn find_clock(&self) -> Option<u64> {
        let auxiliary = std::fs::read(format!("/proc/{}/auxv", self.pid)).ok()?;
        let word = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
        let entry = auxiliary.chunks_exact(16).find(|of| word(&of[..8]) == Some(AT_VDSO))?;
        let start = word(&entry[8..])?;
        let mapping = self.maps.at(start)?;
        let bytes = (mapping.end - mapping.start).min(MAX_VDSO_BYTES);
        let image = self.memory.read(start, bytes as usize).ok()?;
        use object::{Object as _, ObjectSymbol as _};
        let file = object::read::elf::ElfFile64::<object::Endianness>::parse(&*image).ok()?;
        let mut symbols = file.dynamic_symbols();
        let symbol = symbols.find(|of| of.name() == Ok("__vdso_clock_gettime"))?;
        Some(start.wrapping_add(symbol.address()))
    }
}
