//! The identity of a process.
//!
//! Everything under `/proc/PID` may suddenly describe another process with the same number. So the
//! pidfd is opened first, and then `/proc` is read. The text counts only if the pidfd's process
//! still exists afterwards (pidfd_open(2), proc(5)).

pub mod cgroup;
pub mod environment;
pub(super) mod in_force;
pub mod injected;
pub mod memory;
pub(super) mod mount;
pub mod preloaded;
pub mod processor;
pub(super) mod program;
pub mod runtime;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

/// `PF_KTHREAD` of `include/linux/sched.h`.
const KERNEL_THREAD: u64 = 0x0020_0000;
/// `USER_HZ`: clock ticks of `/proc` in a second, on every Linux of this architecture.
const TICKS_PER_SECOND: u64 = 100;

/// A process that can be profiled. A pidfd holds it, so that a reused pid is never mistaken for it.
#[derive(Debug)]
pub struct Process {
    /// Process id in our pid namespace.
    pub pid: u32,
    /// Start time in clock ticks since boot. Pid and start time identify the process for good.
    pub start_ticks: u64,
    /// Pidfd, readable once all threads of the process have exited.
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
    ///
    /// A process whose first thread has exited while others run is refused as well, because the
    /// kernel no longer shows the memory map under this pid.
    pub fn open(pid: u32) -> Result<Process, ProcessError> {
        let pidfd = open_pidfd(pid)?;
        match Facts::read(pid) {
            Ok(facts) => Process { pid, start_ticks: facts.start_ticks, pidfd }.checked(&facts),
            Err(_) if has_exited(&pidfd) => Err(ProcessError::NotFound(pid)),
            Err(error) => Err(error),
        }
    }

    /// Opens a process that is profiled without a search for allocators. A process whose first
    /// thread has exited while others run is accepted, although `/proc` shows little of it.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn open_running(pid: u32) -> Result<Process, ProcessError> {
        let pidfd = open_pidfd(pid)?;
        let facts = Facts::read(pid)?;
        let process = Process { pid, start_ticks: facts.start_ticks, pidfd };
        if process.is_running() { Ok(process) } else { Err(ProcessError::Exited(pid)) }
    }

    /// Checks that the facts from `/proc/PID` are about our process, and that it can be profiled.
    fn checked(self, facts: &Facts) -> Result<Process, ProcessError> {
        let pid = self.pid;
        if facts.kernel_thread {
            return Err(ProcessError::KernelThread(pid));
        }
        if facts.state == b'Z' || facts.state == b'X' || !self.is_running() {
            return Err(ProcessError::Exited(pid));
        }
        if facts.thread_group != pid {
            return Err(ProcessError::Thread(pid, facts.thread_group));
        }
        match program::is_32_bit(pid) {
            // This check ends the race: until here no other process can have had this pid.
            _ if !self.is_running() => Err(ProcessError::Exited(pid)),
            Ok(true) => Err(ProcessError::ThirtyTwoBit(pid)),
            Ok(false) => Ok(self),
            Err(error) => Err(ProcessError::Io(pid, "open its executable", remedy(error))),
        }
    }

    /// Whether the process still runs (not exited, not a zombie).
    pub fn is_running(&self) -> bool {
        !has_exited(&self.pidfd)
    }

    /// Whether the main thread has ended while others run.
    pub fn has_lost_main_thread(&self) -> bool {
        Facts::read(self.pid).is_ok_and(|facts| facts.state == b'Z') && self.is_running()
    }

    /// When the process started, to 10 ms.
    pub fn started(&self) -> SystemTime {
        time_of_ticks(self.start_ticks)
    }

    /// The command name, as `ps` shows it; empty if the process is gone.
    pub fn comm(&self) -> String {
        self.while_running(comm(self.pid))
    }

    /// Path of the executable as the process sees it; empty if the process is gone.
    pub fn exe(&self) -> String {
        self.while_running(exe(self.pid))
    }

    /// `text`, or nothing if our process ended before `text` was read.
    fn while_running(&self, text: String) -> String {
        if self.is_running() { text } else { String::new() }
    }
}

/// All processes that `/proc` shows, kernel threads among them.
pub fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Path of the executable of process `pid` as the process sees it; empty if there is none.
pub fn exe(pid: u32) -> String {
    let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let exe = exe.to_string_lossy();
    exe.strip_suffix(" (deleted)").unwrap_or(&exe).to_owned()
}

/// Command name of process `pid`; empty if there is none.
pub fn comm(pid: u32) -> String {
    let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(&comm)).into_owned()
}

/// Id of the real user of process `pid`; `None` if it is gone.
pub fn user(pid: u32) -> Option<u32> {
    Facts::read(pid).ok().map(|facts| facts.user)
}

