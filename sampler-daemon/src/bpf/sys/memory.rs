//! Memory of an eBPF map that samplerd and the kernel share.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A mapping of such memory.
#[derive(Debug)]
pub(in crate::bpf) struct SharedMemory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: all access goes through atomics (`atomic_u64`, `atomic_u32`), which any thread may use.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Maps `bytes` bytes from `offset` of the map.
    pub(in crate::bpf) fn map(
        map: BorrowedFd<'_>,
        bytes: usize,
        offset: usize,
        writable: bool,
    ) -> io::Result<SharedMemory> {
        let protection =
            if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base =
            NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap returned null"))?;
        Ok(SharedMemory { base, bytes })
    }

    /// Address of the mapping.
    pub(in crate::bpf) fn address(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }

    /// The 64-bit word at byte `offset`.
    pub(in crate::bpf) fn atomic_u64(&self, offset: usize) -> &std::sync::atomic::AtomicU64 {
        assert!(
            offset.is_multiple_of(8) && offset + 8 <= self.bytes,
            "offset {offset} outside the map"
        );
        // SAFETY: in bounds and aligned by the assertion.
        let word = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: the mapping lives as long as `self`; the kernel side also uses atomics.
        unsafe { std::sync::atomic::AtomicU64::from_ptr(word.cast()) }
    }

    /// The 32-bit word at byte `offset`.
    pub(in crate::bpf) fn atomic_u32(&self, offset: usize) -> &std::sync::atomic::AtomicU32 {
        assert!(
            offset.is_multiple_of(4) && offset + 4 <= self.bytes,
            "offset {offset} outside the map"
        );
        // SAFETY: in bounds and aligned by the assertion.
        let word = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: the mapping lives as long as `self`; the kernel side also uses atomics.
        unsafe { std::sync::atomic::AtomicU32::from_ptr(word.cast()) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
