//! Programs to compare ours with, for `cargo xtask bench probe`; samplerd uses none of it.
//!
//! They are attached as ours are, at any offset of any file, so that nothing differs but the program.

use super::kernel::descriptors;
use super::link::Link;
use super::object::ProgramText;
use super::sys;
use anyhow::Context as _;
use aya::{Ebpf, EbpfLoader};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The object, aligned as its parser wants it.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/bench.bpf.o"));

/// Where in a call a program runs, and by which kind of link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Entry, and return unless the entry returns 1 (Linux 6.13).
    Session,
    /// Entry, by a multi link (Linux 6.6).
    Entry,
    /// Return, by a multi link (Linux 6.6).
    Return,
}

/// The object with its maps.
pub struct Comparison {
    text: ProgramText,
    // Holds the maps.
    _ebpf: Ebpf,
}

/// A program loaded for one [`Hook`].
pub struct ComparisonProgram {
    fd: OwnedFd,
    hook: Hook,
}

impl Comparison {
    /// Makes the maps and reads the programs.
    ///
    /// # Errors
    /// If the kernel refuses the maps, or the object is not what the build checks for.
    pub fn load() -> anyhow::Result<Comparison> {
        let ebpf = EbpfLoader::new()
            .btf(None)
            .load(OBJECT)
            .context("load the eBPF object of the benchmark")?;
        let text = ProgramText::new(OBJECT, &descriptors(&ebpf)?)?;
        Ok(Comparison { text, _ebpf: ebpf })
    }

    /// Loads the program `name` (a function of `sampler-ebpf/src/bench.rs`) for `hook`.
    ///
    /// # Errors
    /// If there is no such program, or the kernel refuses it.
    pub fn program(&self, name: &str, hook: Hook) -> anyhow::Result<ComparisonProgram> {
        let attach_type = hook.attach_type();
        Ok(ComparisonProgram { fd: self.text.load(name, attach_type)?, hook })
    }
}

impl ComparisonProgram {
    /// Attaches it at file offset `offset` of `file` in process `pid`; dropping the link detaches it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn attach(&self, file: &File, pid: u32, offset: u64) -> anyhow::Result<Link> {
        self.link(file, pid, &[offset], &[])
            .with_context(|| format!("attach a probe at {offset:#x} to pid {pid}"))
    }

    /// Attaches it at USDTs of `file` in process `pid`: file offsets of each probe and of its semaphore (0: it has none).
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn attach_usdts(
        &self,
        file: &File,
        pid: u32,
        probes: &[(u64, u64)],
    ) -> anyhow::Result<Link> {
        let (offsets, semaphores): (Vec<u64>, Vec<u64>) = probes.iter().copied().unzip();
        self.link(file, pid, &offsets, &semaphores)
            .with_context(|| format!("attach {} probes to pid {pid}", probes.len()))
    }

    fn link(&self, file: &File, pid: u32, offsets: &[u64], semaphores: &[u64]) -> io::Result<Link> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = if self.hook == Hook::Return { sys::RETURN } else { 0 };
        let (kind, words) = (self.hook.attach_type(), (&[][..], semaphores));
        sys::link_counted(self.fd.as_fd(), kind, &path, offsets, words, flags, pid)
            .map(|fd| Link::Multi { fd })
    }
}

impl Hook {
    fn attach_type(self) -> u32 {
        match self {
            Hook::Session => sys::ATTACH_SESSION,
            Hook::Entry | Hook::Return => sys::ATTACH_MULTI,
        }
    }
}
