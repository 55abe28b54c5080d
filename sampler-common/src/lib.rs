//! The mathematics of sampler, without I/O, clocks, tokio or aya.
//!
//! The crate has two halves.
//!
//! The `no_std` half ([`sampling`], [`counting`], [`wire`], [`counters`], [`limits`]) is compiled
//! into the eBPF program *and* into the daemon and the property tests. So the code that decides in
//! the kernel is the code that is tested.
//!
//! The other half (feature `std`: `estimate`, `profile`, `encode`) turns samples into estimates
//! with intervals, and writes them in the formats of common tools.
#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(feature = "std")]
pub mod comparison;
#[cfg(feature = "std")]
pub mod cost;
pub mod counters;
pub mod counting;
#[cfg(feature = "std")]
pub mod encode;
#[cfg(feature = "std")]
pub mod estimate;
#[cfg(feature = "std")]
pub mod injected;
#[cfg(feature = "std")]
pub mod leaks;
#[cfg(feature = "std")]
pub mod lifetimes;
pub mod limits;
#[cfg(feature = "std")]
pub mod note;
#[cfg(feature = "std")]
pub mod pressure;
#[cfg(feature = "std")]
pub mod profile;
pub mod sampling;
#[cfg(feature = "std")]
pub mod share;
#[cfg(feature = "std")]
pub mod source;
#[cfg(feature = "std")]
pub mod units;
#[cfg(feature = "std")]
pub mod windows;
pub mod wire;
