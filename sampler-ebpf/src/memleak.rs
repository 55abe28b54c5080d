//! The work of bcc's `tools/memleak.py` at every call, with its maps and their sizes. The source is
//! the text of its `gen_alloc_enter`, `gen_alloc_exit2` and `gen_free_enter`, without its options.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::BPF_F_USER_STACK;
use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_get_stackid, bpf_ktime_get_ns};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{HashMap, StackTrace};
use aya_ebpf::programs::ProbeContext;

/// `struct alloc_info_t`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Allocation {
    size: u64,
    time_ns: u64,
    stack: u64,
}

/// `struct combined_alloc_info_t`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Combined {
    bytes: u64,
    allocations: u64,
}

/// Requested size of each thread's call.
#[map]
pub static SIZES: HashMap<u32, u64> = HashMap::with_max_entries(10240, 0);

/// Every block that is held.
#[map]
pub static ALLOCATIONS: HashMap<u64, Allocation> = HashMap::with_max_entries(1_000_000, 0);

/// Sums for each stack.
#[map]
pub static COMBINED: HashMap<u64, Combined> = HashMap::with_max_entries(10240, 0);

/// Stacks by their hash.
#[map]
pub static STACKS: StackTrace = StackTrace::with_max_entries(10240, 0);

/// `malloc` is called.
#[inline(always)]
pub fn enter(context: *mut c_void) {
    let call = ProbeContext::new(context);
    // SAFETY: the context of a uprobe program is the task's registers.
    let size = unsafe { (*call.regs).rdi as u64 };
    let thread = bpf_get_current_pid_tgid() as u32;
    // memleak ignores a full map as well.
    let _ = SIZES.insert(thread, size, 0);
}

/// `malloc` returns.
#[inline(always)]
pub fn leave(context: *mut c_void) {
    let call = ProbeContext::new(context);
    let thread = bpf_get_current_pid_tgid() as u32;
    // SAFETY: copied at once; the key is this thread's own.
    let Some(size) = (unsafe { SIZES.get(thread) }).copied() else { return };
    let _ = SIZES.remove(thread);
    // SAFETY: the context of a uprobe program is the task's registers.
    let pointer = unsafe { (*call.regs).rax as u64 };
    if pointer == 0 {
        return;
    }
    // SAFETY: the helper has no preconditions.
    let time_ns = unsafe { bpf_ktime_get_ns() };
    let map = (&raw const STACKS).cast_mut().cast();
    // SAFETY: the map is a stack trace map, the context the program's own.
    let stack = unsafe { bpf_get_stackid(call.as_ptr(), map, BPF_F_USER_STACK as u64) } as u64;
    let _ = ALLOCATIONS.insert(pointer, Allocation { size, time_ns, stack }, 0);
    combine(stack, size, 1);
}

/// `free` is called.
#[inline(always)]
pub fn free(context: *mut c_void) {
    let call = ProbeContext::new(context);
    // SAFETY: the context of a uprobe program is the task's registers.
    let pointer = unsafe { (*call.regs).rdi as u64 };
    // SAFETY: copied at once.
    let Some(allocation) = (unsafe { ALLOCATIONS.get(pointer) }).copied() else { return };
    let _ = ALLOCATIONS.remove(pointer);
    combine(allocation.stack, allocation.size.wrapping_neg(), 1u64.wrapping_neg());
}

/// `update_statistics_add` and `_del`: look up, change a copy, store it.
#[inline(always)]
fn combine(stack: u64, bytes: u64, allocations: u64) {
    // SAFETY: copied at once.
    let mut sum =
        unsafe { COMBINED.get(stack) }.copied().unwrap_or(Combined { bytes: 0, allocations: 0 });
    sum.bytes = sum.bytes.wrapping_add(bytes);
    sum.allocations = sum.allocations.wrapping_add(allocations);
    let _ = COMBINED.insert(stack, sum, 0);
}
