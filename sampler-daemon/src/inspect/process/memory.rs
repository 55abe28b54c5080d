//! The memory of a process as the kernel counts it, for comparison with a profile. Reference:
//! proc(5), `statm` and `maps`.

use super::is_there;
use crate::inspect::mappings::maps::{self, Line};
use std::fs;
use std::iter::Sum;
use std::ops::Add;

/// Bytes of a page in `statm`.
const PAGE_BYTES: u64 = 4096;

/// Memory of one process, or the sum over several, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident memory.
    pub rss_bytes: u64,
    /// Resident memory without a file: heap, stacks, and written pages of private mappings.
    pub anonymous_bytes: u64,
    /// Size of `[heap]` and of private anonymous writable mappings, resident or not. Stacks of
    /// threads are included.
    pub heap_bytes: u64,
}

/// The memory of the process that has had `pid` since `start_ticks`; `None` if the process is gone.
pub fn read(pid: u32, start_ticks: u64) -> Option<Memory> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let maps = fs::read(format!("/proc/{pid}/maps")).ok()?;
    // This check comes last: the text is of our process only if the process still exists.
    is_there(pid, start_ticks).then_some(())?;
    let (rss_bytes, anonymous_bytes) = resident(&statm)?;
    Some(Memory { rss_bytes, anonymous_bytes, heap_bytes: heap(&maps) })
}

/// Anonymous resident memory of the process that has had `pid` since `start_ticks`, bytes; `None`
/// if the process is gone. Unlike [`read`], the cost does not depend on how much is mapped.
pub fn anonymous_bytes(pid: u32, start_ticks: u64) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    is_there(pid, start_ticks).then_some(())?;
    resident(&statm).map(|(_, anonymous_bytes)| anonymous_bytes)
}

/// Resident memory of this process, bytes; `None` if it cannot be read.
pub fn own_rss_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    resident(&statm).map(|(rss_bytes, _)| rss_bytes)
}

/// Resident and anonymous bytes of `size resident shared …`, in pages. Shared pages have a file.
fn resident(statm: &str) -> Option<(u64, u64)> {
    let mut pages = statm.split_ascii_whitespace().map(|field| field.parse::<u64>().ok());
    let (_, resident, shared) = (pages.next()??, pages.next()??, pages.next()??);
    Some((resident * PAGE_BYTES, resident.saturating_sub(shared) * PAGE_BYTES))
}

/// The size of writable private mappings without a file.
fn heap(maps: &[u8]) -> u64 {
    // `[stack]`, `[vvar]` and the like do not count.
    let is_heap = |line: &Line| {
        let is_plain = matches!(line.path, b"" | b"[heap]") || line.path.starts_with(b"[anon:");
        line.is_own() && line.inode == 0 && is_plain
    };
    let of_heap = maps::lines(maps).filter(is_heap);
    of_heap.map(|line| line.end.saturating_sub(line.start)).sum()
}

impl Add for Memory {
    type Output = Memory;

    fn add(self, other: Memory) -> Memory {
        Memory {
            rss_bytes: self.rss_bytes + other.rss_bytes,
            anonymous_bytes: self.anonymous_bytes + other.anonymous_bytes,
            heap_bytes: self.heap_bytes + other.heap_bytes,
        }
    }
}

impl Sum for Memory {
    fn sum<I: Iterator<Item = Memory>>(each: I) -> Memory {
        each.fold(Memory::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::process::Process;

    const MAPS: &[u8] = b"\
55e5c0000000-55e5c0021000 rw-p 00000000 00:00 0                          [heap]
55e5b0000000-55e5b0001000 rw-p 00002000 fe:00 1234                       /usr/bin/x
7f0000000000-7f0000100000 rw-p 00000000 00:00 0 \n\
7f0000100000-7f0004000000 ---p 00000000 00:00 0 \n\
7f0010000000-7f0010001000 rw-p 00000000 00:00 0                          [anon:arena]
7f0020000000-7f0020001000 rw-s 00000000 00:01 77                         /dev/zero (deleted)
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
nonsense
";

    #[test]
    fn heap_mappings_are_private_anonymous_and_writable() {
        assert_eq!(heap(MAPS), 0x21000 + 0x100000 + 0x1000);
        assert_eq!(heap(b""), 0);
        assert_eq!(resident("500 100 40 1 0 60 0"), Some((409_600, 245_760)));
        assert_eq!(resident("500 x"), None);
    }

    #[test]
    fn a_large_block_raises_all_three_numbers() {
        let own = Process::open(std::process::id()).unwrap();
        let grown = || {
            let before = read(own.pid, own.start_ticks).unwrap();
            let block = std::hint::black_box(vec![1u8; 64 << 20]);
            let after = read(own.pid, own.start_ticks).unwrap();
            drop(block);
            [
                after.rss_bytes.saturating_sub(before.rss_bytes),
                after.anonymous_bytes.saturating_sub(before.anonymous_bytes),
                after.heap_bytes.saturating_sub(before.heap_bytes),
            ]
        };
        // Other tests of this program allocate and free at the same time, now and then as much.
        let mut seen = Vec::new();
        while !seen.last().is_some_and(|of: &[u64; 3]| of.iter().all(|bytes| *bytes > 32 << 20)) {
            assert!(seen.len() < 200, "{seen:?}");
            seen.push(grown());
        }
        assert_eq!(read(own.pid, own.start_ticks + 1), None);
    }
}
