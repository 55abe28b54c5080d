//! What an `operator new` or `operator delete` does that does more than pass the call on ([`crate::operators`] knows which do).
//!
//! `operator new` may throw, and the exception has to get through. No frame of compiled code is ever between its caller and the one behind us: that
//! would have to say that it may be left so, and to abort then. There is a jump, or a frame by assembler, which the unwinder leaves like any
//! other; the mark that stays behind is known to be stale ([`crate::inside`]).

use crate::first;
use crate::next::Files;
use crate::operators::Operator;
use crate::real::REAL;
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

/// One that may have to be reported: [`decide_new`], the call, [`reported`].
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
        "call {reported}",
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
        reported = sym reported,
    )
}

/// The rate of a request that is to be reported; 0: it is not.
unsafe extern "C" fn decide_new(size: usize, charged: Charged) -> u64 {
    decide(size, charged).map_or(0, Rate::raw)
}

#[cfg_attr(feature = "library", unsafe(export_name = "__sampler_preload_new_told"))]
unsafe extern "C" fn reported(block: usize, size: usize, rate: u64) {
    sample::begin(block, size, Rate::from_raw(rate));
}

/// What an injected `operator new` does, of which `$way` is the way: [`charge`], and a jump to the one behind us. Where that may be sampled, `$slow`.
///
/// The unwinder of the process does not know this library then, and an exception that found a frame of ours would end the process. So there never is one.
macro_rules! new_injected_with {
    ($way:ident, $slow:path) => {
        crate::entry::charged!(
            crate::settings::SETTINGS,
            $way,
            crate::operators::NEXT,
            $slow,
            "ecx",
            "lea r9, [rip + {to} + {next}]"
        )
    };
}
macro_rules! new_injected {
    ($way:ident) => {
        crate::new::new_injected_with!($way, crate::new::sampled_injected)
    };
}
macro_rules! new_aligned_injected {
    ($way:ident) => {
        crate::new::new_injected_with!($way, crate::new::sampled_aligned_injected)
    };
}
/// What an injected `operator delete` does: a look into the filter, as `free`'s, and a jump to the one behind us.
macro_rules! delete_injected {
    ($way:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "imul eax, edi, {factor}",
            "shr eax, {shift}",
            "lea rcx, [rip + {filter}]",
            "lea r9, [rip + {way} + {next}]",
            "cmp byte ptr [rcx + rax], 0",
            "jne {slow}",
            "jmp qword ptr [r9]",
            ".cfi_endproc",
            factor = const crate::filter::FACTOR,
            shift = const crate::filter::SHIFT,
            filter = sym crate::sample::FILTER,
            way = sym $way,
            next = const crate::operators::NEXT,
            slow = sym crate::new::ended_injected,
        )
    };
}
pub(crate) use {delete_injected, new_aligned_injected, new_injected, new_injected_with};

/// Calls `$function` with the first two words and `rcx`. A block that it returns is returned; else the call goes on to the operator at `r9`, as it came.
macro_rules! before_the_operator {
    ($(#[$doc:meta])* $name:ident, $export:literal, $function:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        #[cfg_attr(feature = "library", unsafe(export_name = $export))]
        pub(crate) unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "push r9",
                ".cfi_adjust_cfa_offset 8",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "mov rdx, rcx",
                "call {function}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "pop r9",
                ".cfi_adjust_cfa_offset -8",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "test rax, rax",
                "jne 2f",
                "jmp qword ptr [r9]",
                "2:",
                "ret",
                ".cfi_endproc",
                function = sym $function,
            )
        }
    };
}

before_the_operator! {
    /// An injected `operator new` that may have to be reported: its memory is `malloc`'s, as it is in every allocator that is injected so.
    sampled_injected, "__sampler_preload_new_injected", block_of_malloc
}
before_the_operator! {
    /// The same of one with an alignment.
    sampled_aligned_injected, "__sampler_preload_new_aligned_injected", block_of_aligned_alloc
}
before_the_operator! {
    /// An injected `operator delete` whose block may be a sampled one.
    ended_injected, "__sampler_preload_delete_injected", end_of_block
}

/// A sampled block; null: the request is not sampled, or the operator has to find out what is to be done without memory.
#[cfg_attr(feature = "library", unsafe(export_name = "__sampler_preload_new_of_malloc"))]
unsafe extern "C" fn block_of_malloc(size: usize, _: usize, charged: Charged) -> *mut c_void {
    // SAFETY: it has no conditions.
    sampled_block(size, charged, || unsafe { REAL.malloc()(size) })
}

#[cfg_attr(feature = "library", unsafe(export_name = "__sampler_preload_new_of_aligned_alloc"))]
unsafe extern "C" fn block_of_aligned_alloc(
    size: usize,
    alignment: usize,
    charged: Charged,
) -> *mut c_void {
    // SAFETY: the operator's caller answers for the alignment.
    sampled_block(size, charged, || unsafe { REAL.aligned_alloc()(alignment, size) })
}

#[inline(always)]
fn sampled_block(
    size: usize,
    charged: Charged,
    allocate: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    let Some(rate) = decide(size, charged) else { return core::ptr::null_mut() };
    let block = allocate();
    // Without a block it is said that the call has failed: who knows what the operator will do.
    sample::begin(block as usize, size, rate);
    block
}

unsafe extern "C" fn end_of_block(block: usize) -> *mut c_void {
    end(block);
    core::ptr::null_mut()
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
