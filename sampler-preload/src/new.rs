//! What an `operator new` or `operator delete` does that does more than pass the call on ([`crate::operators`] knows which do).
//!
//! `operator new` may throw, and the exception has to get through. No frame of compiled code is ever between its caller and the one behind us: that
//! would have to say that it may be left so, and to abort then. There is a jump, or a frame by assembler, which the unwinder leaves like any
//! other; the mark that stays behind is known to be stale ([`crate::inside`]).

use crate::first;
use crate::next::Files;
use crate::operators::Operator;
use crate::sample::{self, FILTER, charge, decide};
use crate::thread::{Charged, marked};
use core::arch::naked_asm;
use core::ffi::{CStr, c_void};
use sampler_common::sampling::Rate;

/// An `operator new` of an allocator of its own, `next`.
#[inline(always)]
pub(crate) unsafe fn sampled(
    size: usize,
    second: usize,
    third: usize,
    next: *mut c_void,
) -> *mut c_void {
    match charge(size) {
        // SAFETY: forwards the call. It may call `aligned_alloc` of the process (jemalloc's does).
        None => unsafe { marked(size, second, third, next) },
        // SAFETY: the same call.
        Some(charged) => unsafe { new_sampled(size, second, third, next, charged) },
    }
}

/// One that may have to be told: [`decide_new`], the call, [`told`].
#[unsafe(naked)]
#[cfg_attr(feature = "library", unsafe(export_name = "__sampler_preload_new"))]
unsafe extern "C" fn new_sampled(
    size: usize,
    second: usize,
    third: usize,
    next: *mut c_void,
    charged: Charged,
) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_offset rbx, -16",
        "sub rsp, 32",
        ".cfi_adjust_cfa_offset 32",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], rcx",
        "mov rsi, r8",
        "call {decide}",
        "mov rbx, rax",
        "mov rdi, [rsp]",
        "mov rsi, [rsp + 8]",
        "mov rdx, [rsp + 16]",
        "mov rcx, [rsp + 24]",
        "call {marked}",
        "test rbx, rbx",
        "je 2f",
        "mov rdi, rax",
        "mov rsi, [rsp]",
        "mov rdx, rbx",
        "mov [rsp + 8], rax",
        "call {told}",
        "mov rax, [rsp + 8]",
        "2:",
        "add rsp, 32",
        ".cfi_adjust_cfa_offset -32",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        "ret",
        ".cfi_endproc",
        decide = sym decide_new,
        marked = sym marked,
        told = sym told,
    )
}

/// The rate of a request that is to be told; 0: it is not.
unsafe extern "C" fn decide_new(size: usize, charged: Charged) -> u64 {
    decide(size, charged).map_or(0, Rate::raw)
}

#[cfg_attr(feature = "library", unsafe(export_name = "__sampler_preload_new_told"))]
unsafe extern "C" fn told(block: usize, size: usize, rate: u64) {
    sample::begin(block, size, Rate::from_raw(rate));
}

/// An `operator delete` of an allocator of its own, `next`.
#[inline(always)]
pub(crate) unsafe fn ended(
    block: usize,
    second: usize,
    third: usize,
    next: *mut c_void,
) -> *mut c_void {
    if FILTER.may_hold(block) {
        end(block);
    }
    // SAFETY: the operator behind us, of this name.
    let next = unsafe { core::mem::transmute::<*mut c_void, Operator>(next) };
    // SAFETY: forwards the call. It may call `free` of the process, which finds that the block has ended.
    unsafe { next(block, second, third) }
}

#[cold]
#[inline(never)]
fn end(block: usize) {
    sample::end(block);
}

/// An `operator new` where there is none behind us: as libstdc++'s and libc++'s.
#[inline(always)]
pub(crate) unsafe fn of_malloc(
    size: usize,
    second: usize,
    third: usize,
    name: &CStr,
) -> *mut c_void {
    // SAFETY: it has no conditions.
    let block = unsafe { first::malloc()(size.max(1)) };
    if !block.is_null() {
        return block;
    }
    // SAFETY: forwards the call.
    unsafe { late(name)(size, second, third) }
}

/// The same of one with an alignment.
#[inline(always)]
pub(crate) unsafe fn of_memalign(
    size: usize,
    alignment: usize,
    third: usize,
    name: &CStr,
) -> *mut c_void {
    let mut block = core::ptr::null_mut();
    let least = alignment.max(size_of::<usize>());
    // SAFETY: the place is ours.
    if unsafe { first::posix_memalign()(&raw mut block, least, size.max(1)) } == 0 {
        return block;
    }
    // SAFETY: forwards the call.
    unsafe { late(name)(size, alignment, third) }
}

/// An `operator delete` where there is none behind us.
#[inline(always)]
pub(crate) unsafe fn of_free(block: usize, _: usize, _: usize, _: &CStr) -> *mut c_void {
    let block = block as *mut c_void;
    // SAFETY: what the caller may free.
    unsafe { first::free()(block) };
    core::ptr::null_mut()
}

/// The one that has come with a library since: it knows what is to be done without memory. Whoever calls it has one.
#[cold]
#[inline(never)]
fn late(name: &CStr) -> Operator {
    match Files::here().found(name) {
        // SAFETY: the operator of this name.
        Some(found) => unsafe { core::mem::transmute::<*mut c_void, Operator>(found.function) },
        None => nothing,
    }
}

unsafe extern "C" fn nothing(_: usize, _: usize, _: usize) -> *mut c_void {
    core::ptr::null_mut()
}
