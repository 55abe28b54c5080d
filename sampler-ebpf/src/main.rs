//! The eBPF program: handles every call of the malloc family and samples a few of them.
//!
//! Each half of a call has a file: [`alloc_entry`], [`alloc_return`], [`alloc_entry_only`]
//! (functions without a return probe), [`free`].
//! [`window_gate`] has the clock of progress and the windows. [`record`] writes the ring buffer's
//! records. [`event`] reports process events.
//! `sampler_common::sampling` decides which calls are sampled. The property tests run the same
//! code.
//!
//! Programs on uprobes are preemptible on most kernels. So only atomic operations change what two
//! calls on one CPU may share. Each main function makes its [`Call`] by [`Call::in_main`], which
//! avoids private stacks.
//! Records are built in reserved ring space, never in per-CPU scratch memory.
//!
//! A function with an `export_name` is a global function to the verifier. The verifier checks a
//! global function once, for arguments of any value, and not once for each call. Its arguments are
//! numbers and pointers to structs. Its result is a number.
#![no_std]
#![no_main]
#![allow(internal_features)]
#![feature(core_intrinsics)]

mod alloc_entry;
mod atomic;
mod ring_pressure;
mod alloc_return;
mod alloc_entry_only;
mod event;
mod stack_bounds;
mod filter;
mod fork;
mod hits;
mod stack_cache;
mod live;
mod mapping;
mod maps;
mod memo;
mod otel;
mod pid;
mod python;
mod record;
mod registers;
mod free;
mod returns;
mod settings;
mod arguments;
mod snapshot;
mod target;
mod window_gate;

use aya_ebpf::cty::c_void;
use registers::Call;

// The `#[uprobe]` macro discards the return value. The return value decides whether the return
// probe runs. Hence the entry points are written by hand.

/// Entry and return of an allocating function under a session link: 1 at entry skips the return.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub extern "C" fn alloc_session(context: *mut c_void) -> u32 {
    let call = Call::in_main(context);
    if call.is_entry() {
        return alloc_entry::enter(&call);
    }
    if call.cookie().is_mapping() {
        return mapping::leave(context);
    }
    alloc_return::leave_session(context);
    0
}

/// Entry of an allocating function where the return has a probe of its own.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub extern "C" fn alloc_entry(context: *mut c_void) -> u32 {
    alloc_entry::enter(&Call::in_main(context));
    0
}

/// Return of an allocating function.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uretprobe")]
pub extern "C" fn alloc_return(context: *mut c_void) -> u32 {
    let call = Call::in_main(context);
    if call.cookie().is_mapping() {
        return mapping::leave(context);
    }
    alloc_return::leave(&call);
    0
}

/// Entry of a freeing function.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub extern "C" fn free_entry(context: *mut c_void) -> u32 {
    free::enter(&Call::in_main(context));
    0
}

/// The USDT `otel_memory:alloc`.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub extern "C" fn otel_alloc(context: *mut c_void) -> u32 {
    otel::allocated(&Call::in_main(context));
    0
}

/// The USDT `otel_memory:free`.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub extern "C" fn otel_free(context: *mut c_void) -> u32 {
    otel::freed(&Call::in_main(context));
    0
}

/// Entry of an allocating function that can throw. Such a function never has a return probe.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub extern "C" fn new_entry(context: *mut c_void) -> u32 {
    alloc_entry_only::enter(&Call::in_main(context));
    0
}

/// A tick of the clock of progress: a timer interrupt in user mode.
#[unsafe(no_mangle)]
#[unsafe(link_section = "perf_event")]
pub extern "C" fn clock_tick(context: *mut c_void) -> u32 {
    window_gate::tick(context);
    0
}

/// `sched_process_exec(struct task_struct *, pid_t, struct linux_binprm *)`
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tracepoint/sched_process_exec")]
pub extern "C" fn process_exec(context: *mut c_void) -> u32 {
    event::exec(context);
    0
}

/// `sched_process_fork(struct task_struct *parent, struct task_struct *child)`
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tracepoint/sched_process_fork")]
pub extern "C" fn process_fork(context: *mut c_void) -> u32 {
    fork::follow(context);
    0
}

/// `sched_process_exit(struct task_struct *, …)`, for every thread
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tracepoint/sched_process_exit")]
pub extern "C" fn process_exit(_context: *mut c_void) -> u32 {
    event::exit();
    0
}

/// `bpf_iter__task`: lists processes with threads whose returns must not be probed.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub extern "C" fn diverted_tasks(context: *mut c_void) -> u32 {
    returns::list(context);
    0
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    // Unreachable: the verifier rejects a program that could get here.
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
