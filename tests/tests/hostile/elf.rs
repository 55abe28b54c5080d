//! ELF files that were made to harm their readers, written byte by byte.

use anyhow::Result;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Offset and address of the code.
pub(crate) const CODE: u64 = 0x1000;
const CODE_BYTES: u64 = 0x1000;
/// Offset of the first section.
const SECTIONS: u64 = CODE + CODE_BYTES;

const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHF_COMPRESSED: u64 = 0x800;
const ELFCOMPRESS_ZLIB: u32 = 1;
const ELFCOMPRESS_ZSTD: u32 = 2;

/// `push rbp; mov rbp, rsp; mov rax, rdi; mov rdi, rsi; call rax; pop rbp; ret`
const CALLER: &[u8] =
    &[0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3];

struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    link: u32,
    entry_bytes: u64,
    bytes: Vec<u8>,
    /// The size that the section's header claims, if it is not the real one.
    claimed: Option<u64>,
}

/// A file under construction.
#[derive(Default)]
pub(crate) struct Elf {
    sections: Vec<Section>,
    /// Bytes of notes that a program header claims.
    notes: u64,
    build_id: Option<[u8; 20]>,
    /// Number of program headers that the file claims, if it is not the real one.
    programs: Option<u32>,
}

impl Elf {
    /// Adds a section.
    pub(crate) fn section(self, name: &'static str, bytes: Vec<u8>) -> Elf {
        self.with(name, SHT_PROGBITS, 0, bytes, None)
    }

    /// Adds a section that claims more bytes than there are.
    pub(crate) fn claiming(self, name: &'static str, size: u64) -> Elf {
        self.with(name, SHT_PROGBITS, 0, Vec::new(), Some(size))
    }

    /// Adds a symbol table that claims this many bytes of symbols and as many of names.
    pub(crate) fn claiming_symbols(self, size: u64) -> Elf {
        let link = self.sections.len() as u32 + 2;
        let mut elf = self.with(".symtab", SHT_SYMTAB, 0, Vec::new(), Some(size));
        if let Some(table) = elf.sections.last_mut() {
            (table.link, table.entry_bytes) = (link, 24);
        }
        elf.with(".strtab", SHT_STRTAB, 0, Vec::new(), Some(size))
    }

    /// Adds a section compressed with zlib that claims to have `size` bytes.
    pub(crate) fn compressed(self, name: &'static str, size: u64, packed: &[u8]) -> Elf {
        self.compressed_by(ELFCOMPRESS_ZLIB, name, size, packed)
    }

    /// Adds a section of this many zeros compressed with zstd.
    pub(crate) fn zstd_zeros(self, name: &'static str, size: u64) -> Elf {
        self.compressed_by(ELFCOMPRESS_ZSTD, name, size, &zstd_zeros(size))
    }

    fn compressed_by(self, kind: u32, name: &'static str, size: u64, packed: &[u8]) -> Elf {
        let mut bytes = words(&[kind, 0]);
        bytes.extend(longs(&[size, 1]));
        bytes.extend(packed);
        self.with(name, SHT_PROGBITS, SHF_COMPRESSED, bytes, None)
    }

    /// Adds notes of this many bytes.
    pub(crate) fn notes(mut self, bytes: u64) -> Elf {
        self.notes = bytes;
        self
    }

    /// Claims this many program headers: the first section's header has the number (`PN_XNUM`).
    pub(crate) fn programs(mut self, count: u32) -> Elf {
        self.programs = Some(count);
        self
    }

    /// Adds a build id.
    pub(crate) fn build_id(mut self, id: [u8; 20]) -> Elf {
        self.build_id = Some(id);
        self
    }

    /// Adds a symbol for all of the code.
    pub(crate) fn symbol(self, name: &str) -> Elf {
        let mut symbols = vec![0; 24];
        // The symbol is a global function in the first section, if there is one.
        symbols.extend(words(&[1]));
        symbols.extend([0x12, 0, 1, 0]);
        symbols.extend(longs(&[CODE, CODE_BYTES]));
        let strings = [b"\0", name.as_bytes(), b"\0"].concat();
        // Index of the section after this one. Section 0 is empty.
        let link = self.sections.len() as u32 + 2;
        let mut elf = self.with(".symtab", SHT_SYMTAB, 0, symbols, None);
        if let Some(table) = elf.sections.last_mut() {
            (table.link, table.entry_bytes) = (link, 24);
        }
        elf.with(".strtab", SHT_STRTAB, 0, strings, None)
    }

    fn with(
        mut self,
        name: &'static str,
        kind: u32,
        flags: u64,
        bytes: Vec<u8>,
        claimed: Option<u64>,
    ) -> Elf {
        self.sections.push(Section { name, kind, flags, link: 0, entry_bytes: 0, bytes, claimed });
        self
    }

