//! Whether the return of a call may be probed.
//!
//! Since Linux 6.11 the kernel's return probe makes a system call in the thread (`arch_uretprobe_trampoline` in
//! `arch/x86/kernel/uprobes.c`). Where system calls go to the program itself (`PR_SET_SYSCALL_USER_DISPATCH`) or to its tracer (`PTRACE_SYSEMU`)
//! the kernel never gets it, and the thread jumps to the address of its block.

use crate::{stack_bounds, pid, settings};
use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::{bpf_get_current_task, bpf_probe_read_kernel, bpf_seq_write};

/// Whether a return probe would end the current thread. Asked at the entry of the very call: until it returns the thread runs nothing but the allocator.
#[inline(always)]
pub fn would_harm() -> bool {
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task() };
    has_diverted_syscalls(task)
}

/// Whether system calls of a thread do not reach the kernel; also where that cannot be read.
#[inline(always)]
fn has_diverted_syscalls(task: u64) -> bool {
    let work = stack_bounds::member(task, settings::syscall_work());
    work.is_none_or(|work| work & settings::diverting_work() != 0)
}

/// `struct bpf_iter__task`, one thread at a time: writes the process id of each whose system calls do not reach the kernel, as the daemon knows it.
/// The kernel lists threads of the daemon's pid namespace only.
#[inline(always)]
pub fn list(context: *mut c_void) {
    let context = context.cast::<u64>();
    // SAFETY: the second word of the context is the thread, null at the end of the list.
    let thread = unsafe { context.add(1) };
    // SAFETY: the helper checks what it reads; as a number, for the verifier takes no sums with such pointers.
    let Ok(task) = (unsafe { bpf_probe_read_kernel(thread) }) else { return };
    if task == 0 || !has_diverted_syscalls(task) {
        return;
    }
    let Some(process) = pid::of_process(task) else { return };
    // SAFETY: the first word of the context is `struct bpf_iter_meta`, whose first member is the file.
    let file = unsafe { **context.cast::<*const *mut aya_ebpf::bindings::seq_file>() };
    // SAFETY: four bytes of this stack. A full file is written again from this thread on.
    unsafe { bpf_seq_write(file, (&raw const process).cast(), 4) };
}
