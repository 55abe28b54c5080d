//! The mappings of a process and the very files that are mapped.

use std::fs::File;
use std::io;

/// What is behind a mapping.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Backing {
    /// A file, by its path in the process (as the kernel shows it, " (deleted)" removed).
    File(String),
    /// `[vdso]`
    Vdso,
    /// `[uprobes]`: the kernel's trampolines.
    Uprobes,
    /// Memory without a file: heap, stacks, JIT code.
    Anonymous,
    /// Another special mapping, by name.
    Other(String),
}

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// File offset of `start`.
    pub offset: u64,
    /// Whether code can run there.
    pub executable: bool,
    /// Major and minor number of the device.
    pub device: (i32, i32),
    /// Inode, 0 without a file.
    pub inode: u64,
    /// What is behind it.
    pub backing: Backing,
}

/// All mappings of a process, by address.
pub fn read(pid: u32) -> io::Result<Vec<Mapping>> {
    let _ = pid;
    todo!()
}

/// Opens the very file that is mapped, be it deleted, replaced or in another mount namespace:
/// `/proc/PID/map_files/…` first, then `/proc/PID/root/…` if device and inode agree.
pub fn open(pid: u32, mapping: &Mapping) -> io::Result<File> {
    let _ = (pid, mapping);
    todo!()
}
