//! The parts of an ELF file that the unwinder needs. They are read piece by piece: binaries are
//! never read whole.
//!
//! References: the ELF gABI, the LSB chapter on `.eh_frame` and `.eh_frame_hdr`.

use super::cfi::cache::MAX_UNWIND_BYTES;
use super::module::CodeSegment;
use crate::bounded_file::{BoundedFile, MAX_HEADER_BYTES};
use crate::inspect::elf::notes;
use object::elf::{
    FileHeader64, PF_X, PT_GNU_EH_FRAME, PT_LOAD, PT_NOTE, ProgramHeader64, SHT_NOBITS,
};
use object::read::ReadRef;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::{LittleEndian, read};
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

const ENDIAN: LittleEndian = LittleEndian;

/// Most bytes of a section that is read for unwinding, since the file may claim any size. Sections
/// of web browsers take some twenty MiB.
const MAX_SECTION_BYTES: u64 = MAX_UNWIND_BYTES as u64 / 4;

/// Bytes of a note segment that is searched for the build id.
const MAX_NOTE_BYTES: u64 = 64 * 1024;

/// Most bytes of code behind the entry point that belong to the entry, a dozen instructions.
const MAX_ENTRY_BYTES: u64 = 64;

type Header = FileHeader64<LittleEndian>;

/// Most bytes of a file that are read for its sections, with their headers and names.
const MAX_READ_BYTES: u64 = MAX_SECTION_BYTES + MAX_HEADER_BYTES;

/// A segment of the file that is loaded into memory.
#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
    is_code: bool,
}

/// Bytes of a page. The kernel maps whole pages.
const PAGE_BYTES: u64 = 4096;

/// Cheap facts of an ELF file, for which a few hundred bytes are read.
#[derive(Clone, Debug)]
pub(super) struct Headers {
    /// GNU build id, lower-case hex, empty if the file has none.
    pub(super) build_id: String,
    /// Address at which the kernel or the loader enters the file; in libraries 0 or any value.
    entry: u64,
    loads: Vec<Segment>,
}

impl Headers {
    /// Reads the headers from a file; `None` if it is no 64-bit little-endian ELF file.
    pub(super) fn of_file(file: &File) -> Option<Headers> {
        headers(&BoundedFile::new(file, MAX_HEADER_BYTES)).ok()
    }

    /// Reads the headers from memory.
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<Headers> {
        headers(bytes).ok()
    }

    /// The file's executable segments.
    pub(super) fn code_segments(&self) -> Vec<CodeSegment> {
        let segment = |of: &Segment| CodeSegment {
            offsets: of.offset..of.offset.saturating_add(of.size),
            svma: of.address,
        };
        self.code().map(segment).collect()
    }

    /// Stated address (SVMA) of the byte at a file offset in an executable segment.
    pub(super) fn svma(&self, offset: u64) -> Option<u64> {
        let segment = self.code().find(|segment| {
            // A mapping begins below an unaligned segment.
            let first = segment.offset & !(PAGE_BYTES - 1);
            (first..segment.offset.saturating_add(segment.size)).contains(&offset)
        })?;
        Some(segment.address.wrapping_sub(segment.offset).wrapping_add(offset))
    }

    fn code(&self) -> impl Iterator<Item = &Segment> {
        self.loads.iter().filter(|segment| segment.is_code)
    }

    /// Stated address of the file's first byte.
    pub(super) fn first_svma(&self) -> Option<u64> {
        let first = self.loads.first()?;
        Some(first.address.wrapping_sub(first.offset))
    }

    /// File offset of the first of these stated addresses, if all of them are code.
    pub(super) fn offset_of_code(&self, svma: Range<u64>) -> Option<u64> {
        let segment = self.code().find(|segment| {
            let first = segment.address & !(PAGE_BYTES - 1);
            let end = segment.address.checked_add(segment.size);
            let end = end.and_then(|end| end.checked_next_multiple_of(PAGE_BYTES));
            svma.start < svma.end && first <= svma.start && end.is_some_and(|end| svma.end <= end)
        })?;
        Some(svma.start.wrapping_sub(segment.address).wrapping_add(segment.offset))
    }

    /// Headers of a file with these segments: offset, size, stated address, whether the segment is
    /// code.
    #[cfg(test)]
    pub(super) fn of_loads(loads: &[(u64, u64, u64, bool)]) -> Headers {
        let loads = loads.iter().map(|&(offset, size, address, is_code)| Segment {
            offset,
            size,
            address,
            is_code,
        });
        Headers { build_id: String::new(), entry: 0, loads: loads.collect() }
    }

    /// Bytes from the entry point to a stated address, if the address may still belong to the
    /// entry's code.
    pub(super) fn behind_entry(&self, svma: u64) -> Option<u64> {
        let behind = svma.checked_sub(self.entry)?;
        (self.entry != 0 && behind <= MAX_ENTRY_BYTES).then_some(behind)
    }
}

/// A section: its stated addresses (SVMA) and its bytes.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) svma: Range<u64>,
    pub(super) bytes: Arc<[u8]>,
}

/// The sections that unwinding by call frame information needs. Code is not among them, since
/// `.eh_frame` is exact at every instruction.
#[derive(Clone, Debug, Default)]
pub(super) struct Sections {
    pub(super) text_svma: Option<Range<u64>>,
    pub(super) got_svma: Option<Range<u64>>,
    pub(super) eh_frame: Option<Section>,
    pub(super) eh_frame_hdr: Option<Section>,
    /// Whether a section was not read because it is larger than [`MAX_SECTION_BYTES`].
    pub(super) has_too_large: bool,
}

