//! The number of bytes of stack above a call, from the kernel's data about the thread. Searching
//! for the end by reading would cost a fault or two, each as expensive as copying a kilobyte.

use crate::settings;
use aya_ebpf::helpers::{bpf_get_current_task, bpf_probe_read_kernel};
use sampler_common::limits::ABOVE_FIRST_STACK;

/// Returns the bytes from `sp` to a certain end of its stack, if they are at most `largest`; else
/// 0.
///
/// Frames of a process's first thread end below its arguments (`mm->start_stack`, see
/// [`ABOVE_FIRST_STACK`]). Frames of other threads of glibc and musl end below the thread's own
/// data, to which `fs` points. Both libraries put these data at the top of the stack.
/// Neither address can lie inside another stack. So a stack that the program made itself (a
/// coroutine's) is not taken for shorter than it is.
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

/// A word of a kernel struct; `None` if the offset is not known or the word cannot be read.
#[inline(always)]
pub fn member(structure: u64, offset: u64) -> Option<u64> {
    if offset == 0 {
        return None;
    }
    // SAFETY: the helper checks what it reads.
    unsafe { bpf_probe_read_kernel((structure + offset) as *const u64) }.ok()
}
