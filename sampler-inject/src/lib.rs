//! Live injection: the in-process sampler is put into a running process, and taken out.
//!
//! One operation is one short-lived process ([`operation`], the binary `sampler-inject`): ptrace ends with it, so that whatever goes wrong ends with it,
//! too. Every prefix of an operation leaves the target unharmed.
//!
//! [`prologue`] (which byte of a function becomes a jump, and the code around it), [`plan`] (places whose landings are free, and the pages there) and [`filter`]
//! (what a seccomp program says to a call) are pure.
//! [`target`], [`maps`] and [`elf`] read. [`memory`], [`calls`], [`stop`] and [`hook`] change the target.

pub mod allocator;
pub mod calls;
pub mod elf;
pub mod filter;
pub mod hook;
pub mod image;
pub mod kernel;
pub mod layout;
pub mod maps;
pub mod memory;
pub mod operation;
pub mod plan;
pub mod preflight;
pub mod prologue;
pub mod record;
pub mod steps;
pub mod stop;
pub mod target;