    /// Writes the file. Claimed bytes are a hole in the file.
    pub(crate) fn write(mut self, path: &Path) -> Result<()> {
        let file = File::create(path)?;
        file.write_all_at(CALLER, CODE)?;
        let mut names = vec![0];
        let mut headers = vec![0; 64];
        let strings = self.sections.len() + 1;
        self.sections.push(Section {
            name: ".shstrtab",
            kind: SHT_STRTAB,
            flags: 0,
            link: 0,
            entry_bytes: 0,
            bytes: Vec::new(),
            claimed: None,
        });
        for section in &self.sections {
            names.extend(section.name.bytes().chain([0]));
        }
        let (mut offset, mut name, mut end) = (SECTIONS, 1, SECTIONS);
        for section in &self.sections {
            let bytes = if section.name == ".shstrtab" { &names } else { &section.bytes };
            file.write_all_at(bytes, offset)?;
            let size = section.claimed.unwrap_or(bytes.len() as u64);
            headers.extend(words(&[name, section.kind]));
            headers.extend(longs(&[section.flags, 0, offset, size]));
            headers.extend(words(&[section.link, 1]));
            headers.extend(longs(&[1, section.entry_bytes]));
            name += section.name.len() as u32 + 1;
            end = end.max(offset + size);
            offset += (bytes.len() as u64).next_multiple_of(16).max(16);
        }
        if let Some(count) = self.programs {
            headers[44..48].copy_from_slice(&count.to_le_bytes());
            end = end.max(64 + 56 * u64::from(count));
        }
        file.write_all_at(&headers, offset)?;
        end = end.max(offset + headers.len() as u64);
        let mut id = words(&[4, 20, 3]);
        id.extend(b"GNU\0");
        id.extend(self.build_id.unwrap_or_default());
        let is_named = self.build_id.is_some();
        let notes = if is_named { id.len() as u64 } else { self.notes };
        file.write_all_at(&id, 0x200)?;
        file.set_len(end.max(0x200 + notes))?;
        let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        head.extend(halves(&[3, 62]));
        head.extend(words(&[1]));
        head.extend(longs(&[0, 64, offset]));
        head.extend(words(&[0]));
        let programs = self.programs.map_or(1 + u16::from(notes > 0), |_| u16::MAX);
        head.extend(halves(&[
            64,
            56,
            programs,
            64,
            self.sections.len() as u16 + 1,
            strings as u16,
        ]));
        head.extend(words(&[1, 5]));
        head.extend(longs(&[CODE, CODE, CODE, CODE_BYTES, CODE_BYTES, 0x1000]));
        head.extend(words(&[4, 4]));
        head.extend(longs(&[0x200, 0x200, 0x200, notes, notes, 4]));
        file.write_all_at(&head, 0)?;
        Ok(())
    }
}

/// This many zeros, compressed.
pub(crate) fn packed_zeros(size: usize) -> Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![0; 1 << 20];
    for _ in 0..size >> 20 {
        encoder.write_all(&zeros)?;
    }
    Ok(encoder.finish()?)
}

/// `.debug_abbrev` and `.debug_info` of a function with `depth` functions inlined into one another.
pub(crate) fn inlined(depth: usize) -> (Vec<u8>, Vec<u8>) {
    // 1: compile unit, name, low_pc, high_pc, stmt_list; 2: subprogram, name, low_pc, high_pc; 3:
    // inlined subroutine, abstract_origin, low_pc, high_pc.
    let abbreviations = [
        &[1, 0x11, 1, 3, 8, 0x11, 1, 0x12, 7, 0x10, 0x17, 0, 0][..],
        &[2, 0x2e, 1, 3, 8, 0x11, 1, 0x12, 7, 0, 0],
        &[3, 0x1d, 1, 0x31, 0x13, 0x11, 1, 0x12, 7, 0, 0, 0],
    ]
    .concat();
    let range = longs(&[CODE, CODE_BYTES]);
    let mut unit = halves(&[4]);
    unit.extend(words(&[0]));
    unit.push(8);
    unit.push(1);
    unit.extend(b"unit\0");
    unit.extend(&range);
    unit.extend(words(&[0]));
    let function = unit.len() as u32 + 4;
    unit.push(2);
    unit.extend(b"function\0");
    unit.extend(&range);
    for _ in 0..depth {
        unit.push(3);
        unit.extend(words(&[function]));
        unit.extend(&range);
    }
    unit.extend(vec![0; depth + 2]);
    let mut info = words(&[unit.len() as u32]);
    info.extend(unit);
    (abbreviations, info)
}

/// `.debug_line` with `rows` rows.
pub(crate) fn lines(rows: usize) -> Vec<u8> {
    // Version 4, up to the names of files: instruction length, operations, is_stmt, line base and
    // range, 13 opcodes, no directories, one file.
    let mut header = vec![1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0];
    header.extend(b"a.c\0\0\0\0\0");
    let mut body = halves(&[4]);
    body.extend(words(&[header.len() as u32]));
    body.extend(header);
    body.extend([0, 9, 2]);
    body.extend(longs(&[CODE]));
    // A special opcode: advances the address by one byte, in the same line.
    body.extend(vec![0x20; rows]);
    body.extend([0, 1, 1]);
    let mut all = words(&[body.len() as u32]);
    all.extend(body);
    all
}

/// A zstd frame of this many zeros: a window of 2 MiB, and blocks that repeat one byte.
fn zstd_zeros(size: u64) -> Vec<u8> {
    const BLOCK_BYTES: u32 = 128 << 10;
    const REPEATED: u32 = 1 << 1;
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 11 << 3];
    let blocks = size.div_ceil(u64::from(BLOCK_BYTES));
    for block in 1..=blocks {
        let header = u32::from(block == blocks) | REPEATED | BLOCK_BYTES << 3;
        frame.extend(&header.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

/// A C++ name in which each parameter doubles the one before.
pub(crate) fn doubling(parameters: usize) -> String {
    let digit = |of: usize| char::from(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[of]);
    let parameter = |at: usize| match at {
        0 => "1pIiiE".to_owned(),
        _ => format!("S_IS{0}_S{0}_E", digit(at - 1)),
    };
    format!("_Z1f{}", (0..parameters).map(parameter).collect::<String>())
}

fn halves(of: &[u16]) -> Vec<u8> {
    of.iter().flat_map(|it| it.to_le_bytes()).collect()
}

fn words(of: &[u32]) -> Vec<u8> {
    of.iter().flat_map(|it| it.to_le_bytes()).collect()
}

fn longs(of: &[u64]) -> Vec<u8> {
    of.iter().flat_map(|it| it.to_le_bytes()).collect()
}
