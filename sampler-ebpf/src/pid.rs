//! Process ids as the daemon and its `/proc` know them: ids of the daemon's pid namespace.
//!
//! Helpers and tracepoints give the ids of the initial namespace. In another pid namespace (a
//! container's) each task has one number per level, from the initial namespace down to the task's
//! own (`struct pid` in `include/linux/pid.h`).
//! `bpf_get_ns_current_pid_tgid` knows only tasks whose own namespace is the daemon's, and does not
//! know the child of a fork.

use crate::settings;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_get_current_task, bpf_probe_read_kernel};

/// `sizeof(struct upid)`: a number and its namespace.
const UPID_BYTES: u64 = 16;
/// `MAX_PID_NS_LEVEL`: the deepest namespace.
const MAX_LEVEL: u32 = 32;

/// The current process; `None`: the process is not in the daemon's namespace.
#[inline(always)]
pub fn current() -> Option<u32> {
    if settings::pid_namespace() == 0 {
        return Some((bpf_get_current_pid_tgid() >> 32) as u32);
    }
    of_process(current_task())
}

/// The current thread; 0: the thread is not in the daemon's namespace.
#[inline(always)]
pub fn current_thread() -> u32 {
    if settings::pid_namespace() == 0 {
        return bpf_get_current_pid_tgid() as u32;
    }
    of_thread(current_task())
}

/// The process of a task; `None`: the process is not in the daemon's namespace.
#[inline(always)]
pub fn of_process(task: u64) -> Option<u32> {
    if settings::pid_namespace() == 0 {
        return read(task + settings::task_tgid());
    }
    let leader = read(task + settings::task_leader())?;
    match of_thread(leader) {
        0 => None,
        pid => Some(pid),
    }
}

#[inline(always)]
fn current_task() -> u64 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_get_current_task() }
}

/// The number of a task in the daemon's namespace, 0 if the task is not in that namespace.
#[inline(never)]
#[unsafe(export_name = "pid_of_thread")]
extern "C" fn of_thread(task: u64) -> u32 {
    number(task).unwrap_or(0)
}

#[inline(always)]
fn number(task: u64) -> Option<u32> {
    let pid: u64 = read(task + settings::task_thread_pid())?;
    let deepest: u32 = read(pid + settings::pid_level())?;
    // The daemon's namespace is most often the deepest one.
    for up in 0..=MAX_LEVEL {
        let level = deepest.checked_sub(up)?;
        let number = pid + settings::pid_numbers() + u64::from(level) * UPID_BYTES;
        let namespace: u64 = read(number + UPID_BYTES / 2)?;
        let inode: u32 = read(namespace + settings::namespace_inode())?;
        if u64::from(inode) == settings::pid_namespace() {
            return read(number);
        }
    }
    None
}

/// Reads a member of a kernel struct.
#[inline(always)]
fn read<T>(address: u64) -> Option<T> {
    // SAFETY: the helper checks what it reads.
    unsafe { bpf_probe_read_kernel(address as *const T) }.ok()
}
