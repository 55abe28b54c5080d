//! The needed parts of an ELF file: symbols as file offsets, code bytes, the build id.
//!
//! A target can map any file as code, so no value in the file is trusted. Every size is bounded
//! before memory is allocated for it. The file is read by position and never mapped, because a file
//! that shrinks under a mapping kills the reader. `symbols` looks up symbols. Reference: elf(5),
//! System V ABI for AMD64.

pub(crate) mod notes;
pub(super) mod symbols;

use crate::bounded_file::{BoundedFile, MAX_HEADER_BYTES};
use object::LittleEndian as LE;
use object::elf::{self, Dyn64, FileHeader64, ProgramHeader64, SectionHeader64};
use object::pod;
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

mod imports;
mod strings;

use symbols::{Found, Symbol, Table, Wanted};

/// Largest function whose code is read, in bytes.
const CODE_BYTES: u64 = 1 << 20;
/// Bytes of code that are read at a symbol without a size.
const UNSIZED_CODE_BYTES: u64 = 256;
/// Longest name that is read, in bytes.
const NAME_BYTES: u64 = 4096;

/// Why an ELF file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// Not an ELF file, for example a memory file that holds JIT code.
    #[error("not an ELF file")]
    NotElf,
    /// Another class, byte order or machine.
    #[error("not a 64-bit x86 ELF file")]
    OtherMachine,
    /// The file contradicts itself.
    #[error("malformed ELF file: {0}")]
    Malformed(&'static str),
    /// An address that no loadable segment contains.
    #[error("address {0:#x} is in no segment of the file")]
    NoSegment(u64),
    /// A probe in the function could harm the process.
    #[error("a probe at its entry could kill the process")]
    Harmful,
    /// The file cannot be read.
    #[error("read: {0}")]
    Read(#[from] io::Error),
}

/// A loadable segment.
#[derive(Clone, Copy, Debug)]
struct Segment {
    svma: u64,
    offset: u64,
    file_bytes: u64,
    memory_bytes: u64,
    is_code: bool,
}

/// An ELF file whose headers have been read.
#[derive(Debug)]
pub struct Elf<'f> {
    file: &'f File,
    file_bytes: u64,
    segments: Vec<Segment>,
    /// Whether the file asks for a dynamic loader (`PT_INTERP`).
    pub has_interpreter: bool,
    /// Whether the file can be started as a program (`ET_EXEC`, or marked as a position-independent
    /// executable).
    pub is_executable: bool,
    /// `DT_SONAME`, empty if the file has none.
    pub soname: String,
    /// GNU build id, lower-case hex, empty if the file has none.
    pub build_id: String,
    /// Whether Go's linker made the file.
    pub is_go: bool,
    dynamic_symbols: Option<Table>,
    static_symbols: Option<Table>,
    /// The section headers; none if the file has been stripped of them.
    pub(super) sections: Vec<SectionHeader64<LE>>,
    /// Index of the section that holds the sections' names.
    pub(super) section_names: usize,
}

