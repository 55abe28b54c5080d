//! The identity of a process.

use std::os::fd::OwnedFd;

/// A process that can be profiled, held by a pidfd so that a reused pid is never mistaken for it.
#[derive(Debug)]
pub struct Process {
    /// Process id in our pid namespace.
    pub pid: u32,
    /// Start time in clock ticks since boot; with the pid it names the process for good.
    pub start_ticks: u64,
    /// Readable once the process has exited (all threads).
    pub pidfd: OwnedFd,
}

/// Why a process cannot be profiled. Each message is one line with its remedy.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// No such pid.
    #[error("pid {0}: no such process (check it with ps)")]
    NotFound(u32),
    /// A kernel thread.
    #[error("pid {0}: is a kernel thread, it has no user memory to profile")]
    KernelThread(u32),
    /// A thread id.
    #[error("pid {0}: is a thread of process {1} (give --pid {1})")]
    Thread(u32, u32),
    /// A zombie.
    #[error("pid {0}: has already exited (a zombie)")]
    Exited(u32),
    /// Not 64 bit.
    #[error("pid {0}: is a 32-bit process; only 64-bit processes can be profiled")]
    ThirtyTwoBit(u32),
    /// Anything else.
    #[error("pid {0}: {1}: {2}")]
    Io(u32, &'static str, std::io::Error),
}

impl Process {
    /// Opens the process with this pid.
    pub fn open(pid: u32) -> Result<Process, ProcessError> {
        let _ = pid;
        todo!()
    }

    /// Whether it still runs (not exited, not a zombie).
    pub fn is_running(&self) -> bool {
        todo!()
    }

    /// Its command name, as `ps` shows it; empty if it is gone.
    pub fn comm(&self) -> String {
        todo!()
    }

    /// Path of its executable as it sees it; empty if it is gone.
    pub fn exe(&self) -> String {
        todo!()
    }
}
