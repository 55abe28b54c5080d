//! Perf maps, in which JIT compilers name the code that they make.
//!
//! A perf map is a text file of lines `START SIZE name`, with start and size in hex. The name is
//! the rest of the line and may contain any character. Code moves, so the later of two overlapping
//! lines is right. Reference: `tools/perf/Documentation/jit-interface.txt`.

use super::name_budget::NameShare;
use super::replaced_names::{Added, ReplacedNames};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// Most ranges held. At the bound the rest of the file is ignored.
const MAX_RANGES: usize = 1 << 20;

/// Most bytes of the file that are read. A larger file is no list of names.
const MAX_BYTES: u64 = 256 << 20;

/// Bytes of a range besides its name.
const RANGE_BYTES: usize = 64;

/// Bytes per read.
const CHUNK_BYTES: usize = 64 * 1024;

/// Longest line. A longer line is skipped.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// The names in a perf map.
#[derive(Debug, Default)]
pub(in crate::unwind) struct PerfMap {
    /// By start: end and name. Ranges do not overlap.
    ranges: BTreeMap<u64, (u64, Arc<str>)>,
    /// Bytes of the file that have been read, in whole lines only.
    read: u64,
    /// Bytes that were taken for the names. Names of covered ranges still count.
    taken: usize,
}

/// Lines that were added to the file after the first look at it.
pub(in crate::unwind) struct AddedLines<'a> {
    /// Size of the file at the first look, bytes.
    pub(in crate::unwind) begin: u64,
    /// When the lines were added.
    pub(in crate::unwind) at: Added,
    /// Takes the names that the lines replace.
    pub(in crate::unwind) replaced: &'a mut ReplacedNames,
}

impl PerfMap {
    /// Bytes that were taken for the names.
    pub(in crate::unwind) fn taken(&self) -> usize {
        self.taken
    }

    /// Reads the next part of the file, about `bytes` at most. Returns how many bytes were read.
    /// The names count against `share`, and names without room there are left out.
    pub(in crate::unwind) fn read(
        &mut self,
        file: &File,
        bytes: u64,
        share: &mut NameShare,
        added: &mut AddedLines<'_>,
    ) -> u64 {
        let mut pending = Vec::new();
        let mut chunk = vec![0; CHUNK_BYTES];
        let start = self.read;
        let end = start.saturating_add(bytes).min(MAX_BYTES);
        let mut position = start;
        while position < end
            && let Ok(count @ 1..) = file.read_at(&mut chunk, position)
        {
            position += count as u64;
            pending.extend_from_slice(&chunk[..count]);
            let whole = pending.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            for line in pending.drain(..whole).as_slice().split_inclusive(|byte| *byte == b'\n') {
                let is_added = self.read >= added.begin;
                self.read += line.len() as u64;
                self.line(line, share, is_added.then_some(&mut *added));
            }
            if pending.len() > MAX_LINE_BYTES {
                self.read += pending.len() as u64;
                pending.clear();
            }
        }
        position - start
    }

    /// The name of the code at an address.
    pub(in crate::unwind) fn find(&self, address: u64) -> Option<&Arc<str>> {
        let (_, (end, name)) = self.ranges.range(..=address).next_back()?;
        (address < *end).then_some(name)
    }

    fn line(&mut self, line: &[u8], share: &mut NameShare, added: Option<&mut AddedLines<'_>>) {
        let Some((start, end, name)) = parse(line) else { return };
        let bytes = name.len() + RANGE_BYTES;
        if self.ranges.len() < MAX_RANGES && share.take(bytes) {
            self.taken += bytes;
            let name = Arc::from(name);
            if let Some(added) = added {
                self.keep_replaced(start, end, &name, added);
            }
            self.insert(start, end, name);
        }
    }

    /// Keeps the names that a new range replaces by another name.
    fn keep_replaced(&self, start: u64, end: u64, name: &Arc<str>, added: &mut AddedLines<'_>) {
        let before = self.ranges.range(..start).next_back();
        for (from, (to, earlier)) in before.into_iter().chain(self.ranges.range(start..end)) {
            if *to > start && earlier != name {
                let addresses = start.max(*from)..end.min(*to);
                added.replaced.add(addresses, Arc::clone(earlier), added.at);
            }
        }
    }

    fn insert(&mut self, start: u64, end: u64, name: Arc<str>) {
        // The parts of an older range before and behind the new one stay.
        if let Some((_, older)) = self.ranges.range_mut(..start).next_back()
            && older.0 > start
        {
            let (older_end, older_name) = older.clone();
            older.0 = start;
            if older_end > end {
                self.ranges.insert(end, (older_end, older_name));
            }
        }
        while let Some((&covered, _)) = self.ranges.range(start..end).next() {
            if let Some((covered_end, covered_name)) = self.ranges.remove(&covered)
                && covered_end > end
            {
                self.ranges.insert(end, (covered_end, covered_name));
            }
        }
        self.ranges.insert(start, (end, name));
    }
}

