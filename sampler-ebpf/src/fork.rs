//! Forks: children of profiled processes are profiled too (`--follow`), and so are children of
//! excluded processes.

use crate::{atomic, maps, memo, pid, settings};
use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use sampler_common::wire::EXPECTED;

/// `sched_process_fork(struct task_struct *parent, struct task_struct *child)`. The tracepoint runs
/// on the parent's CPU before the child runs (`kernel_clone` in `kernel/fork.c`). So the child is
/// expected from its first instruction on.
#[inline(always)]
pub fn follow(context: *mut c_void) {
    // `current` is the process that forks, even if the parent will be another process
    // (`CLONE_PARENT`).
    let Some(pid) = pid::current() else { return };
    // SAFETY: looked up, not kept.
    if unsafe { maps::TARGETS.get(pid) }.is_none() {
        return;
    }
    // SAFETY: the context of a raw tracepoint is the array of its two arguments.
    let argument = unsafe { context.cast::<u64>().add(1) };
    // SAFETY: as above; the arguments are 64-bit words.
    let child = unsafe { *argument };
    let (Some(thread), Some(process)) =
        (word(child, settings::task_pid()), word(child, settings::task_tgid()))
    else {
        return;
    };
    // A new thread is not a new process.
    if thread != process {
        return;
    }
    let Some(pid) = pid::of_process(child) else { return };
    // The new value replaces what the map still has for an earlier process with this pid.
    let entered = maps::TARGETS.insert(pid, EXPECTED, 0);
    memo::begin_epoch();
    if entered.is_err()
        && let Some(state) = maps::STATE.get_ptr_mut(0)
    {
        // SAFETY: a field of a map value.
        atomic::add(unsafe { &raw mut (*state).unfollowed }, 1);
    }
}

/// Reads a 32-bit member of a kernel struct.
#[inline(always)]
fn word(structure: u64, offset: u64) -> Option<u32> {
    // SAFETY: the helper checks what it reads.
    unsafe { bpf_probe_read_kernel((structure + offset) as *const u32) }.ok()
}
