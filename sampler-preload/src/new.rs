//! The operators `new` and `delete` that do more than forward the call ([`crate::operators`]
//! decides which do).
//!
//! `operator new` may throw, and the exception has to pass. So no frame of compiled code is ever
//! between its caller and the operator behind us. A compiled frame would have to be declared as one
//! that unwinding may leave, and would abort then. Instead there is a jump, or a frame in
//! assembler, which the unwinder leaves like any other. The mark that stays behind is recognized as
//! stale ([`crate::inside`]).

use crate::first;
use crate::next::Files;
use crate::next_allocator::NEXT_ALLOCATOR;
use crate::operators::Operator;
use crate::sample::{self, FILTER, charge, decide};
use crate::thread::{Charged, marked};
use core::arch::naked_asm;
use core::ffi::{CStr, c_void};
use sampler_common::sampling::Rate;

/// An `operator new` of an allocator that has its own, `next`.
#[inline(always)]
pub(crate) unsafe fn sampled(
    size: usize,
    second: usize,
    third: usize,
    next: *mut c_void,
) -> *mut c_void {
    match charge(size) {
        // SAFETY: forwards the call. `next` may call the process's `aligned_alloc` (jemalloc's
        // does).
        None => unsafe { marked(size, second, third, next) },
        // SAFETY: the same call.
        Some(charged) => unsafe { new_sampled(size, second, third, next, charged) },
    }
}

/// An `operator new` that may have to be reported: [`decide_new`], the call, [`reported`].
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

/// The rate of a request that is to be reported; 0: it is not reported.
unsafe extern "C" fn decide_new(size: usize, charged: Charged) -> u64 {
    decide(size, charged).map_or(0, Rate::raw)
}

#[cfg_attr(feature = "library", unsafe(export_name = "__sampler_preload_new_told"))]
unsafe extern "C" fn reported(block: usize, size: usize, rate: u64) {
    sample::begin(block, size, Rate::from_raw(rate));
}

/// The code of an injected `operator new` with the target `$way`: [`charge`], and a jump. The jump
/// leads to the operator behind us, or to `$slow` if the request may be sampled.
///
/// The unwinder of the process does not know an injected library, and an exception that found a
/// frame of ours would end the process. So there is never such a frame.
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
/// The code of an injected `operator delete`: a filter look-up, like that of `free`, and a jump to
/// the operator behind us.
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

/// Calls `$function` with the first two words and `rcx`. If it returns a block, that is the result.
/// Else the original call goes on to the operator at `r9`.
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
    /// An injected `operator new` that may have to be reported. Its memory comes from `malloc`, as
    /// in every allocator that is injected in this way.
    sampled_injected, "__sampler_preload_new_injected", block_of_malloc
}
before_the_operator! {
    /// An injected `operator new` with an alignment that may have to be reported.
    sampled_aligned_injected, "__sampler_preload_new_aligned_injected", block_of_aligned_alloc
}
before_the_operator! {
    /// An injected `operator delete` whose block may be a sampled one.
    ended_injected, "__sampler_preload_delete_injected", end_of_block
}

/// A sampled block. Null: the request is not sampled, or there is no memory, which the operator has
/// to handle.
#[cfg_attr(feature = "library", unsafe(export_name = "__sampler_preload_new_of_malloc"))]
unsafe extern "C" fn block_of_malloc(size: usize, _: usize, charged: Charged) -> *mut c_void {
    // SAFETY: it has no conditions.
    sampled_block(size, charged, || unsafe { NEXT_ALLOCATOR.malloc()(size) })
}

#[cfg_attr(feature = "library", unsafe(export_name = "__sampler_preload_new_of_aligned_alloc"))]
unsafe extern "C" fn block_of_aligned_alloc(
    size: usize,
    alignment: usize,
    charged: Charged,
) -> *mut c_void {
    // SAFETY: the operator's caller guarantees the alignment.
    sampled_block(size, charged, || unsafe { NEXT_ALLOCATOR.aligned_alloc()(alignment, size) })
}

#[inline(always)]
fn sampled_block(
    size: usize,
    charged: Charged,
    allocate: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    let Some(rate) = decide(size, charged) else { return core::ptr::null_mut() };
    let block = allocate();
    // Without a block the call is reported as failed, since the operator's further actions are
    // unknown.
    sample::begin(block as usize, size, rate);
    block
}

unsafe extern "C" fn end_of_block(block: usize) -> *mut c_void {
    end(block);
    core::ptr::null_mut()
}

/// An `operator delete` of an allocator that has its own, `next`.
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
    // SAFETY: forwards the call. `next` may call the process's `free`, which finds that the block
    // has ended.
    unsafe { next(block, second, third) }
}

#[cold]
#[inline(never)]
fn end(block: usize) {
    sample::end(block);
}

/// An `operator new` without one behind us, with the behaviour of libstdc++'s and libc++'s.
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

/// An `operator new` with an alignment, without one behind us.
#[inline(always)]
pub(crate) unsafe fn of_memalign(
    size: usize,
    alignment: usize,
    third: usize,
    name: &CStr,
) -> *mut c_void {
    let mut block = core::ptr::null_mut();
    let least = alignment.max(size_of::<usize>());
    // SAFETY: the place is a local variable.
    if unsafe { first::posix_memalign()(&raw mut block, least, size.max(1)) } == 0 {
        return block;
    }
    // SAFETY: forwards the call.
    unsafe { late(name)(size, alignment, third) }
}

/// An `operator delete` without one behind us.
#[inline(always)]
pub(crate) unsafe fn of_free(block: usize, _: usize, _: usize, _: &CStr) -> *mut c_void {
    let block = block as *mut c_void;
    // SAFETY: a block that the caller may free.
    unsafe { first::free()(block) };
    core::ptr::null_mut()
}

/// The operator of a library that was loaded since, which handles the lack of memory. Whoever calls
/// it has such a library.
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
