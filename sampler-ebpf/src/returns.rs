//! Whether the return of a call may be probed.
//!
//! Since Linux 6.11 the kernel's return probe makes a system call in the thread
//! (`arch_uretprobe_trampoline` in `arch/x86/kernel/uprobes.c`). A thread may divert its system
//! calls to the program itself (`PR_SET_SYSCALL_USER_DISPATCH`) or to its tracer (`PTRACE_SYSEMU`).
//! The kernel then never gets the call. The thread does not return to its caller, but jumps to the
//! address of the allocated block.

use crate::{stack_bounds, pid, settings};
use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::{bpf_get_current_task, bpf_probe_read_kernel, bpf_seq_write};

/// Whether a return probe would end the current thread. The check at the entry suffices: until the
/// call returns, the thread runs only the allocator.
#[inline(always)]
pub fn would_harm() -> bool {
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task() };
    has_diverted_syscalls(task)
}

/// Whether a thread's system calls do not reach the kernel. True if that cannot be read.
#[inline(always)]
fn has_diverted_syscalls(task: u64) -> bool {
    let work = stack_bounds::member(task, settings::syscall_work());
    work.is_none_or(|work| work & settings::diverting_work() != 0)
}

/// `struct bpf_iter__task`, called for one thread at a time. Writes the process id of each thread
/// whose system calls do not reach the kernel, as an id of the daemon's namespace. The kernel lists
/// only threads of the daemon's pid namespace.
#[inline(always)]
pub fn list(context: *mut c_void) {
    let context = context.cast::<u64>();
    // SAFETY: the second word of the context is the thread, null at the end of the list.
    let thread = unsafe { context.add(1) };
    // SAFETY: the helper checks what it reads. The pointer is read as a number: the verifier
    // accepts no sums with such pointers.
    let Ok(task) = (unsafe { bpf_probe_read_kernel(thread) }) else { return };
    if task == 0 || !has_diverted_syscalls(task) {
        return;
    }
    let Some(process) = pid::of_process(task) else { return };
    // SAFETY: the first word of the context is `struct bpf_iter_meta`, whose first member is the
    // file.
    let file = unsafe { **context.cast::<*const *mut aya_ebpf::bindings::seq_file>() };
    // SAFETY: four bytes of this stack. If the file is full, the kernel calls this program again
    // for this thread.
    unsafe { bpf_seq_write(file, (&raw const process).cast(), 4) };
}
