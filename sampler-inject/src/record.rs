//! What was injected, written down in the target: whoever comes later takes it out, or goes on with it.
//!
//! The record lies on a page of the image. Its magic is written last, when everything that it speaks of is there; nothing leads into the image before.
//! Mappings of the image without such a record are what an injector left that was killed: nobody ever came there, and they may go.

use crate::maps::{Mapping, Maps, PAGE};
use crate::memory::Memory;
use anyhow::{Result, ensure};

/// Name of the image's memory file.
pub const NAME: &str = "otel_memory-sampler";
/// As the kernel shows it.
pub const SHOWN: &str = "/memfd:otel_memory-sampler (deleted)";
/// "SMPLREC1": the layout of [`Record::bytes`].
const MAGIC: u64 = u64::from_le_bytes(*b"SMPLREC1");
/// Words before the hooks.
const HEAD_WORDS: usize = 10;
/// Bytes of a hook: address, byte, four bytes behind it, boundaries, name.
const HOOK_BYTES: usize = 40;
const NAME_BYTES: usize = 24;
/// Hooks that fit.
pub const MAX_HOOKS: usize = (PAGE as usize - HEAD_WORDS * 8) / HOOK_BYTES;

/// A hook as it is, or can be, put in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hook {
    /// Name of the function.
    pub name: String,
    /// Address of the byte that becomes `E9`.
    pub patch: u64,
    /// The byte as the file has it.
    pub original: u8,
    /// The four bytes behind it as the file has them.
    pub following: [u8; 4],
    /// Which of them begin an instruction: there may be other tools' breakpoints.
    pub boundaries: u8,
}

/// What was injected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// First address of the image.
    pub base: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// Where the rate in force, and the rate that was asked for, are written.
    pub rates: [u64; 2],
    /// What has to be zero when hooks are put in again: address, bytes.
    pub areas: [(u64, u64); 2],
    /// The hooks in the order in which they are put in.
    pub hooks: Vec<Hook>,
}

impl Record {
    /// The page without its magic.
    #[must_use]
    pub fn page(&self) -> Vec<u8> {
        let [(filter, filter_bytes), (table, table_bytes)] = self.areas;
        let words = [
            0,
            self.base,
            self.bytes,
            self.rates[0],
            self.rates[1],
            filter,
            filter_bytes,
            table,
            table_bytes,
            self.hooks.len() as u64,
        ];
        let mut page: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for hook in &self.hooks {
            page.extend(hook.patch.to_le_bytes());
            page.push(hook.original);
            page.extend(hook.following);
            page.push(hook.boundaries);
            page.extend([0; 2]);
            let mut name = [0; NAME_BYTES];
            for (place, byte) in name.iter_mut().zip(hook.name.bytes()) {
                *place = byte;
            }
            page.extend(name);
        }
        page
    }

    /// What makes it valid, at the page's beginning.
    #[must_use]
    pub fn magic() -> [u8; 8] {
        MAGIC.to_le_bytes()
    }

    /// Whether what it speaks of lies in the image. The record is the target's own memory, and may say anything.
    fn is_sound(&self) -> bool {
        let is_inside = |start: u64, bytes: u64| {
            start >= self.base && bytes <= self.bytes && start - self.base <= self.bytes - bytes
        };
        let rates = self.rates.iter().all(|rate| is_inside(*rate, 8));
        rates && self.areas.iter().all(|(start, bytes)| is_inside(*start, *bytes))
    }

    /// Reads the record at an address; `None`: there is none.
    fn read(memory: &Memory, address: u64) -> Option<Record> {
        let page: [u8; PAGE as usize] = memory.array(address).ok()?;
        Record::parse(&page)
    }

