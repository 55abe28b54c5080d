//! The cheap path: a sampler inside the process, by `LD_PRELOAD`.
//!
//! It defines the malloc family in front of whatever allocator the process has and forwards every call to it. The countdown of
//! [`sampler_common::sampling`] runs in the process; only a sampled allocation, and the end of one, goes through a USDT
//! (`otel_memory:alloc`, `otel_memory:free`: OpenTelemetry eBPF profiler, design document 00003), where samplerd or any other
//! consumer of that contract may listen. How the few samples end that the contract cannot tell of goes through one of our own (`sampler_preload:ended`).
//!
//! It limits its samples by itself ([`sampler_common::sampling::token_bucket`]), so that none is ever too many for who listens.
//!
//! What keeps the process unharmed: no locks (a lock that another thread holds at `fork` would never be released), no allocation
//! of its own, no system call (but for advice on its own memory when it is loaded), no thread-local destructor, no library that
//! it needs. Its tables are zero pages of its own image until they are used, and have fixed ends. On everything that it does not
//! know it forwards the call as it came.
//!
//! What it leaves to others: an `operator new` that reaches `malloc` by itself, and `malloc_usable_size` and the like, which are the allocator's.
//!
//! `unsafe` is what this crate is made of at its edges (foreign function pointers, the process's own memory, TLS and probes by
//! assembler). The table, the filter, weights and intervals have none.
#![cfg_attr(not(test), no_std)]

pub mod boot;
mod clock;
pub mod entry;
mod file;
pub mod filter;
mod first;
mod float;
pub mod fork;
pub mod inject;
mod inside;
pub mod interval;
mod limit;
pub mod load;
mod new;
pub mod next;
pub mod operators;
mod pages;
pub mod probes;
pub mod real;
pub mod release;
pub mod sample;
pub mod settings;
pub mod start;
pub mod table;
pub mod thread;
pub mod weight;

/// There is nothing to say and nobody to say it to. No code here panics: indexes are masked, arithmetic wraps.
#[cfg(all(feature = "library", not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

// The compiled core library names it; nothing unwinds here.
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
