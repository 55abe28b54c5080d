//! The loader: turns the sampler's library into an image in the target.
//!
//! The memory file holds the library byte for byte, so that any tool reads its symbols, probes and
//! unwind tables there.
//! The pages of code around hooks follow the library in the file.
//! The first mapping of the file reserves the whole range. All further mappings of the image,
//! except the pages around hooks, lie between the beginning of that range and the record's page. So
//! the parts of an unfinished image are recognized.
//!
//! References: System V ABI (program loading); `sampler-preload/src/inject.rs` for the words.

use crate::calls::Call;
use crate::elf::{File64, Relocation, Segment, Symbol};
use crate::layout::Layout;
use crate::maps::{Maps, PAGE_BYTES};
use crate::plan::HEAP_GROWTH_BYTES;
use anyhow::{Context, Result, ensure};
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

/// Offset of the image's thread-local memory from the thread pointer. It is
/// `tcbhead_t.__glibc_unused2` of glibc since 2.23, zero in every thread.
pub const THREAD_OFFSET: u64 = 0x80;
/// Bytes of thread-local memory that the library uses.
pub const THREAD_BYTES: usize = 24;
/// "SMPLINJ2": the layout of the words.
const WORDS_MAGIC: u64 = u64::from_le_bytes(*b"SMPLINJ2");
/// Words before the functions.
const HEAD_WORDS: u64 = 13;
/// Size of a function in the table of words: its name, and three words.
const FUNCTION_BYTES: u64 = FUNCTION_NAME_BYTES + 3 * 8;
const FUNCTION_NAME_BYTES: u64 = 40;
/// Distance in bytes between the image and the upper end of its gap. The program's own mappings
/// seldom come there.
const DISTANCE: u64 = 8 << 30;

/// Addresses of the words that say where a function's calls go on to.
#[derive(Clone, Copy, Debug)]
struct FunctionWords {
    next: u64,
    marked: u64,
    trampoline: u64,
}

/// Words of the library that the loader fills, as addresses in its file.
#[derive(Clone, Debug)]
struct LoaderWords {
    rate: u64,
    requested: u64,
    clock: u64,
    seed: u64,
    is_done: u64,
    detection: u64,
    mark: u64,
    areas: [(u64, u64); 2],
    functions: HashMap<String, FunctionWords>,
}

/// Values that are written into the words.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    /// The sampling rate, in raw units.
    pub rate: u64,
    /// Address of `__vdso_clock_gettime`, or 0.
    pub clock: u64,
    /// A random seed.
    pub seed: u64,
    /// Whether the processor has `rdrand`.
    pub has_rdrand: bool,
}

/// The library that becomes an image.
pub struct Image {
    content: Vec<u8>,
    segments: Vec<Segment>,
    relocations: Vec<(u64, Relocation)>,
    symbols: HashMap<String, Symbol>,
    words: LoaderWords,
}

impl Image {
    /// Reads a library.
    ///
    /// # Errors
    /// If the library cannot be injected.
    pub fn read(path: &Path) -> Result<Image> {
        let read = || -> Result<Image> {
            let file = File64::new(File::open(path)?)?;
            let relocations = file.relocations()?;
            let symbols = file.symbols()?;
            let segments = file.segments()?;
            let content = file.all()?.to_vec();
            let words = words(&content, &segments, &relocations, &symbols)?;
            Ok(Image { content, segments, relocations, symbols, words })
        };
        read().with_context(|| format!("{} cannot be injected", path.display()))
    }

