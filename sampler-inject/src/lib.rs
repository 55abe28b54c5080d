//! Live injection: the in-process sampler is put into a running process, and taken out.
//!
//! What lies here is pure: it reads no file, asks no kernel and writes into no process.
//! [`prologue`] finds the one byte of a function that becomes a jump, and makes the code around it.
//! [`filter`] answers what a seccomp program of the target says to a system call.

pub mod filter;
pub mod prologue;
