//! What the kernel waits for before it changes probes, waited for ahead of time.
//!
//! Every change of a uprobe takes a lock that each `fork` reads (`dup_mmap_sem`). Whoever takes it after a pause first waits for an RCU grace period, 6 to 9 ms;
//! who takes it within a grace period or two after somebody else does not. So a probe where nobody is, in a file that no process maps, makes the next ones come and go
//! at once: those of a window, while its program pays for each hit until they are gone.

use super::guardian::Link;
use super::kernel::Kernel;
use super::link::Points;
use anyhow::Context as _;
use rustix::fs::{MemfdFlags, memfd_create};
use sampler_common::wire::{Cookie, Role, SHARED};
use std::fs::File;
use std::io::Write as _;

/// Bytes of the file, and where it is probed.
const BYTES: usize = 64;
const AT: u64 = 0;

/// A file that no process maps.
pub struct Ahead {
    file: File,
}

impl Ahead {
    /// Makes it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new() -> anyhow::Result<Ahead> {
        let file = memfd_create(c"sampler-nobody", MemfdFlags::CLOEXEC);
        let mut file = File::from(file.context("make a file to probe")?);
        file.write_all(&[0x90; BYTES]).context("write a file to probe")?;
        Ok(Ahead { file })
    }

    /// Waits; dropping the link takes the lock once more.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn wait(&self, kernel: &mut Kernel) -> anyhow::Result<Vec<Link>> {
        let marking = vec![(AT, Cookie::new(SHARED, Role::Marker).0)];
        let points = Points { marking, ..Points::default() };
        kernel.attach(&self.file, Some(std::process::id()), &points)
    }
}
