//! What ELF files say: symbols, segments, relocations. Files are read piece by piece.
//!
//! Reference: System V ABI (object files); AMD64 supplement, table 4.9 (relocations).

use anyhow::{Context, Result, ensure};
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{
    Endianness, Object as _, ObjectSymbol as _, ObjectSymbolTable as _, ReadCache, ReadRef as _,
    SymbolKind, elf,
};
use std::collections::HashMap;
use std::fs::File;

/// Bytes of code, or of a whole file, that are read at most.
const MAX_SEGMENT_BYTES: u64 = 256 << 20;

/// A function among the dynamic symbols.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Its address in the file.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// A part of a file that is mapped.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Its address in the file.
    pub address: u64,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// Where it is in the file.
    pub offset: u64,
    /// Bytes of it in the file.
    pub file_bytes: u64,
    /// `PF_…`
    pub flags: u32,
}

impl Segment {
    /// Whether it is code.
    #[must_use]
    pub fn is_code(&self) -> bool {
        self.flags & elf::PF_X != 0
    }

    /// Whether it is writable.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.flags & elf::PF_W != 0
    }
}

/// What a word of a file becomes when it is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relocation {
    /// The file's address in memory, and so much more.
    Base(u64),
    /// The offset of the file's thread-local memory, and so much more.
    ThreadOffset(u64),
    /// 0: a symbol that may be missing.
    Missing,
}

/// A file that is mapped as a program or a library.
pub struct File64 {
    cache: ReadCache<File>,
}

impl File64 {
    /// Takes a file.
    ///
    /// # Errors
    /// If it is not ELF of 64 bits.
    pub fn new(file: File) -> Result<File64> {
        let cache = ReadCache::new(file);
        ElfFile64::<Endianness, _>::parse(&cache).context("parse as ELF")?;
        Ok(File64 { cache })
    }

    fn parse(&self) -> Result<ElfFile64<'_, Endianness, &ReadCache<File>>> {
        ElfFile64::parse(&self.cache).context("parse as ELF")
    }

    /// Defined dynamic symbols that are functions or data: name, where.
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

    /// What is mapped.
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

    /// The segment of code that has an address of the file, and its bytes.
    ///
    /// # Errors
    /// If there is none.
    pub fn code(&self, address: u64) -> Result<(Segment, &[u8])> {
        let has = |of: &Segment| of.is_code() && address.wrapping_sub(of.address) < of.file_bytes;
        let segment = self.segments()?.into_iter().find(has);
        let segment = segment.with_context(|| format!("no code at {address:#x}"))?;
        ensure!(segment.file_bytes <= MAX_SEGMENT_BYTES, "{} bytes of code", segment.file_bytes);
        Ok((segment, self.bytes(segment.offset, segment.file_bytes)?))
    }

    /// Bytes of the file.
    ///
    /// # Errors
    /// If it has not so many.
    pub fn bytes(&self, offset: u64, bytes: u64) -> Result<&[u8]> {
        let read = (&self.cache).read_bytes_at(offset, bytes);
        read.map_err(|()| anyhow::anyhow!("read {bytes} bytes at {offset:#x}"))
    }

    /// All of the file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn all(&self) -> Result<&[u8]> {
        let bytes = (&self.cache).len().map_err(|()| anyhow::anyhow!("read the length"))?;
        ensure!(bytes <= MAX_SEGMENT_BYTES, "{bytes} bytes");
        self.bytes(0, bytes)
    }

    /// Words that get the address of a function by its name, at the latest when it is called first: the word's address, the name.
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

    /// Dynamic relocations: the word's address, what it becomes.
    ///
    /// # Errors
    /// If there is one that needs something of the process.
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
