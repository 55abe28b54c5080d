//! The HTTP edge, on request: `/metrics` for Prometheus and `/debug/pprof/…` for the tools of pprof. It asks the worker
//! through the same handle as [`crate::rpc`], and changes nothing.
//!
//! There is neither encryption nor a password: it is for loopback. Host names other than those that were agreed to are refused, so
//! that no web page reads it through somebody's browser (DNS rebinding).

mod answer;
mod escape;
mod guard;
pub mod listen;
mod metrics;
mod pprof;
mod query;
mod route;
pub mod serve;
pub mod web;
