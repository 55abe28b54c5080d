//! The kernel side: loading, attaching, maps and the ring buffer. Only this module has `unsafe`.

pub mod bench;
pub mod btf;
pub mod calibrate;
mod cpu_timers;
mod diverted;
mod each_cpu;
pub mod engine;
pub mod events;
pub mod filtered;
#[cfg(any(fuzzing, test))]
pub mod fuzz;
pub mod guardian;
pub mod kernel;
pub mod link;
pub mod maps;
pub mod object;
pub mod pages;
pub mod preflight;
mod request;
pub mod ring;
#[allow(unsafe_code, reason = "bpf(2) and shared map memory have no safe interface")]
mod sys;
pub mod usdt;
mod verifier;

pub use engine::ProbeEngine;
pub use guardian::{Attacher, Guardian, Link, all_or_none, close_and_wait};
pub use kernel::{Kernel, Settings};
pub use link::Points;
pub use usdt::UsdtPoint;

use aya::Pod;
use sampler_common::wire::ProcessTotals;

/// [`ProcessTotals`] as a map value.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct TotalsValue(pub ProcessTotals);

// SAFETY: `repr(C)` integers without implicit padding; every bit pattern is a value.
#[allow(unsafe_code, reason = "marks plain data")]
unsafe impl Pod for TotalsValue {}
