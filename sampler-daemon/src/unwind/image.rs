//! One program image of a process (from `execve` to the next or to the exit), as the unwinder sees it.

use super::{Frame, Modules};

/// Registers at the sampled call's return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Return address: just behind the call in the caller.
    pub ip: u64,
    /// Stack pointer after the return.
    pub sp: u64,
    /// Frame pointer register.
    pub bp: u64,
}

/// A snapshot of stack memory.
#[derive(Clone, Copy, Debug)]
pub struct StackMemory<'a> {
    /// Address of the first byte.
    pub start: u64,
    /// The bytes.
    pub bytes: &'a [u8],
    /// A stack slot whose return address the kernel has replaced by its trampoline, with the true one.
    pub hijacked: Option<(u64, u64)>,
}

/// How an unwind ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnwindEnd {
    /// At the root of the stack.
    Complete,
    /// The snapshot ended, or there were more than [`sampler_common::limits::MAX_FRAMES`] frames.
    Truncated,
    /// A frame without unwind information that could not be guessed.
    Failed,
    /// The first frame lies in no known mapping.
    NoMapping,
}

/// One program image.
#[derive(Debug)]
pub struct Image {}

impl Image {
    /// Reads the mappings of process `pid`.
    pub fn open(pid: u32, modules: &mut Modules) -> std::io::Result<Image> {
        let _ = (pid, modules);
        todo!()
    }

    /// Unwinds a snapshot; appends the frames to `frames`, leaf first, beginning with the caller
    /// (`registers.ip`). Reads the mappings again (at most every 10 ms) when an address is unknown.
    pub fn unwind(
        &mut self,
        modules: &mut Modules,
        registers: Registers,
        stack: StackMemory<'_>,
        frames: &mut Vec<Frame>,
    ) -> UnwindEnd {
        let _ = (modules, registers, stack, frames);
        todo!()
    }

    /// Resolves one look-up address of the process to a frame, e.g. that of the probed function or of a
    /// stack that the kernel walked (there, look-up address = return address − 1).
    pub fn resolve(&mut self, modules: &mut Modules, address: u64) -> Frame {
        let _ = (modules, address);
        todo!()
    }
}
