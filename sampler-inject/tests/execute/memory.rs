//! Pages of this process at addresses that a test chooses.

use std::ops::Range;

/// Bytes of a page.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Pages that go away again.
pub(crate) struct Pages {
    ranges: Vec<Range<u64>>,
}

impl Pages {
    /// None yet.
    pub(crate) fn new() -> Pages {
        Pages { ranges: Vec::new() }
    }

    /// Maps the pages of `range` that are not mapped yet; `false`: something else lies there.
    pub(crate) fn map(&mut self, range: Range<u64>) -> bool {
        let mut page = range.start / PAGE_BYTES * PAGE_BYTES;
        while page < range.end {
            if !self.contains(page) && !self.map_page(page) {
                return false;
            }
            page += PAGE_BYTES;
        }
        true
    }

    /// Whether the page of this address is one of these.
    pub(crate) fn contains(&self, address: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }

    fn map_page(&mut self, page: u64) -> bool {
        // SAFETY: MAP_FIXED_NOREPLACE never replaces memory that is in use.
        let mapped = unsafe {
            libc::mmap(
                page as *mut libc::c_void,
                PAGE_BYTES as usize,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        let is_there = mapped as u64 == page;
        if is_there {
            self.ranges.push(page..page + PAGE_BYTES);
        }
        is_there
    }

    /// Writes into these pages.
    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) {
        self.check(address, bytes.len());
        // SAFETY: the bytes lie in pages of ours, which nothing else refers to.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len());
        }
    }

    /// Reads from these pages.
    pub(crate) fn read(&self, address: u64, length: usize) -> Vec<u8> {
        self.check(address, length);
        // SAFETY: the bytes lie in pages of ours, and the code that writes there does not run now.
        unsafe { std::slice::from_raw_parts(address as *const u8, length) }.to_vec()
    }

    fn check(&self, address: u64, length: usize) {
        let pages = (address / PAGE_BYTES..(address + length as u64).div_ceil(PAGE_BYTES))
            .map(|page| page * PAGE_BYTES);
        assert!(pages.clone().all(|page| self.contains(page)), "{address:#x} is not mapped");
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        for range in &self.ranges {
            // SAFETY: the page is ours, and nothing refers to it any more.
            unsafe { libc::munmap(range.start as *mut libc::c_void, PAGE_BYTES as usize) };
        }
    }
}
