//! The target's memory, through one handle for the whole operation.
//!
//! The handle belongs to the program image that existed when it was opened. After an `execve` the
//! handle reads and writes nothing, so that another program is never changed.

use crate::kernel::{self, Tid};
use crate::steps;
use anyhow::{Context, Result, ensure};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

/// Memory of one process.
#[derive(Debug)]
pub struct Memory {
    file: File,
}

impl Memory {
    /// Opens the memory of a process.
    ///
    /// # Errors
    /// If this process may not write to that memory.
    pub fn open(pid: i32) -> std::io::Result<Memory> {
        let file = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        Ok(Memory { file })
    }

    /// Reads `bytes` bytes.
    ///
    /// # Errors
    /// If the bytes are not mapped, or the program image is gone.
    pub fn read(&self, address: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut buffer = vec![0; bytes];
        self.read_into(address, &mut buffer)?;
        Ok(buffer)
    }

    /// Fills a buffer from an address on.
    ///
    /// # Errors
    /// As for [`Memory::read`].
    pub fn read_into(&self, address: u64, buffer: &mut [u8]) -> Result<()> {
        let bytes = buffer.len();
        let read = self.file.read_exact_at(buffer, address);
        read.with_context(|| format!("read {bytes} bytes at {address:#x}"))
    }

    /// Reads `BYTES` bytes into an array.
    ///
    /// # Errors
    /// As for [`Memory::read`].
    pub fn array<const BYTES: usize>(&self, address: u64) -> Result<[u8; BYTES]> {
        let mut buffer = [0; BYTES];
        self.read_into(address, &mut buffer)?;
        Ok(buffer)
    }

    /// Reads a 64-bit word.
    ///
    /// # Errors
    /// As for [`Memory::read`].
    pub fn word(&self, address: u64) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(address)?))
    }

    /// Writes all bytes in one system call.
    ///
    /// # Errors
    /// As for [`Memory::read`], or
    /// memory.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_at(bytes, address);
        steps::step();
        let written =
            written.with_context(|| format!("write {} bytes at {address:#x}", bytes.len()))?;
        ensure!(written == bytes.len(), "only {written} bytes were written at {address:#x}");
        Ok(())
    }

    /// Replaces one byte of code by another, while the injector has thread `tid` stopped.
    ///
    /// The kernel may forbid writing to read-only memory through this handle
    /// (`proc_mem.force_override=never`), but not by ptrace.
    ///
    /// # Errors
    /// As for [`Memory::write`].
    pub fn write_code(&self, tid: Tid, address: u64, [from, byte]: [u8; 2]) -> Result<()> {
        let Err(error) = self.write(address, &[byte]) else { return Ok(()) };
        let start = address & !7;
        let mut word = kernel::peek(tid, start).map_err(|_| error)?.to_le_bytes();
        // ptrace reaches the memory of the present program, which may be another one by now.
        let place = &mut word[(address - start) as usize];
        ensure!(*place == from, "the byte at {address:#x} has changed");
        *place = byte;
        kernel::poke(tid, start, u64::from_le_bytes(word))
            .with_context(|| format!("write the byte at {address:#x}"))
    }
}
