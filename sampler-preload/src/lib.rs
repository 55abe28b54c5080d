//! The in-process sampler: a library that is preloaded with a program (`LD_PRELOAD`), or injected
//! into a running one ([`inject`]).
//!
//! The library defines the malloc family in front of the process's allocator, and forwards every
//! call to this allocator, whichever it is. The countdown of [`sampler_common::sampling`] runs in
//! the process. Only a sampled allocation, and the end of one, hits a USDT probe:
//! `otel_memory:alloc` or `otel_memory:free` (OpenTelemetry eBPF profiler, design document 00003).
//! samplerd, and any other program that knows this document, may attach to these probes. They
//! cannot report every way in which a sample ends. Our own probe `sampler_preload:ended` reports
//! the others.
//!
//! The library limits its samples by itself ([`sampler_common::sampling::token_bucket`]), so that
//! the reader never gets too many.
//!
//! Rules that keep the process unharmed:
//!
//! - no locks: a lock that another thread holds at `fork` would never be released;
//! - no allocation of its own, no thread-local destructor, no library that it needs;
//! - no system call, except for advice on its own memory when it is loaded;
//! - tables of fixed size in its own image, whose pages take no memory until they are used;
//! - calls that it does not know are forwarded unchanged.
//!
//! In an injected process the library also serves allocators that are called past `malloc`
//! ([`heap`]).
//!
//! An `operator new` that calls `malloc` is not sampled, because the `malloc` is.
//! `malloc_usable_size` and similar functions are left to the allocator.
//!
//! `unsafe` is needed at the edges: foreign function pointers, the process's own memory, TLS and
//! probes in assembler. The table, the filter, weights and intervals have no `unsafe`.
#![cfg_attr(not(test), no_std)]

pub mod boot;
mod clock;
pub mod entry;
mod file;
pub mod filter;
mod first;
mod float;
pub mod fork;
pub mod heap;
pub mod inject;
mod inside;
pub mod interval;
mod limit;
pub mod load;
mod new;
pub mod next;
pub mod next_allocator;
pub mod operators;
mod pages;
pub mod probes;
pub mod release;
pub mod sample;
pub mod settings;
pub mod start;
pub mod table;
pub mod thread;
pub mod weight;

/// Never called: no code here panics, since indexes are masked and arithmetic wraps. There would be
/// no way to report a panic either.
#[cfg(all(feature = "library", not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

// The compiled core library refers to this symbol; nothing unwinds here.
#[cfg(all(feature = "library", not(test)))]
core::arch::global_asm!(
    ".pushsection .text.rust_eh_personality, \"ax\", @progbits",
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    ".type rust_eh_personality, @function",
    "rust_eh_personality: ud2",
    ".size rust_eh_personality, 2",
    ".popsection",
);
