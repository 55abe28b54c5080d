//! Live injection: puts the in-process sampler into a running process, and takes it out again.
//!
//! One operation is one short-lived process ([`operation`], the binary `sampler-inject`). The
//! kernel ends ptrace when the tracer ends, so a failed operation leaves nothing traced. The target
//! stays unharmed wherever an operation stops.
//!
//! These modules are pure: [`prologue`], [`plan`] and [`filter`]. [`prologue`] chooses which byte
//! of a function becomes a jump, and makes the code around that byte. [`plan`] has the hook places
//! and the pages to map, and [`filter`] the verdicts of seccomp programs. [`target`], [`maps`] and
//! [`elf`] only read. [`memory`], [`calls`], [`stop`] and [`hook`] change the target.

pub mod allocator;
pub mod calls;
pub mod elf;
pub mod families;
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
