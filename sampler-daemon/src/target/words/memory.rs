//! The memory of a process in which it may count: its own and writable, and nothing that does more than be read.
//!
//! Only pages are read that are there (`Documentation/admin-guide/mm/pagemap.rst`): reading others would make them. No device's memory is read, where that has effects.

use crate::target::elf::Elf;
use crate::target::{mappings, maps};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bit of an entry of `pagemap`: the page is there.
const IS_PRESENT: u64 = 1 << 63;
/// What has no other name.
const PLAIN: &str = "memory";
/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;
/// Entries that are read at once.
const ENTRIES: usize = 4096;

/// Why a word cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// Nothing is there any more.
    Unmapped,
    /// The process has no memory any more: it has ended, or runs another program.
    Gone,
}

/// The memory of a process.
#[derive(Debug)]
pub struct Memory {
    memory: File,
    pid: u32,
}

/// A mapping in which it may count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) range: Range<u64>,
    /// The file that is mapped there, or whose zeroed data it is; else what it is.
    name: String,
    /// Where that file begins.
    first: u64,
    is_file: bool,
    /// Whether it only lies behind that file's data, and may be more than the zeroed ones of it.
    is_behind: bool,
}

impl Region {
    /// What is there, by its file.
    pub(super) fn name_of(&self, pid: u32, at: u64) -> String {
        let offset = at - self.first;
        let is_its = || memory_bytes(pid, self.first).is_some_and(|bytes| offset < bytes);
        match self.is_file {
            true if !self.is_behind || is_its() => format!("{}+{offset:#x}", self.name),
            true => PLAIN.to_owned(),
            false => self.name.clone(),
        }
    }
}

impl Memory {
    /// Opens that of process `pid` for reading.
    ///
    /// # Errors
    /// If there is no such process, or it may not be read.
    pub fn open(pid: u32) -> io::Result<Memory> {
        Ok(Memory { memory: File::open(format!("/proc/{pid}/mem"))?, pid })
    }

    /// A word of 32 bits.
    ///
    /// # Errors
    /// Why there is none.
    pub fn word(&self, at: u64) -> Result<u32, Unread> {
        let mut word = [0; 4];
        match self.memory.read_at(&mut word, at) {
            Ok(4) => Ok(u32::from_le_bytes(word)),
            // So the kernel says that nobody has this address space any more.
            Ok(0) => Err(Unread::Gone),
            _ => Err(Unread::Unmapped),
        }
    }

    /// Fills `to` with what is from `at` on; whether it is there.
    pub(super) fn read(&self, at: u64, to: &mut [u8]) -> bool {
        self.memory.read_exact_at(to, at).is_ok()
    }

    /// Its regions, data of files first.
    pub(super) fn regions(&self) -> io::Result<Vec<Region>> {
        let maps = std::fs::read(format!("/proc/{}/maps", self.pid))?;
        let mut regions = regions(&maps);
        regions.sort_by_key(|region| !region.is_file);
        Ok(regions)
    }

    /// Those pages of a region that are there, neighbours as one, until these are so many bytes; as many are looked at as `pages` says, and taken off it: what is reserved may be
    /// larger than anybody has patience for.
    pub(super) fn present(
        &self,
        region: &Region,
        most: usize,
        pages: &mut usize,
    ) -> io::Result<Vec<Range<u64>>> {
        let pagemap = File::open(format!("/proc/{}/pagemap", self.pid))?;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut entries = vec![0; ENTRIES * size_of::<u64>()];
        let mut at = region.range.start;
        let mut found = 0;
        while at < region.range.end && *pages > 0 && found < most {
            let some = ((region.range.end - at) / PAGE).min(ENTRIES as u64) as usize;
            let some = some.clamp(1, *pages);
            *pages -= some;
            let entries = &mut entries[..some * size_of::<u64>()];
            pagemap.read_exact_at(entries, at / PAGE * size_of::<u64>() as u64)?;
            for entry in entries.chunks_exact(size_of::<u64>()) {
                let entry = entry.try_into().map_or(0, u64::from_le_bytes);
                if entry & IS_PRESENT != 0 {
                    found += PAGE as usize;
                    match ranges.last_mut() {
                        Some(last) if last.end == at => last.end += PAGE,
                        _ => ranges.push(at..at + PAGE),
                    }
                }
                at += PAGE;
            }
        }
        Ok(ranges)
    }
}

/// How much memory the file takes that is mapped from `first` on.
fn memory_bytes(pid: u32, first: u64) -> Option<u64> {
    let mapping = mappings::read(pid).ok()?.into_iter().find(|mapping| mapping.start == first)?;
    let file = mappings::open(pid, &mapping).ok()?;
    Elf::read(&file).ok().map(|elf| elf.memory_bytes())
}

