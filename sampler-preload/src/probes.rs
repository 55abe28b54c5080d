//! The USDT probes `otel_memory:alloc(pointer, size, weighted bytes)`, `otel_memory:free(pointer)`
//! and our own `sampler_preload:ended(how)`.
//!
//! By `ended` samplerd counts the ends that `otel_memory` cannot report, up to the process's last
//! moment. A counter in the process's memory would vanish with the process.
//!
//! Notes and semaphores follow "User Space Probe Implementation" of SystemTap. A semaphore counts
//! the readers that are attached; the kernel writes it.
//!
//! Each probe is the one-byte nop. A hit of the five-byte nop would cost 125 ns less, since Linux
//! 6.18 turns it into a call. But a forked child inherits that call without its target page, and is
//! killed by SIGSEGV when it executes the call (seen with 6.18.44).

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU16, Ordering::Relaxed};
use sampler_common::wire::Unusual;

global_asm!(
    // The kernel finds a semaphore by its offset in the file, in the first writable mapping that
    // contains it. So the page must not be mapped a second time as the end of another segment.
    ".pushsection .probes, \"aw\", @progbits",
    ".balign 4096",
    ".hidden otel_memory_alloc_semaphore, otel_memory_free_semaphore",
    ".globl otel_memory_alloc_semaphore, otel_memory_free_semaphore",
    "otel_memory_alloc_semaphore: .2byte 0",
    "otel_memory_free_semaphore: .2byte 0",
    ".popsection",
    ".pushsection .stapsdt.base, \"aR\", @progbits",
    ".hidden _.stapsdt.base",
    ".globl _.stapsdt.base",
    "_.stapsdt.base: .space 1",
    ".size _.stapsdt.base, 1",
    ".popsection",
);

/// A probe and its note.
macro_rules! probe {
    ($provider:literal, $name:literal, $arguments:literal, $semaphore:literal, $($operands:tt)*) => {
        asm!(
            "990: nop",
            ".pushsection .note.stapsdt, \"\", @note",
            ".balign 4",
            ".4byte 992f-991f, 994f-993f, 3",
            "991: .asciz \"stapsdt\"",
            "992: .balign 4",
            concat!("993: .8byte 990b, _.stapsdt.base, ", $semaphore),
            concat!(".asciz \"", $provider, "\""),
            concat!(".asciz \"", $name, "\""),
            concat!(".asciz \"", $arguments, "\""),
            "994: .balign 4",
            ".popsection",
            $($operands)*
            options(preserves_flags),
        )
    };
}

unsafe extern "C" {
    #[link_name = "otel_memory_alloc_semaphore"]
    static ALLOC: AtomicU16;
    #[link_name = "otel_memory_free_semaphore"]
    static FREE: AtomicU16;
}

/// Whether a reader is attached to the probe of allocations.
#[inline(always)]
pub fn alloc_has_listener() -> bool {
    // SAFETY: two bytes of this library, defined above, which the kernel writes in one piece.
    let semaphore = unsafe { &ALLOC };
    semaphore.load(Relaxed) != 0
}

/// Whether a reader is attached to the probe of ends.
#[inline(always)]
fn free_has_listener() -> bool {
    // SAFETY: as above.
    let semaphore = unsafe { &FREE };
    semaphore.load(Relaxed) != 0
}

/// Reports a sampled allocation. Each use is a probe of its own, so the caller is the leaf of the
/// stack.
#[inline(always)]
pub fn alloc(address: usize, size: u64, weighted: u64) {
    // SAFETY: an instruction that does nothing.
    unsafe {
        probe!(
            "otel_memory", "alloc", "8@%rdi 8@%rsi 8@%rdx", "otel_memory_alloc_semaphore",
            in("rdi") address, in("rsi") size, in("rdx") weighted,
        );
    }
}

/// Reports the end of a sampled block.
#[inline(always)]
pub fn free(address: usize) {
    if free_has_listener() {
        // SAFETY: an instruction that does nothing.
        unsafe {
            probe!("otel_memory", "free", "8@%rdi", "otel_memory_free_semaphore", in("rdi") address,);
        }
    }
}

/// Reports a sample that has ended in another way. The probe is in one place, and rare enough to
/// need no semaphore.
#[cold]
#[inline(never)]
pub fn ended(how: Unusual) {
    // SAFETY: an instruction that does nothing.
    unsafe {
        probe!("sampler_preload", "ended", "8@%rdi", "0", in("rdi") how as u64,);
    }
}
