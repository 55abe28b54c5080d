//! Reads ELF files piece by piece, up to a bound of memory.
//!
//! A file may claim any number of tables of any size, and a sparse file has them. [`ReadCache`]
//! keeps all that it has read, and fills a buffer with zeros before it reads into it. So a request
//! is refused by its size, before there is a buffer.

use object::read::{ReadCache, ReadCacheOps, ReadRef};
use std::borrow::Borrow;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// Most bytes of a file that are read for its headers and dynamic symbols. Those of the largest
/// programs take some hundred KiB.
pub const MAX_HEADER_BYTES: u64 = 8 << 20;

/// A file of which a bounded number of bytes is read.
pub struct BoundedFile<F: Borrow<File>> {
    cache: ReadCache<Positioned<F>>,
    max_bytes: u64,
}

impl<F: Borrow<File>> BoundedFile<F> {
    /// A reader of at most `max_bytes` of a file.
    pub fn new(file: F, max_bytes: u64) -> BoundedFile<F> {
        let cache = ReadCache::new(Positioned { file, position: 0, left: max_bytes });
        BoundedFile { cache, max_bytes }
    }
}

impl<'a, F: Borrow<File>> ReadRef<'a> for &'a BoundedFile<F> {
    fn len(self) -> Result<u64, ()> {
        (&self.cache).len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size > self.max_bytes {
            return Err(());
        }
        (&self.cache).read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        (&self.cache).read_bytes_at_until(range, delimiter)
    }
}

/// Reads at a position of its own, since all holders of the file share the file's position. Reading
/// fails after `left` bytes.
struct Positioned<F> {
    file: F,
    position: u64,
    left: u64,
}

impl<F> Positioned<F> {
    /// Counts bytes before they are read.
    fn spend(&mut self, bytes: usize) -> Result<(), ()> {
        self.left = self.left.checked_sub(bytes as u64).ok_or(())?;
        Ok(())
    }
}

impl<F: Borrow<File>> ReadCacheOps for Positioned<F> {
    fn len(&mut self) -> Result<u64, ()> {
        self.file.borrow().metadata().map(|metadata| metadata.len()).map_err(drop)
    }

    fn seek(&mut self, position: u64) -> Result<u64, ()> {
        self.position = position;
        Ok(position)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ()> {
        self.spend(buffer.len())?;
        let count = self.file.borrow().read_at(buffer, self.position).map_err(drop)?;
        self.position += count as u64;
        Ok(count)
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), ()> {
        self.spend(buffer.len())?;
        self.file.borrow().read_exact_at(buffer, self.position).map_err(drop)?;
        self.position += buffer.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sparse() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 40).unwrap();
        file
    }

    #[test]
    fn a_file_of_any_size_is_read_up_to_the_bound() {
        let file = sparse();
        let file = BoundedFile::new(&file, MAX_HEADER_BYTES);
        for at in 0..100 {
            let is_read = (&file).read_bytes_at(at << 20, 1 << 20).is_ok();
            assert_eq!(is_read, at < MAX_HEADER_BYTES >> 20, "{at}");
        }
    }

    #[test]
    fn a_larger_request_takes_no_memory() {
        let file = sparse();
        assert!((&BoundedFile::new(&file, MAX_HEADER_BYTES)).read_bytes_at(0, 8 << 30).is_err());
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(kib < 4 << 20, "{kib} KiB were resident");
    }
}
