//! Reads the memory of a process. Nothing in that memory is trusted.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Memory of a process.
pub(super) trait Memory {
    /// Fills all of `into` from an address; `None` if the memory cannot be read.
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()>;
}

/// `/proc/PID/mem`. It stays the memory of the program image in which it was opened.
impl Memory for File {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        self.read_exact_at(into, address).ok()
    }
}

/// The word at an address.
pub(super) fn word(memory: &dyn Memory, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read(address, &mut bytes)?;
    Some(u64::from_le_bytes(bytes))
}

/// `length` bytes from an address.
pub(super) fn bytes(memory: &dyn Memory, address: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    memory.read(address, &mut bytes)?;
    Some(bytes)
}