    /// Size of the image in bytes. The record's page is the last page.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let end = |segment: &Segment| segment.address + segment.memory_bytes;
        let end = self.segments.iter().map(end).max().unwrap_or(0);
        end.next_multiple_of(PAGE_BYTES) + PAGE_BYTES
    }

    /// Chooses the image's address: in the largest gap, far from the program's mappings.
    #[must_use]
    pub fn place(&self, maps: &Maps) -> Option<u64> {
        let bytes = self.bytes();
        let layout = maps.layout(HEAP_GROWTH_BYTES[0]);
        let Range { start, end } = layout.gaps().max_by_key(|gap| gap.end - gap.start)?;
        let distance = DISTANCE.min((end - start) / 2);
        let base = end.checked_sub(distance + bytes)? & !(PAGE_BYTES - 1);
        (base >= start).then_some(base)
    }

    /// Address of the library's function `name` in an image at `base`; hooked calls go there.
    #[must_use]
    pub fn entry(&self, base: u64, name: &str) -> Option<u64> {
        self.words.functions.contains_key(name).then_some(())?;
        Some(base + self.symbols.get(name)?.address)
    }

    /// Content of the memory file: the library, the pages around hooks, the record's page.
    #[must_use]
    pub fn content(&self, layout: &Layout) -> Vec<u8> {
        let mut content = self.content.clone();
        content.resize(self.pages_offset() as usize, 0);
        for (_, page) in &layout.pages {
            content.extend(page);
        }
        content.resize(content.len() + PAGE_BYTES as usize, 0);
        content
    }

    fn pages_offset(&self) -> u64 {
        (self.content.len() as u64).next_multiple_of(PAGE_BYTES)
    }

    /// Calls that map the image, and close the file.
    #[must_use]
    pub fn calls(&self, base: u64, layout: &Layout, file: u64) -> Vec<Call> {
        let bytes = self.bytes();
        let record = self.pages_offset() + PAGE_BYTES * layout.pages.len() as u64;
        let mut calls = vec![map(base, bytes, libc::PROT_NONE, Fixed::New, file, 0)];
        for segment in &self.segments {
            self.map_segment(base, segment, file, &mut calls);
        }
        let end = base + bytes - PAGE_BYTES;
        calls.push(map(end, PAGE_BYTES, READ_WRITE, Fixed::Ours, file, record));
        for ((address, _), at) in layout.pages.iter().zip(0..) {
            let offset = self.pages_offset() + PAGE_BYTES * at;
            calls.push(map(*address, PAGE_BYTES, READ_EXECUTE, Fixed::New, file, offset));
        }
        calls.push(Call { nr: libc::SYS_close, args: [file, 0, 0, 0, 0, 0] });
        calls
    }

    fn map_segment(&self, base: u64, of: &Segment, file: u64, calls: &mut Vec<Call>) {
        let start = of.address & !(PAGE_BYTES - 1);
        let file_end = (of.address + of.file_bytes).next_multiple_of(PAGE_BYTES);
        let offset = of.offset & !(PAGE_BYTES - 1);
        let protection = match (of.is_code(), of.is_writable()) {
            (true, _) => READ_EXECUTE,
            (false, true) => READ_WRITE,
            (false, false) => libc::PROT_READ,
        };
        let length = file_end - start;
        calls.push(map(base + start, length, protection, Fixed::Ours, file, offset));
        let end = (of.address + of.memory_bytes).next_multiple_of(PAGE_BYTES);
        if end > file_end {
            let [start, length] = [base + file_end, end - file_end];
            calls.push(map(start, length, protection, Fixed::Anonymous, u64::MAX, 0));
            calls.push(advise(start, length, libc::MADV_NOHUGEPAGE));
            if (file_end..end).contains(&self.words.mark) {
                calls.push(advise(base + self.words.mark, PAGE_BYTES, libc::MADV_WIPEONFORK));
            }
        }
    }

    /// Bytes to write into the image, by address: relocations, words, and zeros where the file has
    /// something else.
    ///
    /// # Errors
    /// If a word crosses the end of a writable part, or a hooked function has no words.
    pub fn writes(
        &self,
        base: u64,
        layout: &Layout,
        values: Values,
    ) -> Result<Vec<(u64, Vec<u8>)>> {
        let mut parts = self.writable_parts();
        for (address, becomes) in &self.relocations {
            let value = match becomes {
                Relocation::Base(addend) => base.wrapping_add(*addend),
                Relocation::ThreadOffset(addend) => THREAD_OFFSET.wrapping_add(*addend),
                Relocation::Missing => 0,
            };
            set(&mut parts, *address, &value.to_le_bytes())?;
        }
        let words = &self.words;
        // The mark is cleared in children.
        let detection = 1 | u64::from(values.has_rdrand) << 1;
        for (address, value) in [
            (words.rate, values.rate),
            (words.requested, values.rate),
            (words.clock, values.clock),
            (words.seed, values.seed | 1),
            (words.detection, detection),
            (words.mark, 1),
        ] {
            set(&mut parts, address, &value.to_le_bytes())?;
        }
        set(&mut parts, words.is_done, &[1])?;
        for placed in &layout.hooks {
            let of = words.functions.get(&placed.server).context("a function without words")?;
            let next =
                if placed.function.is_marked { base + of.trampoline } else { placed.original };
            set(&mut parts, of.marked, &placed.original.to_le_bytes())?;
            set(&mut parts, of.next, &next.to_le_bytes())?;
        }
        Ok(parts.into_iter().map(|(address, bytes)| (base + address, bytes)).collect())
    }

    /// Writable segments as the file has them, extended by zeros to the end of the page.
    fn writable_parts(&self) -> Vec<(u64, Vec<u8>)> {
        let writable = self.segments.iter().filter(|segment| segment.is_writable());
        let part = |segment: &Segment| {
            let from = segment.offset as usize;
            let mut bytes = self.content[from..from + segment.file_bytes as usize].to_vec();
            let end = (segment.address + segment.file_bytes).next_multiple_of(PAGE_BYTES);
            bytes.resize((end - segment.address) as usize, 0);
            (segment.address, bytes)
        };
        writable.map(part).collect()
    }

    /// Addresses of the rates in an image at `base`.
    #[must_use]
    pub fn rates(&self, base: u64) -> [u64; 2] {
        [base + self.words.rate, base + self.words.requested]
    }

    /// Areas that have to be zero when hooks are put in: address, bytes.
    #[must_use]
    pub fn areas(&self, base: u64) -> [(u64, u64); 2] {
        self.words.areas.map(|(start, bytes)| (base + start, bytes))
    }
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
const READ_EXECUTE: i32 = libc::PROT_READ | libc::PROT_EXEC;

