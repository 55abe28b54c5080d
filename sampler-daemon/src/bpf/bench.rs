//! eBPF programs with which `cargo xtask bench probe` compares samplerd's own. samplerd uses none
//! of them.
//!
//! They are attached like samplerd's programs, at any offset of any file. So only the program
//! differs.

pub use super::request::Hook;

use super::guardian::Link;
use super::kernel::descriptors;
use super::object::ProgramText;
use super::request::{Kind, Point, Request};
use anyhow::Context as _;
use aya::{Ebpf, EbpfLoader};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The object, aligned as its parser requires.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/bench.bpf.o"));

/// The loaded object with its maps.
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
    /// If the kernel refuses the maps, or the object differs from what the build has checked.
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
        let (attach_type, _) = hook.link();
        Ok(ComparisonProgram { fd: self.text.load(name, attach_type)?, hook })
    }
}

impl ComparisonProgram {
    /// Attaches the program at file offset `offset` of `file` in process `pid`. Dropping the link
    /// detaches the program.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn attach(&self, file: &File, pid: u32, offset: u64) -> anyhow::Result<Link> {
        self.link(file, pid, &[(offset, 0)])
            .with_context(|| format!("attach a probe at {offset:#x} to pid {pid}"))
    }

    /// Attaches the program at USDTs of `file` in process `pid`. `probes`: file offsets of each
    /// probe and of its semaphore (0: it has none).
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn attach_usdts(
        &self,
        file: &File,
        pid: u32,
        probes: &[(u64, u64)],
    ) -> anyhow::Result<Link> {
        self.link(file, pid, probes)
            .with_context(|| format!("attach {} probes to pid {pid}", probes.len()))
    }

    fn link(&self, file: &File, pid: u32, probes: &[(u64, u64)]) -> io::Result<Link> {
        let point =
            |(offset, counter): &(u64, u64)| Point { counter: *counter, ..Point::new(*offset, 0) };
        let points: Vec<Point> = probes.iter().map(point).collect();
        let (program, file, kind) = (self.fd.as_fd(), file.as_fd(), Kind::Multi(self.hook));
        let request = Request { program, kind, file, pid: Some(pid), points: &points };
        request.attach().map(Link::here)
    }
}
