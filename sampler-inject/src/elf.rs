//! Contents of ELF files: symbols, segments, relocations. Files are read piece by piece.
//!
//! Reference: System V ABI (object files); AMD64 supplement, table 4.9 (relocations).

use anyhow::{Context, Result, ensure};
use object::read::elf::{
    ElfFile64, FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _,
};
use object::{
    Endianness, Object as _, ObjectSymbol as _, ObjectSymbolTable as _, ReadCache, ReadRef as _,
    SymbolKind, elf,
};
use std::collections::HashMap;
use std::fs::File;

/// Maximum size of a code segment, or of a file that is read whole.
const MAX_SEGMENT_BYTES: u64 = 256 << 20;

/// A function or data object among the symbols.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Address in the file.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// A part of a file that is mapped (`PT_LOAD`).
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Address in the file.
    pub address: u64,
    /// Size in memory, in bytes.
    pub memory_bytes: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Size in the file, in bytes.
    pub file_bytes: u64,
    /// `PF_…`
    pub flags: u32,
}

impl Segment {
    /// Whether the segment is code.
    #[must_use]
    pub fn is_code(&self) -> bool {
        self.flags & elf::PF_X != 0
    }

    /// Whether the segment is writable.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.flags & elf::PF_W != 0
    }
}

/// The value that a word of a file gets when the file is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relocation {
    /// The file's address in memory, plus this number.
    Base(u64),
    /// The offset of the file's thread-local memory, plus this number.
    ThreadOffset(u64),
    /// 0, since the symbol is weak and undefined.
    Missing,
}

/// A file that is mapped as a program or a library.
pub struct File64 {
    cache: ReadCache<File>,
}

impl File64 {
    /// Opens an ELF file.
    ///
    /// # Errors
    /// If the file is not ELF of 64 bits.
    pub fn new(file: File) -> Result<File64> {
        let cache = ReadCache::new(file);
        ElfFile64::<Endianness, _>::parse(&cache).context("parse as ELF")?;
        Ok(File64 { cache })
    }