/// When a process started, in ticks since the boot and as a time (to 10 ms); `None` if it is gone.
pub fn started(pid: u32) -> Option<(u64, SystemTime)> {
    let ticks = Facts::read(pid).ok()?.start_ticks;
    Some((ticks, time_of_ticks(ticks)))
}

fn time_of_ticks(start_ticks: u64) -> SystemTime {
    let since_boot = clock_gettime(ClockId::Boottime);
    let since_boot = Duration::new(since_boot.tv_sec as u64, since_boot.tv_nsec as u32);
    let ticks = Duration::from_millis(start_ticks * 1000 / TICKS_PER_SECOND);
    SystemTime::now() - since_boot.saturating_sub(ticks)
}

/// Whether the process that has had `pid` since `start_ticks` still exists.
pub(crate) fn is_there(pid: u32, start_ticks: u64) -> bool {
    Facts::read(pid).is_ok_and(|facts| facts.start_ticks == start_ticks)
}

/// Processes whose parent is one of `parents`.
pub fn children(parents: &[u32]) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent(*pid).is_some_and(|of| parents.contains(&of))).collect()
}

/// The parent of a process; `None` if it is gone.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    stat.rsplit_once(") ")?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// User id of the user who may trace a process: its effective user, or root if the kernel protects
/// the process from that user (proc(5), `/proc/PID`).
pub fn owner(pid: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|of| of.uid())
}

fn open_pidfd(pid: u32) -> Result<OwnedFd, ProcessError> {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let number = number.ok_or(ProcessError::NotFound(pid))?;
    let error = match pidfd_open(number, PidfdFlags::empty()) {
        Ok(pidfd) => return Ok(pidfd),
        Err(error) => io::Error::from(error),
    };
    // The kernel refuses a thread id with EINVAL, or ENOENT since 6.15.
    match Facts::read(pid) {
        Ok(facts) if facts.thread_group != pid => {
            Err(ProcessError::Thread(pid, facts.thread_group))
        }
        _ if error.raw_os_error() == Some(libc::ESRCH) => Err(ProcessError::NotFound(pid)),
        Err(ProcessError::NotFound(_)) => Err(ProcessError::NotFound(pid)),
        _ => Err(ProcessError::Io(pid, "pidfd_open", error)),
    }
}

/// Whether the last thread has exited: then a pidfd is readable. A poll that fails counts as not
/// exited.
fn has_exited(pidfd: &OwnedFd) -> bool {
    let mut descriptors = [PollFd::new(pidfd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        match poll(&mut descriptors, Some(&now)) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Fields of `/proc/PID/stat` and `/proc/PID/status`.
#[derive(Debug)]
struct Facts {
    state: u8,
    kernel_thread: bool,
    start_ticks: u64,
    thread_group: u32,
    user: u32,
}

impl Facts {
    fn read(pid: u32) -> Result<Facts, ProcessError> {
        let read = |name: &str| match fs::read(format!("/proc/{pid}/{name}")) {
            Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            Err(error) if is_gone(&error) => Err(ProcessError::NotFound(pid)),
            Err(error) => Err(ProcessError::Io(pid, "read its /proc entry", remedy(error))),
        };
        let (stat, status) = (read("stat")?, read("status")?);
        Facts::parse(&stat, &status).ok_or_else(|| {
            let error = io::Error::new(ErrorKind::InvalidData, "unknown format");
            ProcessError::Io(pid, "read its /proc entry", error)
        })
    }

    fn parse(stat: &str, status: &str) -> Option<Facts> {
        // The first number of both fields: the thread group, and the real user.
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse().ok()
        };
        // The command name is in parentheses, and may contain parentheses.
        let (_, behind_name) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = behind_name.split_ascii_whitespace().collect();
        let flags: u64 = fields.get(6)?.parse().ok()?;
        Some(Facts {
            state: *fields.first()?.as_bytes().first()?,
            kernel_thread: flags & KERNEL_THREAD != 0,
            start_ticks: fields.get(19)?.parse().ok()?,
            thread_group: number("Tgid:")?,
            user: number("Uid:")?,
        })
    }
}

/// Whether the process is gone. ENOENT: no such entry. ESRCH: the process exited while its entry
/// was open.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Adds the remedy to an error.
fn remedy(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::PermissionDenied => io::Error::new(
            error.kind(),
            "permission denied (run as root; in a container: with CAP_SYS_PTRACE)",
        ),
        ErrorKind::NotFound => io::Error::new(
            error.kind(),
            "has none (its first thread has exited, or /proc hides it: see hidepid in proc(5))",
        ),
        _ => error,
    }
}

#[cfg(test)]
mod tests;