/// By `/proc/PID/maps`.
fn regions(maps: &[u8]) -> Vec<Region> {
    let mut firsts: HashMap<&str, u64> = HashMap::new();
    let mut regions: Vec<Region> = Vec::new();
    // The file that ends here: what follows without one is its zeroed data.
    let mut before: Option<(u64, &str)> = None;
    for line in maps::lines(maps) {
        let (start, end) = (line.start, line.end);
        let path = std::str::from_utf8(line.path).unwrap_or("?");
        let is_named = path.starts_with('/');
        if is_named {
            firsts.entry(path).or_insert(start);
        }
        let is_plain = matches!(path, "" | "[heap]" | "[stack]") || path.starts_with("[anon:");
        let zeroed = before.filter(|(at, _)| *at == start && path.is_empty());
        let file = if is_named { Some(path) } else { zeroed.map(|(_, path)| path) };
        let is_special = ["/dev/", "/proc/", "/sys/"].iter().any(|of| path.starts_with(of));
        before = file.filter(|_| !is_special).map(|path| (end, path));
        if !line.is_own() || is_special || (file.is_none() && !is_plain) {
            continue;
        }
        let plain = match path {
            "" => PLAIN,
            _ => path.trim_start_matches('[').trim_end_matches(']'),
        };
        let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        regions.push(Region {
            range: start..end,
            name: file.map_or_else(|| plain.to_owned(), base),
            first: file.and_then(|path| firsts.get(path)).copied().unwrap_or(start),
            is_file: file.is_some(),
            is_behind: file.is_some() && !is_named,
        });
    }
    regions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::running::Running;
    use std::process::{Command, Stdio};

    #[test]
    fn what_is_its_own_is_told() {
        const NOBODY: u32 = 0;
        let maps = b"\
1000-2000 r-xp 00000000 08:01 7                          /usr/bin/a b
2000-3000 rw-p 00001000 08:01 7                          /usr/bin/a b
3000-4000 rw-p 00000000 00:00 0
8000-9000 rw-p 00000000 00:00 0                          [heap]
a000-b000 rw-s 00000000 00:05 9                          /memfd:x (deleted)
b000-c000 rw-p 00000000 00:05 9                          /dev/fb0
c000-d000 rw-p 00000000 00:00 0
d000-e000 rw-p 00000000 00:00 0                          [vvar]
e000-f000 r--p 00000000 00:00 0
";
        let regions = regions(maps);
        let named: Vec<(u64, String)> = regions
            .iter()
            .map(|of| (of.range.start, of.name_of(NOBODY, of.range.start + 8)))
            .collect();
        let name = |start, name: &str| (start, name.to_owned());
        let expected = [
            name(0x2000, "a b+0x1008"),
            // Nobody can say how much of it is the file's.
            name(0x3000, "memory"),
            name(0x8000, "heap"),
            name(0xc000, "memory"),
        ];
        assert_eq!(named, expected);
    }

    #[test]
    fn own_memory_is_there() {
        let word = Box::new(0x1234_5678_u32);
        let at = std::ptr::from_ref(&*word) as u64;
        let memory = Memory::open(std::process::id()).unwrap();
        assert_eq!(memory.word(at), Ok(0x1234_5678));
        assert_eq!(memory.word(8), Err(Unread::Unmapped));
        let regions = memory.regions().unwrap();
        let region = regions.iter().find(|of| of.range.contains(&at)).unwrap();
        let (mut pages, all) = (1 << 22, 1 << 34);
        let present = memory.present(region, all, &mut pages).unwrap();
        assert!(present.iter().any(|of| of.contains(&at)), "{present:x?}");
        // And pages that nobody has touched are not.
        let untouched = memmap2::MmapOptions::new().len(1 << 20).map_anon().unwrap();
        let at = untouched.as_ptr() as u64;
        let region = Region { range: at..at + (1 << 20), ..region.clone() };
        pages = 100;
        assert_eq!(memory.present(&region, all, &mut pages).unwrap(), []);
        assert_eq!(pages, 0, "no more than that are looked at");
    }

    #[test]
    fn zeroed_data_is_of_its_file_and_what_lies_behind_is_not() {
        static COUNTER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        COUNTER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let at = std::ptr::from_ref(&COUNTER) as u64;
        let pid = std::process::id();
        let regions = Memory::open(pid).unwrap().regions().unwrap();
        let region = regions.iter().find(|of| of.range.contains(&at)).unwrap();
        let exe = std::env::current_exe().unwrap();
        let name = exe.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(region.name_of(pid, at), format!("{name}+{:#x}", at - region.first));
        let behind = Region { is_behind: true, ..region.clone() };
        assert_eq!(behind.name_of(pid, at), region.name_of(pid, at));
        assert_eq!(behind.name_of(pid, at + (1 << 30)), PLAIN);
    }

    #[test]
    fn who_has_ended_has_no_memory() {
        let child = Running::start(Command::new("cat").stdin(Stdio::piped()));
        let memory = Memory::open(child.pid()).unwrap();
        let at = memory.regions().unwrap().first().unwrap().range.start;
        assert!(memory.word(at).is_ok());
        drop(child);
        assert_eq!(memory.word(at), Err(Unread::Gone));
    }
}