    /// Reads a page; `None`: it holds none.
    #[must_use]
    pub fn parse(page: &[u8]) -> Option<Record> {
        let word = |at: usize| {
            let bytes = page.get(8 * at..8 * at + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        if word(0)? != MAGIC {
            return None;
        }
        let count = usize::try_from(word(9)?).ok().filter(|count| *count <= MAX_HOOKS)?;
        let hooks = page.get(8 * HEAD_WORDS..)?.chunks_exact(HOOK_BYTES).take(count);
        Some(Record {
            base: word(1)?,
            bytes: word(2)?,
            rates: [word(3)?, word(4)?],
            areas: [(word(5)?, word(6)?), (word(7)?, word(8)?)],
            hooks: hooks.map(hook).collect::<Option<_>>()?,
        })
    }
}

fn hook(bytes: &[u8]) -> Option<Hook> {
    let name = bytes.get(16..)?;
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Some(Hook {
        patch: u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?),
        original: *bytes.get(8)?,
        following: bytes.get(9..13)?.try_into().ok()?,
        boundaries: *bytes.get(13)?,
        name: String::from_utf8_lossy(&name[..length]).into_owned(),
    })
}

/// What earlier injectors left in a process.
#[derive(Debug, Default)]
pub struct Left {
    /// A whole image.
    pub record: Option<Record>,
    /// Parts of one that was never finished: first address, behind the last one.
    pub ranges: Vec<(u64, u64)>,
    /// Its memory file, if it is open still.
    pub descriptors: Vec<i32>,
}

impl Left {
    /// Looks for it.
    ///
    /// # Errors
    /// If a record speaks of memory that is not the image's.
    pub fn find(pid: i32, maps: &Maps, memory: &Memory) -> Result<Left> {
        let mut of_image = maps.all.iter().filter(|mapping| is_of_image(mapping));
        let record = of_image.find_map(|mapping| Record::read(memory, mapping.start));
        if let Some(record) = record {
            let end = record.base.wrapping_add(record.bytes);
            let is_ours = |at: u64| maps.at(at).is_some_and(is_of_image);
            let is_sound =
                is_ours(record.base) && is_ours(end.wrapping_sub(1)) && record.is_sound();
            ensure!(is_sound, "the record of the image is broken");
            return Ok(Left {
                record: Some(record),
                descriptors: descriptors(pid),
                ..Left::default()
            });
        }
        Ok(Left { record: None, ranges: ranges(maps), descriptors: descriptors(pid) })
    }
}

/// Whether a mapping is of an image, finished or not.
#[must_use]
pub fn is_of_image(mapping: &Mapping) -> bool {
    mapping.name == SHOWN
}

/// Mappings of an image, and memory without a file that lies between two of them.
fn ranges(maps: &Maps) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    // Behind the last mapping of an image, while memory without a file follows without a gap.
    let mut open: Option<u64> = None;
    for mapping in &maps.all {
        let follows = open == Some(mapping.start);
        if is_of_image(mapping) {
            match ranges.last_mut() {
                Some(last) if follows => last.1 = mapping.end,
                _ => ranges.push((mapping.start, mapping.end)),
            }
            open = Some(mapping.end);
        } else if follows && mapping.inode == 0 && mapping.name.is_empty() {
            open = Some(mapping.end);
        } else {
            open = None;
        }
    }
    ranges
}

fn descriptors(pid: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let of_image = |entry: std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        (target.to_str() == Some(SHOWN)).then_some(())?;
        entry.file_name().to_str()?.parse().ok()
    };
    entries.filter_map(Result::ok).filter_map(of_image).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let hook = |name: &str, patch| Hook {
            name: name.to_owned(),
            patch,
            original: 0x53,
            following: [1, 2, 3, 0xcc],
            boundaries: 5,
        };
        Record {
            base: 0x7f00_0000_0000,
            bytes: 0x30_0000,
            rates: [1, 2],
            areas: [(3, 4), (5, 6)],
            hooks: vec![hook("free", 77), hook("free_aligned_sized", 78), hook("malloc", 79)],
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut page = record().page();
        page.resize(PAGE as usize, 0);
        assert_eq!(Record::parse(&page), None, "without magic");
        page[..8].copy_from_slice(&Record::magic());
        assert_eq!(Record::parse(&page), Some(record()));
        assert!(!record().is_sound(), "its areas are elsewhere");
        let base = record().base;
        let inside = Record {
            rates: [base, base + 8],
            areas: [(base, 4), (base + 4, 0x2f_fffc)],
            ..record()
        };
        assert!(inside.is_sound());
        assert!(!Record { areas: [(base, 4), (base + 4, 0x2f_fffd)], ..inside }.is_sound());
        page[8 * 9..8 * 10].copy_from_slice(&(MAX_HOOKS as u64 + 1).to_le_bytes());
        assert_eq!(Record::parse(&page), None, "more hooks than fit");
    }
}