impl<'f> Elf<'f> {
    /// Reads the headers of `file`.
    pub fn read(file: &'f File) -> Result<Elf<'f>, ElfError> {
        let file_bytes = file.metadata()?.len();
        let mut elf = Elf {
            file,
            file_bytes,
            segments: Vec::new(),
            has_interpreter: false,
            is_executable: false,
            soname: String::new(),
            build_id: String::new(),
            is_go: false,
            dynamic_symbols: None,
            static_symbols: None,
            sections: Vec::new(),
            section_names: 0,
        };
        let header = elf.header()?;
        elf.is_executable = header.e_type.get(LE) == elf::ET_EXEC;
        let malformed = |what| move |_: object::Error| ElfError::Malformed(what);
        let data = &BoundedFile::new(file, MAX_HEADER_BYTES);
        let programs = header.program_headers(LE, data).map_err(malformed("program headers"))?;
        elf.segments = programs.iter().filter_map(loadable).collect();
        for program in programs {
            match program.p_type(LE) {
                elf::PT_INTERP => elf.has_interpreter = true,
                elf::PT_DYNAMIC => {
                    let entries = program.dynamic(LE, data);
                    let entries = entries.map_err(malformed("dynamic entries"))?;
                    elf.read_dynamic(entries.unwrap_or_default())?;
                }
                elf::PT_NOTE => {
                    let bytes =
                        program.data(LE, data).map_err(|()| ElfError::Malformed("notes"))?;
                    elf.is_go |= notes::is_go(bytes, program.p_align(LE));
                    if elf.build_id.is_empty() {
                        elf.build_id = notes::build_id(bytes, program.p_align(LE));
                    }
                }
                _ => {}
            }
        }
        let sections = header.section_headers(LE, data);
        let sections = sections.map_err(malformed("section headers"))?;
        // A file without section headers has no symbol table that we can find.
        elf.dynamic_symbols = Table::find(sections, elf::SHT_DYNSYM, file_bytes)?;
        elf.static_symbols = Table::find(sections, elf::SHT_SYMTAB, file_bytes)?;
        elf.sections = sections.to_vec();
        elf.section_names = usize::from(header.e_shstrndx.get(LE));
        Ok(elf)
    }

    /// Bytes of memory from the start of the first mapped segment to the end of the last one,
    /// zeroed data included.
    pub fn memory_bytes(&self) -> u64 {
        const PAGE: u64 = 4096;
        let first = self.segments.iter().map(|segment| segment.svma / PAGE * PAGE).min();
        let end = self.segments.iter().map(|of| of.svma.saturating_add(of.memory_bytes)).max();
        end.unwrap_or(0) - first.unwrap_or(0)
    }

    /// Defined functions with one of these names that other files can bind to. Every version of a
    /// name is a symbol of its own.
    pub fn dynamic_functions(&self, names: &[&'static str]) -> Result<Vec<Symbol>, ElfError> {
        let wanted = Wanted { prefix: "", names, unique_names: &[] };
        Ok(self.functions(self.dynamic_symbols.as_ref(), &wanted)?.functions)
    }

    /// Defined functions with one of these names in the symbol table that `strip` removes. Local
    /// functions are included.
    pub fn static_functions(&self, names: &[&'static str]) -> Result<Vec<Symbol>, ElfError> {
        let wanted = Wanted { prefix: "", names, unique_names: &[] };
        Ok(self.functions(self.static_symbols.as_ref(), &wanted)?.functions)
    }

    /// Address of an object that other files can bind to.
    pub fn dynamic_data(&self, name: &'static str) -> Result<Option<u64>, ElfError> {
        let found = self.dynamic_symbols.as_ref().map(|table| table.data(self.file, name));
        Ok(found.transpose()?.flatten())
    }

    /// The wanted functions of two tables: the functions that other files can bind to, and all
    /// functions.
    pub(super) fn both_functions(&self, wanted: &Wanted<'_>) -> Result<[Found; 2], ElfError> {
        let of = |table: &Option<Table>| self.functions(table.as_ref(), wanted);
        Ok([of(&self.dynamic_symbols)?, of(&self.static_symbols)?])
    }

    /// Bytes that a search for allocators reads, at most: the symbol tables, and the code of a
    /// program.
    pub(super) fn searched_bytes(&self) -> u64 {
        let tables = [&self.dynamic_symbols, &self.static_symbols].into_iter().flatten();
        let code = self.code_segments().filter(|_| self.is_executable).map(|(_, bytes)| bytes);
        tables.map(Table::bytes).chain(code).fold(0, u64::saturating_add)
    }

    /// Whether the file has the symbol table that `strip` removes.
    pub fn has_static_symbols(&self) -> bool {
        self.static_symbols.is_some()
    }

    fn functions(&self, table: Option<&Table>, wanted: &Wanted<'_>) -> Result<Found, ElfError> {
        table.map_or(Ok(Found::default()), |table| table.functions(self.file, wanted))
    }

    /// File offset of an address in the file's own address space.
    pub fn file_offset(&self, svma: u64) -> Result<u64, ElfError> {
        self.locate(svma).map(|(offset, _)| offset)
    }

    /// The code of a function. For a function without a size, its first bytes.
    pub fn code(&self, symbol: &Symbol) -> Result<Vec<u8>, ElfError> {
        let (offset, behind) = self.locate(symbol.svma)?;
        let size = match symbol.size {
            0 => UNSIZED_CODE_BYTES,
            size => size,
        };
        self.bytes(offset, size.min(behind), CODE_BYTES, "a function is too large")
    }

    /// Code at an address, at most `most` bytes.
    pub fn code_at(&self, svma: u64, most: u64) -> Result<Vec<u8>, ElfError> {
        let (offset, behind) = self.locate(svma)?;
        self.bytes(offset, most.min(behind), CODE_BYTES, "a function is too large")
    }

    /// Segments with code: the address and the bytes in the file of each.
    pub fn code_segments(&self) -> impl Iterator<Item = (u64, u64)> {
        self.segments.iter().filter(|of| of.is_code).map(|of| (of.svma, of.file_bytes))
    }

    /// File offset of an address and the bytes from there to the end of its segment.
    fn locate(&self, svma: u64) -> Result<(u64, u64), ElfError> {
        let find = |segment: &Segment| {
            let inside = svma.checked_sub(segment.svma)?;
            let behind = segment.file_bytes.checked_sub(inside).filter(|&bytes| bytes > 0)?;
            Some((segment.offset.checked_add(inside)?, behind))
        };
        self.segments.iter().find_map(find).ok_or(ElfError::NoSegment(svma))
    }

    pub(super) fn bytes(
        &self,
        offset: u64,
        size: u64,
        most: u64,
        what: &'static str,
    ) -> Result<Vec<u8>, ElfError> {
        let inside = offset.checked_add(size).is_some_and(|end| end <= self.file_bytes);
        if size > most || !inside {
            return Err(ElfError::Malformed(what));
        }
        let mut bytes = vec![0; size as usize];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn header(&self) -> Result<FileHeader64<LE>, ElfError> {
        let size = size_of::<FileHeader64<LE>>() as u64;
        let bytes = self.bytes(0, size.min(self.file_bytes), size, "header")?;
        if !bytes.starts_with(&elf::ELFMAG) {
            return Err(ElfError::NotElf);
        }
        if bytes.get(4..6) != Some(&[elf::ELFCLASS64, elf::ELFDATA2LSB]) {
            return Err(ElfError::OtherMachine);
        }
        let (header, _) = pod::from_bytes::<FileHeader64<LE>>(&bytes)
            .map_err(|()| ElfError::Malformed("header"))?;
        if header.e_machine.get(LE) != elf::EM_X86_64 {
            return Err(ElfError::OtherMachine);
        }
        Ok(*header)
    }

    fn read_dynamic(&mut self, entries: &[Dyn64<LE>]) -> Result<(), ElfError> {
        let value = |tag: i64| {
            let entry = entries.iter().find(|entry| entry.d_tag.get(LE) == tag);
            entry.map(|entry| entry.d_val.get(LE))
        };
        let flags = value(elf::DT_FLAGS_1).unwrap_or(0);
        self.is_executable |= flags & u64::from(elf::DF_1_PIE) != 0;
        if let (Some(strings), Some(name)) = (value(elf::DT_STRTAB), value(elf::DT_SONAME)) {
            let (offset, behind) = self.locate(strings.saturating_add(name))?;
            let bytes = self.bytes(offset, behind.min(NAME_BYTES), NAME_BYTES, "soname")?;
            let name = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
            self.soname = String::from_utf8_lossy(name).into_owned();
        }
        Ok(())
    }
}

fn loadable(program: &ProgramHeader64<LE>) -> Option<Segment> {
    (program.p_type.get(LE) == elf::PT_LOAD).then(|| Segment {
        svma: program.p_vaddr.get(LE),
        offset: program.p_offset.get(LE),
        file_bytes: program.p_filesz.get(LE),
        memory_bytes: program.p_memsz.get(LE),
        is_code: program.p_flags.get(LE) & elf::PF_X != 0,
    })
}

#[cfg(test)]
mod tests;
