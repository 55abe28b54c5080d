//! samplerd, the allocation profiling daemon, as a library. Its two programs are `samplerd` and
//! `sampler`.
//!
//! Arrows only point down: [`rpc`] (the only module that sees protocol types) and beside it [`http`] and [`export`] ask [`pipeline`] and
//! [`store`] (stateful; neither protocol nor kernel types), which use [`links`] (the only module that attaches), [`bpf`], [`inspect`],
//! [`unwind`], [`symbolize`], [`parser`] and [`debuginfod`] (the only modules that touch the kernel, /proc and files).

mod accept;
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
pub mod rpc;
mod run_directory;
#[cfg(test)]
mod running;
pub mod store;
pub mod symbolize;
pub mod token;
pub mod unwind;
