//! Finds the allocators of a process and the functions to probe in them.

use super::placement::Placement;
use sampler_common::wire::Role;
use std::fs::File;
use std::sync::Arc;

/// A function to probe; aliases at one address are one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Every name of it, the most usual first.
    pub symbols: Vec<String>,
    /// What it does.
    pub role: Role,
    /// File offset of its first instruction.
    pub offset: u64,
    /// Where its probe goes.
    pub placement: Placement,
}

/// An allocator: a file that defines the malloc family.
#[derive(Clone, Debug)]
pub struct Allocator {
    /// What it is: `glibc`.
    pub name: &'static str,
    /// Path in the process.
    pub path: String,
    /// GNU build id, lower-case hex, empty if it has none.
    pub build_id: String,
    /// Device and inode: the identity of the file.
    pub identity: (u64, u64),
    /// The very file that is mapped.
    pub file: Arc<File>,
    /// What to probe.
    pub functions: Vec<Function>,
}

/// What was found in a process.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// Allocators that can be probed.
    pub allocators: Vec<Allocator>,
    /// What cannot be seen in it, and why, one line each.
    pub blind: Vec<String>,
}

/// Finds allocators; remembers files that it has already read (by device, inode, size and change time; bounded).
#[derive(Debug, Default)]
pub struct Discoverer {}

impl Discoverer {
    /// The allocators mapped into process `pid` now.
    pub fn discover(&mut self, pid: u32) -> std::io::Result<Discovery> {
        let _ = pid;
        todo!()
    }
}
