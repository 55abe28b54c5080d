//! How many bytes of stack are above a call, by what the kernel knows of its thread. To look for the end by reading costs a fault or two, each
//! as dear as copying a kilobyte.

use crate::settings;
use aya_ebpf::helpers::{bpf_get_current_task, bpf_probe_read_kernel};
use sampler_common::limits::ABOVE_FIRST_STACK;

/// Bytes from `sp` to where its stack ends for certain, if those are at most `largest`; 0: not known, or more.
///
/// Frames of a process's first thread end below its arguments (`mm->start_stack`, see [`ABOVE_FIRST_STACK`]), those of glibc's and musl's other threads below the
/// thread's own data, which `fs` points to: both libraries put that at the top of the stack. Neither can be inside of another stack, so a
/// stack of the program's own (a coroutine's) is not taken for shorter than it is.
#[inline(always)]
pub fn known(sp: u64, largest: u64) -> u64 {
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task() };
    let within = |end: Option<u64>| end.map_or(0, |end| end.wrapping_sub(sp));
    let by_process = within(first_stack(task));
    if by_process.wrapping_sub(1) < largest {
        return by_process;
    }
    let by_thread = within(member(task, settings::task_fs_base()));
    if by_thread.wrapping_sub(1) < largest { by_thread } else { 0 }
}

#[inline(always)]
fn first_stack(task: u64) -> Option<u64> {
    let memory = member(task, settings::task_mm())?;
    Some(member(memory, settings::start_stack())?.wrapping_add(ABOVE_FIRST_STACK))
}

/// A word of a kernel struct; `None` where it is not known where that is.
#[inline(always)]
pub fn member(structure: u64, offset: u64) -> Option<u64> {
    if offset == 0 {
        return None;
    }
    // SAFETY: the helper checks what it reads.
    unsafe { bpf_probe_read_kernel((structure + offset) as *const u64) }.ok()
}