    fn parse(&self) -> Result<ElfFile64<'_, Endianness, &ReadCache<File>>> {
        ElfFile64::parse(&self.cache).context("parse as ELF")
    }

    /// Defined dynamic symbols that are functions or data, by name.
    ///
    /// # Errors
    /// If the file is broken.
    pub fn symbols(&self) -> Result<HashMap<String, Symbol>> {
        let file = self.parse()?;
        let mut found = HashMap::new();
        for symbol in file.dynamic_symbols() {
            let is_meant = symbol.is_definition()
                && symbol.is_global()
                && matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Data);
            if let (true, Ok(name)) = (is_meant, symbol.name()) {
                let of = Symbol { address: symbol.address(), bytes: symbol.size() };
                found.entry(name.to_owned()).or_insert(of);
            }
        }
        Ok(found)
    }

    /// Defined functions of the table that linkers use and `strip` removes (`.symtab`), by name.
    /// Local ones are among them. Only names for which `is_wanted` are kept.
    ///
    /// # Errors
    /// If the file is broken, or the table is larger than 256 MiB.
    pub fn linked_functions(
        &self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<HashMap<String, Symbol>> {
        let file = self.parse()?;
        let endian = file.endian();
        let sections = file.elf_header().sections(endian, &self.cache)?;
        let Some(table) = sections.iter().find(|of| of.sh_type(endian) == elf::SHT_SYMTAB) else {
            return Ok(HashMap::new());
        };
        // Both parts are read whole: a read for each name would take seconds.
        let strings = sections.section(table.link(endian))?;
        for of in [table, strings] {
            let bytes = of.sh_size(endian);
            ensure!(bytes <= MAX_SEGMENT_BYTES, "{bytes} bytes of symbols");
        }
        let strings = strings.data(endian, &self.cache)?;
        let symbols: &[elf::Sym64<Endianness>] = table.data_as_array(endian, &self.cache)?;
        let mut found = HashMap::new();
        for symbol in symbols {
            let is_function = symbol.st_type() == elf::STT_FUNC && !symbol.is_undefined(endian);
            let rest = strings.get(symbol.st_name(endian) as usize..).unwrap_or_default();
            let name = rest.split(|byte| *byte == 0).next().unwrap_or_default();
            let name = std::str::from_utf8(name).unwrap_or_default();
            if is_function && is_wanted(name) {
                let of = Symbol { address: symbol.st_value(endian), bytes: symbol.st_size(endian) };
                found.entry(name.to_owned()).or_insert(of);
            }
        }
        Ok(found)
    }

    /// The segments that are mapped (`PT_LOAD`).
    ///
    /// # Errors
    /// If the file is broken.
    pub fn segments(&self) -> Result<Vec<Segment>> {
        let file = self.parse()?;
        let endian = file.endian();
        let headers = file.elf_header().program_headers(endian, &self.cache)?;
        let loaded = headers.iter().filter(|header| header.p_type(endian) == elf::PT_LOAD);
        let segments = loaded.map(|header| Segment {
            address: header.p_vaddr(endian),
            memory_bytes: header.p_memsz(endian),
            offset: header.p_offset(endian),
            file_bytes: header.p_filesz(endian),
            flags: header.p_flags(endian),
        });
        Ok(segments.collect())
    }

    /// The code segment that contains an address of the file, and its bytes.
    ///
    /// # Errors
    /// If no code segment contains the address, or the segment is larger than 256 MiB.
    pub fn code(&self, address: u64) -> Result<(Segment, &[u8])> {
        let has = |of: &Segment| of.is_code() && address.wrapping_sub(of.address) < of.file_bytes;
        let segment = self.segments()?.into_iter().find(has);
        let segment = segment.with_context(|| format!("no code at {address:#x}"))?;
        ensure!(segment.file_bytes <= MAX_SEGMENT_BYTES, "{} bytes of code", segment.file_bytes);
        Ok((segment, self.bytes(segment.offset, segment.file_bytes)?))
    }

    /// Reads bytes of the file.
    ///
    /// # Errors
    /// If the file is too short.
    pub fn bytes(&self, offset: u64, bytes: u64) -> Result<&[u8]> {
        let read = (&self.cache).read_bytes_at(offset, bytes);
        read.map_err(|()| anyhow::anyhow!("read {bytes} bytes at {offset:#x}"))
    }

    /// Reads the whole file.
    ///
    /// # Errors
    /// If the file cannot be read, or is larger than 256 MiB.
    pub fn all(&self) -> Result<&[u8]> {
        let bytes = (&self.cache).len().map_err(|()| anyhow::anyhow!("read the length"))?;
        ensure!(bytes <= MAX_SEGMENT_BYTES, "{bytes} bytes");
        self.bytes(0, bytes)
    }

    /// Words that receive the address of a function by its name, at the latest at the first call:
    /// address of the word → name.
    ///
    /// # Errors
    /// If the file is broken.
    pub fn functions_by_name(&self) -> Result<HashMap<u64, String>> {
        let file = self.parse()?;
        let (Some(relocations), Some(symbols)) =
            (file.dynamic_relocations(), file.dynamic_symbol_table())
        else {
            return Ok(HashMap::new());
        };
        let named = relocations.filter_map(|(address, relocation)| {
            let object::RelocationTarget::Symbol(index) = relocation.target() else { return None };
            let is_function = matches!(
                relocation.flags(),
                object::RelocationFlags::Elf {
                    r_type: elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT
                }
            );
            let name = symbols.symbol_by_index(index).ok()?.name().ok()?;
            is_function.then(|| (address, name.to_owned()))
        });
        Ok(named.collect())
    }

    /// Dynamic relocations: the word's address, and what the word becomes.
    ///
    /// # Errors
    /// If a relocation needs something of the process, or has an unknown kind.
    pub fn relocations(&self) -> Result<Vec<(u64, Relocation)>> {
        let file = self.parse()?;
        let Some(relocations) = file.dynamic_relocations() else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for (address, relocation) in relocations {
            let addend = relocation.addend().cast_unsigned();
            let symbol = match relocation.target() {
                object::RelocationTarget::Symbol(index) => Some(
                    file.dynamic_symbol_table().context("no symbols")?.symbol_by_index(index)?,
                ),
                _ => None,
            };
            let object::RelocationFlags::Elf { r_type } = relocation.flags() else {
                anyhow::bail!("a relocation of an unknown kind at {address:#x}");
            };
            let becomes = match (r_type, symbol) {
                (elf::R_X86_64_RELATIVE, None) => Relocation::Base(addend),
                (elf::R_X86_64_TPOFF64, None) => Relocation::ThreadOffset(addend),
                (elf::R_X86_64_GLOB_DAT, Some(symbol)) if symbol.is_undefined() => {
                    ensure!(symbol.is_weak(), "needs {}", symbol.name().unwrap_or_default());
                    Relocation::Missing
                }
                (elf::R_X86_64_GLOB_DAT, Some(symbol)) => Relocation::Base(symbol.address()),
                _ => anyhow::bail!("relocation {r_type} at {address:#x}"),
            };
            found.push((address, becomes));
        }
        Ok(found)
    }
}
