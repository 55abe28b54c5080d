//! Stops all threads of a process for a moment. The threads do not notice the stop.
//!
//! A stop wakes a thread that waits in a system call. Most calls then go on by themselves. Some
//! return `EINTR`, although no signal arrived.
//! Before the thread goes on, its `EINTR` is replaced. The new result makes the kernel repeat the
//! call, or return `EINTR` if a handler has run meanwhile.
//!
//! The stop is bounded: if a thread has not stopped in time, all others go on, and nothing is done.

use crate::kernel::{self, Change, RESTART_UNLESS_HANDLED, Tid};
use crate::preflight;
use anyhow::{Context, Result};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Maximum time from the first interrupted thread until all threads have stopped.
pub const MAX_STOP_TIME: Duration = Duration::from_millis(18);
/// Maximum time to wait for a thread that has not stopped in time, while the others run on. That
/// thread must not see an `EINTR` either.
const PATIENCE_WITH_LAST: Duration = Duration::from_secs(1);

/// `io_pgetevents`
const IO_PGETEVENTS: i64 = 333;

/// System calls that return `EINTR` for a stop and can be made again. A wait with a timeout begins
/// its timeout anew.
///
/// `close` is absent: it has closed the file by then. `connect` and `io_uring_enter` are absent:
/// their first half is done.
const RESTARTABLE: [i64; 34] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendfile,
    libc::SYS_fallocate,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
    libc::SYS_pause,
    libc::SYS_futex,
    libc::SYS_io_getevents,
    IO_PGETEVENTS,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
    libc::SYS_wait4,
];

/// Why a process could not be stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A thread did not stop in time.
    #[error(
        "thread {tid} does not stop within {} ms (it waits for a vfork child, a disk or a network file system; try again later)",
        MAX_STOP_TIME.as_millis()
    )]
    Late {
        /// The thread that did not stop.
        tid: Tid,
    },
    /// A thread did not stop although all others went on. The end of this process releases it: a
    /// later try would find it frozen.
    #[error(
        "thread {tid} does not stop within {} s (it waits for a vfork child, a disk or a network file system; try again later)",
        PATIENCE_WITH_LAST.as_secs()
    )]
    Unstoppable {
        /// The thread that did not stop.
        tid: Tid,
    },
    /// A thread cannot be traced.
    #[error("thread {tid} cannot be traced: {source}")]
    Untraceable {
        /// The thread that cannot be traced.
        tid: Tid,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The process has ended.
    #[error("it has ended")]
    Gone,
}

/// A process whose threads are all stopped. The threads go on when this value is dropped.
#[derive(Debug)]
pub struct Stopped {
    threads: Vec<Tid>,
    since: Instant,
}

impl Stopped {
    /// The stopped threads.
    #[must_use]
    pub fn threads(&self) -> &[Tid] {
        &self.threads
    }

    /// Lets the threads go on. Returns how long they were stopped.
    #[must_use = "the figure is for the report"]
    pub fn release(mut self) -> Duration {
        self.release_threads();
        self.since.elapsed()
    }

    fn release_threads(&mut self) {
        for tid in self.threads.drain(..) {
            // An error means that the thread was killed.
            let _ = kernel::detach(tid, 0);
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.release_threads();
    }
}

/// Stops all threads of a process.
///
/// # Errors
/// If a thread does not stop in time, or cannot be traced.
pub fn stop(pid: i32) -> Result<Stopped, Error> {
    let mut stopping = Stopping { pid, waiting: HashSet::new(), stopped: Vec::new(), since: None };
    match stopping.all() {
        Ok(()) => Ok(Stopped {
            since: stopping.since.unwrap_or_else(Instant::now),
            threads: std::mem::take(&mut stopping.stopped),
        }),
        Err(error) => Err(stopping.back_out().unwrap_or(error)),
    }
}

struct Stopping {
    pid: i32,
    /// Threads that are attached and interrupted, but not stopped yet.
    waiting: HashSet<Tid>,
    stopped: Vec<Tid>,
    since: Option<Instant>,
}

impl Stopping {
    fn all(&mut self) -> Result<(), Error> {
        let mut known = HashSet::new();
        loop {
            let new: Vec<Tid> = threads(self.pid)
                .into_iter()
                .filter(|tid| known.insert(*tid) && runs_program(*tid))
                .collect();
            if new.is_empty() {
                // Every thread that could create threads is stopped by now.
                return if self.stopped.is_empty() { Err(Error::Gone) } else { Ok(()) };
            }
            let attached = attach(&new)?;
            self.since.get_or_insert_with(Instant::now);
            for tid in attached {
                if kernel::interrupt(tid).is_ok() {
                    self.waiting.insert(tid);
                }
            }
            self.wait(self.since.unwrap_or_else(Instant::now) + MAX_STOP_TIME)?;
        }
    }

    /// Waits until all interrupted threads have stopped.
    fn wait(&mut self, deadline: Instant) -> Result<(), Error> {
        while let Some(&tid) = self.waiting.iter().next() {
            if Instant::now() > deadline {
                return Err(Error::Late { tid });
            }
            self.collect();
        }
        Ok(())
    }

