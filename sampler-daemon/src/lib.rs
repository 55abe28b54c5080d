//! samplerd, the allocation profiling daemon, as a library. Its two programs are `samplerd` and
//! `sampler`.
//!
//! Arrows only point down, through three layers:
//!
//! - [`rpc`], [`http`] and [`export`] speak protocols.
//! - [`pipeline`] and [`store`] have the state. They know neither protocol nor kernel types.
//! - [`links`] is the only module that attaches. [`bpf`], [`inspect`], [`unwind`], [`symbolize`],
//!   [`parser`] and [`debuginfod`] are the only modules that touch the kernel, `/proc` and files.

mod accept;
pub mod bounded_file;
pub mod bpf;
pub mod debuginfod;
pub mod export;
pub mod http;
pub mod injector;
pub mod inspect;
pub mod installed;
pub mod links;
pub mod manual;
pub mod parser;
pub mod pid_argument;
pub mod pid_namespace;
pub mod pipeline;
mod regular_file;
pub mod rpc;
mod run_directory;
#[cfg(test)]
mod running;
pub mod secret_file;
pub mod store;
pub mod symbolize;
pub mod token;
pub mod unwind;
