//! Usable bytes of a glibc block, read from the header before the block as `malloc_usable_size`
//! does.
//!
//! Reference: `malloc_chunk` and `musable` in glibc's malloc/malloc.c. The header is the target's
//! own memory, which may change at any moment. A value that no allocation of the requested size can
//! have is refused.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bits of the size field that are flags.
const SIZE_FLAG_BITS: u64 = 7;
/// Flag of a chunk that is a mapping of its own.
const IS_MMAPPED: u64 = 2;
/// Most usable bytes above the request: rounding to 16, the smallest chunk, or a remainder too
/// small to be split off.
const MAX_SLACK_BYTES: u64 = 64;
/// The same bound for a chunk that is a mapping of its own: rounding to a page, twice.
const MMAPPED_SLACK: u64 = 8192;

/// The memory of a process.
#[derive(Debug)]
pub struct Blocks(File);

impl Blocks {
    /// Opens the memory of process `pid` for reading.
    pub fn open(pid: u32) -> io::Result<Blocks> {
        Ok(Blocks(File::open(format!("/proc/{pid}/mem"))?))
    }

    /// Usable bytes of the block at `pointer`, for which the program requested `requested` bytes.
    /// `None` if its header cannot be read or is not plausible.
    pub fn usable(&self, pointer: u64, requested: u64) -> Option<u64> {
        let mut field = [0; 8];
        self.0.read_exact_at(&mut field, pointer.checked_sub(8)?).ok()?;
        usable(u64::from_le_bytes(field), requested)
    }
}

fn usable(field: u64, requested: u64) -> Option<u64> {
    let is_mapping = field & IS_MMAPPED != 0;
    let (header, slack) = if is_mapping { (16, MMAPPED_SLACK) } else { (8, MAX_SLACK_BYTES) };
    let usable = (field & !SIZE_FLAG_BITS).checked_sub(header)?;
    (usable >= requested && usable - requested <= slack).then_some(usable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_checked() {
        for (field, requested, bytes) in [
            (0x21, 0, Some(24)),
            (0x21, 24, Some(24)),
            (0x21, 25, None),
            (0x35, 30, Some(40)),
            (0x22002, 0x21000, Some(0x22000 - 16)),
            (0x7fff_0000_1234_5671, 100, None),
            (0, 0, None),
            (7, 0, None),
            (u64::MAX, u64::MAX, None),
        ] {
            assert_eq!(usable(field, requested), bytes, "{field:#x} for {requested}");
        }
    }

    #[test]
    fn unreadable_memory_has_no_usable_size() {
        let own = Blocks::open(std::process::id()).unwrap();
        assert_eq!(
            (own.usable(0, 1), own.usable(8, 1), own.usable(u64::MAX, 1)),
            (None, None, None)
        );
        // A header in our own memory, in glibc's format.
        let chunk = [0x31u64, 0, 0, 0];
        assert_eq!(own.usable(std::ptr::from_ref(&chunk) as u64 + 8, 33), Some(40));
    }
}