    /// Handles one change of a thread, if the kernel reports one soon.
    fn collect(&mut self) {
        let (tid, change) = match kernel::wait(-1) {
            Ok(Some(found)) => found,
            Ok(None) => {
                // The kernel reports the end of the first thread only together with the last
                // thread.
                self.waiting.retain(|tid| !is_ending(*tid));
                return;
            }
            Err(_) => {
                // No traced thread exists any more.
                self.waiting.clear();
                return;
            }
        };
        match change {
            Change::Interrupted => {
                mend(tid);
                self.waiting.remove(&tid);
                self.stopped.push(tid);
            }
            Change::Gone => {
                self.waiting.remove(&tid);
                self.stopped.retain(|of| *of != tid);
            }
            Change::Signal(signal) => {
                // The signal is delivered, and the stop follows at once.
                let _ = kernel::resume(tid, signal);
            }
            Change::Syscall => {
                let _ = kernel::resume(tid, 0);
            }
        }
    }

    /// Lets all threads go on, and waits for the last ones. Each goes on as soon as it has stopped.
    /// Returns an error if one does not stop.
    fn back_out(&mut self) -> Option<Error> {
        let deadline = Instant::now() + PATIENCE_WITH_LAST;
        loop {
            for tid in self.stopped.drain(..) {
                let _ = kernel::detach(tid, 0);
            }
            let tid = *self.waiting.iter().next()?;
            if Instant::now() > deadline {
                return Some(Error::Unstoppable { tid });
            }
            self.collect();
        }
    }
}

/// Attaches to threads. Returns those that have not ended meanwhile.
fn attach(threads: &[Tid]) -> Result<Vec<Tid>, Error> {
    let mut attached = Vec::with_capacity(threads.len());
    for &tid in threads {
        match kernel::seize(tid) {
            Ok(()) => attached.push(tid),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            // The kernel also returns other errors for a thread that is about to end.
            Err(_) if is_ending(tid) => {}
            Err(source) => return Err(Error::Untraceable { tid, source }),
        }
    }
    Ok(attached)
}

fn is_ending(tid: Tid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map_or("X", |(_, rest)| rest);
    state.starts_with(['X', 'Z'])
}

/// Whether a thread runs code of the program. The kernel's workers for `io_uring` and vhost are
/// among the threads of a process, but never run its code. A stop would end their requests with
/// `EINTR`.
#[must_use]
pub fn runs_program(tid: Tid) -> bool {
    /// `PF_IO_WORKER` and `PF_USER_WORKER` of include/linux/sched.h.
    const WORKERS: u32 = 0x10 | 0x4000;
    let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).unwrap_or_default();
    // The flags are the ninth field: the seventh behind the name.
    let flags = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(6));
    let flags: u32 = flags.and_then(|flags| flags.parse().ok()).unwrap_or(0);
    flags & WORKERS == 0
}

/// Lists the threads of a process, the first thread first.
#[must_use]
pub fn threads(pid: i32) -> Vec<Tid> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let name =
        |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    entries.filter_map(name).filter_map(|name| name.parse().ok()).collect()
}

/// Hides from a stopped thread an `EINTR` that the stop has caused, and a `restart_syscall` that
/// its seccomp filters may forbid. The call is then made again from its beginning.
pub(crate) fn mend(tid: Tid) {
    let Ok(mut registers) = kernel::registers(tid) else { return };
    let is_by_block = registers.orig_rax as i64 >= 0
        && registers.rax as i64 == kernel::RESTART_BY_BLOCK
        && registers.cs == crate::calls::CODE_SEGMENT;
    // A wait of a thread with filters is made again, whatever the filters say: evaluating them for
    // each of many threads would take longer than a stop may.
    if is_woken(&registers) || is_by_block && preflight::has_filters(tid) {
        registers.rax = RESTART_UNLESS_HANDLED as u64;
        let _ = kernel::set_registers(tid, &registers);
    }
}

/// Whether the thread's system call is about to return `EINTR` and can be made again.
fn is_woken(registers: &libc::user_regs_struct) -> bool {
    let call = registers.orig_rax as i64;
    registers.rax as i64 == -i64::from(libc::EINTR)
        && registers.cs == crate::calls::CODE_SEGMENT
        && RESTARTABLE.contains(&call)
}

/// Stops one thread.
///
/// # Errors
/// If the thread does not stop in time. It then goes on as soon as it has stopped.
pub(crate) fn stop_thread(tid: Tid) -> Result<(), Error> {
    kernel::seize(tid).map_err(|source| Error::Untraceable { tid, source })?;
    let start = Instant::now();
    let mut one =
        Stopping { pid: tid, waiting: HashSet::from([tid]), stopped: Vec::new(), since: None };
    let done = match kernel::interrupt(tid) {
        Ok(()) => one.wait(start + MAX_STOP_TIME),
        Err(_) => Err(Error::Gone),
    };
    match done {
        Ok(()) if one.stopped.is_empty() => Err(Error::Gone),
        Ok(()) => Ok(()),
        Err(error) => Err(one.back_out().unwrap_or(error)),
    }
}

/// Waits for a change of one thread. `None`: nothing changed before the deadline.
///
/// # Errors
/// If this process does not trace the thread.
pub(crate) fn wait_for(tid: Tid, deadline: Instant) -> Result<Option<Change>> {
    loop {
        if let Some((_, change)) = kernel::wait(tid).with_context(|| format!("wait for {tid}"))? {
            return Ok(Some(change));
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_seized_by_an_earlier_attempt_is_stopped() {
        let mut program = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(program.id()).unwrap();
        // An attempt that gave up before the thread had stopped.
        kernel::seize(pid).unwrap();
        let stopped = [(); 3].map(|()| stop(pid).map(drop));
        program.kill().unwrap();
        program.wait().unwrap();
        stopped.into_iter().for_each(Result::unwrap);
    }
}
