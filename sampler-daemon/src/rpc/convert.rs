//! Conversion of [`sampler_common::profile::Profile`] to the protocol's profile, and back.
//!
//! Profiles made here are correct by construction. Profiles from the network are checked before
//! their numbers are used as indices or in calculations.

mod clusters;
pub mod cost;
pub mod forecast;
mod from_wire;
mod leaks;
mod lifetimes;
mod number;
pub mod sources;
mod strata;
mod to_wire;

pub use from_wire::{from_wire, quantities_from_wire};
pub use leaks::{leaks_from_wire, leaks_to_wire};
pub use lifetimes::{lifetimes_from_wire, lifetimes_to_wire};
pub use to_wire::{kind_to_wire, quantities_to_wire, to_wire};

#[cfg(test)]
mod tests;