impl Sections {
    /// Reads the sections from a file; empty if the file has none.
    pub(super) fn of_file(file: &File) -> Sections {
        sections(&BoundedFile::new(file, MAX_READ_BYTES)).unwrap_or_default()
    }

    /// Reads the sections from memory.
    pub(super) fn of_bytes(bytes: &[u8]) -> Sections {
        sections(bytes).unwrap_or_default()
    }
}

fn headers<'data>(data: impl ReadRef<'data>) -> read::Result<Headers> {
    let header = Header::parse(data)?;
    let segments = header.program_headers(ENDIAN, data)?;
    let load = |segment: &&ProgramHeader64<LittleEndian>| segment.p_type(ENDIAN) == PT_LOAD;
    Ok(Headers {
        build_id: build_id(segments, data),
        entry: header.e_entry.get(ENDIAN),
        loads: segments
            .iter()
            .filter(load)
            .map(|segment| Segment {
                offset: segment.p_offset(ENDIAN),
                size: segment.p_filesz(ENDIAN),
                address: segment.p_vaddr(ENDIAN),
                is_code: segment.p_flags(ENDIAN) & PF_X != 0,
            })
            .collect(),
    })
}

fn build_id<'data>(
    segments: &[ProgramHeader64<LittleEndian>],
    data: impl ReadRef<'data>,
) -> String {
    let is_notes = |it: &&ProgramHeader64<LittleEndian>| {
        it.p_type(ENDIAN) == PT_NOTE && it.p_filesz(ENDIAN) <= MAX_NOTE_BYTES
    };
    let id = |it: &ProgramHeader64<LittleEndian>| {
        let id = notes::build_id(it.data(ENDIAN, data).ok()?, it.p_align(ENDIAN));
        (!id.is_empty()).then_some(id)
    };
    segments.iter().filter(is_notes).find_map(id).unwrap_or_default()
}

fn sections<'data>(data: impl ReadRef<'data>) -> read::Result<Sections> {
    let header = Header::parse(data)?;
    let mut found = by_name(header, data).unwrap_or_default();
    if found.eh_frame.is_none() {
        let segments = header.program_headers(ENDIAN, data)?;
        (found.eh_frame_hdr, found.eh_frame) = by_segment(segments, data).unzip();
    }
    Ok(found)
}

fn by_name<'data>(header: &Header, data: impl ReadRef<'data>) -> read::Result<Sections> {
    let table = header.sections(ENDIAN, data)?;
    let mut found = Sections::default();
    for section in table.iter() {
        let address = section.sh_addr(ENDIAN);
        let svma = address..address.saturating_add(section.sh_size(ENDIAN));
        let kept = match table.section_name(ENDIAN, section)? {
            b".text" => {
                found.text_svma = Some(svma);
                continue;
            }
            b".got" => {
                found.got_svma = Some(svma);
                continue;
            }
            b".eh_frame" => &mut found.eh_frame,
            b".eh_frame_hdr" => &mut found.eh_frame_hdr,
            _ => continue,
        };
        // The first of several sections with one name counts. `strip --only-keep-debug` leaves
        // SHT_NOBITS.
        if kept.is_some() || section.sh_type(ENDIAN) == SHT_NOBITS {
            continue;
        }
        if section.sh_size(ENDIAN) > MAX_SECTION_BYTES {
            found.has_too_large = true;
            continue;
        }
        let bytes = Arc::from(section.data(ENDIAN, data)?);
        *kept = Some(Section { svma, bytes });
    }
    Ok(found)
}

/// Finds the sections in files without section headers. PT_GNU_EH_FRAME is `.eh_frame_hdr`, which
/// points to `.eh_frame`. That section ends with its segment at the latest (a zero length in it
/// marks its true end).
fn by_segment<'data>(
    segments: &[ProgramHeader64<LittleEndian>],
    data: impl ReadRef<'data>,
) -> Option<(Section, Section)> {
    let index = segments.iter().find(|it| it.p_type(ENDIAN) == PT_GNU_EH_FRAME)?;
    if index.p_filesz(ENDIAN) > MAX_SECTION_BYTES {
        return None;
    }
    let bytes = index.data(ENDIAN, data).ok()?;
    let address = index.p_vaddr(ENDIAN);
    let start = eh_frame_pointer(bytes, address)?;
    let segment = segments.iter().find(|it| {
        let first = it.p_vaddr(ENDIAN);
        let end = first.saturating_add(it.p_filesz(ENDIAN));
        it.p_type(ENDIAN) == PT_LOAD && (first..end).contains(&start)
    })?;
    let end = segment.p_vaddr(ENDIAN).saturating_add(segment.p_filesz(ENDIAN));
    let offset = segment.p_offset(ENDIAN) + (start - segment.p_vaddr(ENDIAN));
    let eh_frame = data.read_bytes_at(offset, (end - start).min(MAX_SECTION_BYTES)).ok()?;
    Some((
        Section { svma: address..address + bytes.len() as u64, bytes: Arc::from(bytes) },
        Section { svma: start..end, bytes: Arc::from(eh_frame) },
    ))
}

/// `eh_frame_ptr` of `.eh_frame_hdr`, in the only encoding that linkers write:
/// DW_EH_PE_pcrel | sdata4.
fn eh_frame_pointer(bytes: &[u8], address: u64) -> Option<u64> {
    let (&[1, 0x1b, _, _], rest) = bytes.split_first_chunk::<4>()? else { return None };
    let relative = i32::from_le_bytes(*rest.first_chunk()?);
    address.checked_add(4)?.checked_add_signed(i64::from(relative))
}
