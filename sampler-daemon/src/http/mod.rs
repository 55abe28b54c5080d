//! The HTTP edge, on request: `/metrics` for Prometheus and `/debug/pprof/…` for the tools of
//! pprof. HTTP asks the worker through the same handle as [`crate::rpc`], and changes nothing.
//!
//! HTTP has neither encryption nor a password: it is meant for loopback. Requests for unknown host
//! names are refused, so that no web page can read the answers through a visitor's browser (DNS
//! rebinding).

mod answer;
mod escape;
#[cfg(any(fuzzing, test))]
pub mod fuzz;
mod guard;
pub mod listen;
mod metrics;
mod pprof;
mod query;
mod route;
pub mod serve;
pub mod web;