fn parse(line: &[u8]) -> Option<(u64, u64, String)> {
    let line = String::from_utf8_lossy(line);
    let (start, rest) = line.trim_start().split_once(' ')?;
    let (size, name) = rest.trim_start().split_once(' ')?;
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let start = hex(start)?;
    let end = start.checked_add(hex(size)?)?;
    let name = name.trim();
    (end > start && !name.is_empty()).then(|| (start, end, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::replaced_names::EarlierName;
    use super::*;
    use proptest::prelude::*;
    use std::io::Write as _;

    fn share() -> NameShare {
        NameShare::of(&Arc::default(), 0)
    }

    fn name(map: &PerfMap, address: u64) -> Option<&str> {
        map.find(address).map(|name| &**name)
    }

    /// Reads about so many bytes, as lines that were there at first.
    fn read_part(map: &mut PerfMap, file: &File, bytes: u64) -> u64 {
        read_added(map, file, bytes, u64::MAX, &mut ReplacedNames::default())
    }

    fn read_added(
        map: &mut PerfMap,
        file: &File,
        bytes: u64,
        begin: u64,
        replaced: &mut ReplacedNames,
    ) -> u64 {
        let at = Added { from_ns: 100, until_ns: 200 };
        map.read(file, bytes, &mut share(), &mut AddedLines { begin, at, replaced })
    }

    fn read(map: &mut PerfMap, file: &File) {
        while read_part(map, file, 1 << 20) == 1 << 20 {}
    }

    #[test]
    fn added_lines_leave_the_names_that_they_replace() {
        let mut file = tempfile::tempfile().unwrap();
        let (mut map, mut replaced) = (PerfMap::default(), ReplacedNames::default());
        write!(file, "1000 10 a\n1010 10 b\n1008 10 c\n").unwrap();
        let begin = file.metadata().unwrap().len();
        let mut read = |file: &File| {
            read_added(&mut map, file, 1 << 20, begin, &mut replaced);
            [0x1000, 0x1007, 0x1008, 0x1018, 0x1020].map(|at| match replaced.find(at, 100) {
                Some(EarlierName::Certain(name)) => name.to_string(),
                _ => String::new(),
            })
        };
        assert_eq!(read(&file), [""; 5]);
        write!(file, "1004 18 d\n1004 18 d\n").unwrap();
        assert_eq!(read(&file), ["", "a", "c", "b", ""]);
    }

    #[test]
    fn perf_map_lines_are_read_while_being_written() {
        let mut file = tempfile::tempfile().unwrap();
        let mut map = PerfMap::default();
        write!(file, "1000 10 JS:*hot fn t2.js:1:15\n0x1010 0x20 two\nrubbish\n2000 0 empty\n30")
            .unwrap();
        read(&mut map, &file);
        assert_eq!(name(&map, 0x1000), Some("JS:*hot fn t2.js:1:15"));
        assert_eq!(name(&map, 0x100f), Some("JS:*hot fn t2.js:1:15"));
        assert_eq!(name(&map, 0x1010), Some("two"));
        assert_eq!(name(&map, 0x1030), None);
        assert_eq!(name(&map, 0x2000), None);
        // The rest of a line that was incomplete.
        file.write_all(b"00 8 thr\xffee\n").unwrap();
        read(&mut map, &file);
        assert_eq!(name(&map, 0x3007), Some("thr\u{fffd}ee"));
        assert_eq!(name(&map, 0x1000), Some("JS:*hot fn t2.js:1:15"));
    }

    #[test]
    fn a_large_perf_map_is_read_in_pieces() {
        let mut file = tempfile::tempfile().unwrap();
        for line in 0..10_000 {
            writeln!(file, "{:x} 10 function_{line}", line * 16).unwrap();
        }
        let mut map = PerfMap::default();
        assert!(read_part(&mut map, &file, 1) < 200_000);
        assert_eq!((name(&map, 0), name(&map, 16 * 9999)), (Some("function_0"), None));
        read(&mut map, &file);
        assert_eq!(name(&map, 16 * 9999), Some("function_9999"));
    }

    #[test]
    fn a_huge_sparse_perf_map_is_read_to_an_end() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"1000 10 first\n").unwrap();
        file.set_len(1 << 42).unwrap();
        let mut map = PerfMap::default();
        read(&mut map, &file);
        while read_part(&mut map, &file, u64::MAX) > 0 {}
        assert_eq!(name(&map, 0x1000), Some("first"));
    }

    #[test]
    fn an_overlong_line_does_not_stop_the_rest() {
        let mut file = tempfile::tempfile().unwrap();
        write!(file, "1000 10 {}\n2000 10 after\n", "x".repeat(3 * MAX_LINE_BYTES)).unwrap();
        let mut map = PerfMap::default();
        read(&mut map, &file);
        assert_eq!(name(&map, 0x2000), Some("after"));
    }

    proptest! {
        /// The last line that covers an address names it.
        #[test]
        fn the_last_covering_line_names_an_address(lines in prop::collection::vec((0_u64..200, 1_u64..60), 0..60)) {
            let (mut map, mut share) = (PerfMap::default(), share());
            for (index, (start, size)) in lines.iter().enumerate() {
                map.line(format!("{start:x} {size:x} n{index}").as_bytes(), &mut share, None);
            }
            for address in 0..270 {
                let expected = lines
                    .iter()
                    .rposition(|(start, size)| (*start..start + size).contains(&address))
                    .map(|index| format!("n{index}"));
                prop_assert_eq!(name(&map, address), expected.as_deref());
            }
        }
    }
}