/// What a mapping may replace at its address.
#[derive(Clone, Copy)]
enum Fixed {
    /// Nothing.
    New,
    /// The range that the first mapping reserved.
    Ours,
    /// The reserved range, by memory without a file.
    Anonymous,
}

fn map(address: u64, bytes: u64, protection: i32, fixed: Fixed, file: u64, offset: u64) -> Call {
    let flags = libc::MAP_PRIVATE
        | match fixed {
            Fixed::New => libc::MAP_FIXED_NOREPLACE,
            Fixed::Ours => libc::MAP_FIXED,
            Fixed::Anonymous => libc::MAP_FIXED | libc::MAP_ANONYMOUS,
        };
    let args = [address, bytes, protection as u64, flags as u64, file, offset];
    Call { nr: libc::SYS_mmap, args }
}

fn advise(address: u64, bytes: u64, advice: i32) -> Call {
    Call { nr: libc::SYS_madvise, args: [address, bytes, advice as u64, 0, 0, 0] }
}

/// Writes bytes into the part that contains `address`, or adds a part for memory without a file.
fn set(parts: &mut Vec<(u64, Vec<u8>)>, address: u64, bytes: &[u8]) -> Result<()> {
    for (start, part) in parts.iter_mut() {
        if let Some(at) = address.checked_sub(*start).filter(|at| *at < part.len() as u64) {
            let place = part.get_mut(at as usize..at as usize + bytes.len());
            place.context("a word across two pages")?.copy_from_slice(bytes);
            return Ok(());
        }
    }
    parts.push((address, bytes.to_vec()));
    Ok(())
}

/// Reads the library's table of words.
fn words(
    content: &[u8],
    segments: &[Segment],
    relocations: &[(u64, Relocation)],
    symbols: &HashMap<String, Symbol>,
) -> Result<LoaderWords> {
    let start = symbols.get("sampler_preload_words").context("it has no words to fill")?.address;
    let bases: HashMap<u64, u64> = relocations
        .iter()
        .filter_map(|(address, becomes)| match becomes {
            Relocation::Base(addend) => Some((*address, *addend)),
            _ => None,
        })
        .collect();
    let bytes_at = |address: u64, bytes: u64| {
        let has = |of: &&Segment| address.wrapping_sub(of.address) < of.file_bytes;
        let segment = segments.iter().find(has)?;
        let from = (segment.offset + address - segment.address) as usize;
        content.get(from..from + bytes as usize)
    };
    let word = |at: u64| -> Result<u64> {
        if let Some(addend) = bases.get(&at) {
            return Ok(*addend);
        }
        let bytes = bytes_at(at, 8).and_then(|bytes| bytes.try_into().ok());
        Ok(u64::from_le_bytes(bytes.with_context(|| format!("no word at {at:#x}"))?))
    };
    ensure!(word(start)? == WORDS_MAGIC, "its words are of another version");
    let end = start + word(start + 8)?;
    let head = |at: u64| word(start + 8 * at);
    let mut functions = HashMap::new();
    for at in (start + 8 * HEAD_WORDS..end).step_by(FUNCTION_BYTES as usize) {
        let name = bytes_at(at, FUNCTION_NAME_BYTES).context("a function without name")?;
        let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
        let [next, marked, trampoline] = [0, 8, 16].map(|of| word(at + FUNCTION_NAME_BYTES + of));
        let of = FunctionWords { next: next?, marked: marked?, trampoline: trampoline? };
        functions.insert(name, of);
    }
    Ok(LoaderWords {
        rate: head(2)?,
        requested: head(3)?,
        clock: head(4)?,
        seed: head(5)?,
        is_done: head(6)?,
        detection: head(7)?,
        mark: head(8)?,
        areas: [(head(9)?, head(10)?), (head(11)?, head(12)?)],
        functions,
    })
}
