//! The USDTs `otel_memory:alloc(pointer, size, weighted bytes)` and `otel_memory:free(pointer)`, and one of ours, `sampler_preload:ended(how)`, by which
//! samplerd counts what these cannot tell: to the process's last moment, as a count in its memory could not be.
//!
//! Notes and semaphores as in "User Space Probe Implementation" of SystemTap. A semaphore counts who listens; the kernel writes it.
//!
//! Each probe is the one-byte nop. The five-byte one would be hit for 125 ns less, since Linux 6.18 turns it into a call; but a forked
//! child inherits that call without the page that it leads to, and is killed by SIGSEGV when it comes to it (seen with 6.18.44).

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU16, Ordering::Relaxed};
use sampler_common::wire::Unusual;

global_asm!(
    // The kernel finds a semaphore by its offset in the file, in the first writable mapping that has it: the page must not be
    // mapped a second time as the end of another segment.
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

/// Whether anybody listens to allocations.
#[inline(always)]
pub fn alloc_has_listener() -> bool {
    // SAFETY: two bytes of this library, defined above, which the kernel writes whole.
    let semaphore = unsafe { &ALLOC };
    semaphore.load(Relaxed) != 0
}

/// Whether anybody listens to ends.
#[inline(always)]
fn free_has_listener() -> bool {
    // SAFETY: as above.
    let semaphore = unsafe { &FREE };
    semaphore.load(Relaxed) != 0
}

/// A sampled allocation. A probe wherever it is used: its caller is the leaf of the stack.
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

/// The end of a sampled block.
#[inline(always)]
pub fn free(address: usize) {
    if free_has_listener() {
        // SAFETY: an instruction that does nothing.
        unsafe {
            probe!("otel_memory", "free", "8@%rdi", "otel_memory_free_semaphore", in("rdi") address,);
        }
    }
}

/// A sample has ended otherwise than by these. In one place, and rare enough to need no semaphore.
#[cold]
#[inline(never)]
pub fn ended(how: Unusual) {
    // SAFETY: an instruction that does nothing.
    unsafe {
        probe!("sampler_preload", "ended", "8@%rdi", "0", in("rdi") how as u64,);
    }
}
