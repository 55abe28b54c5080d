//! What a process has read and written, by what the kernel counts of its threads anyway (`struct task_io_accounting`,
//! `fs/read_write.c`): a clock of its work that no trap feeds, and that costs nothing while nobody looks.

use crate::{extent, settings};
use aya_ebpf::helpers::{bpf_get_current_task, bpf_probe_read_kernel};
use sampler_common::limits::MAX_TRAFFIC_THREADS;
use sampler_common::wire::UNKNOWN_TALLY;

/// Bytes that the threads of the running process have read and written by system calls so far, those that have ended included; [`UNKNOWN_TALLY`] if that is not known.
#[inline(never)]
pub fn of_process() -> u64 {
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task() };
    of_threads(task).unwrap_or(UNKNOWN_TALLY)
}

#[inline(always)]
fn of_threads(task: u64) -> Option<u64> {
    let (of_task, of_signal) = (settings::task_traffic(), settings::signal_traffic());
    if of_task == 0 || of_signal == 0 {
        return None;
    }
    let signal = extent::member(task, settings::task_signal())?;
    // A list: its head is in what threads share, and each thread has a node of it.
    let head = signal.wrapping_add(settings::signal_threads());
    let mut all = both(signal.wrapping_add(of_signal))?;
    let mut node = word(head)?;
    for _ in 0..MAX_TRAFFIC_THREADS {
        if node == head {
            return Some(all);
        }
        let thread = node.wrapping_sub(settings::task_threads());
        all = all.wrapping_add(both(thread.wrapping_add(of_task))?);
        node = word(node)?;
    }
    None
}

/// `rchar` and `wchar`, which are neighbours, together.
#[inline(always)]
fn both(at: u64) -> Option<u64> {
    // SAFETY: the helper checks what it reads.
    let [read, written] = unsafe { bpf_probe_read_kernel(at as *const [u64; 2]) }.ok()?;
    Some(read.wrapping_add(written))
}

#[inline(always)]
fn word(at: u64) -> Option<u64> {
    // SAFETY: the helper checks what it reads.
    unsafe { bpf_probe_read_kernel(at as *const u64) }.ok()
}
