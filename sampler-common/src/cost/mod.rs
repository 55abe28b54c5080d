//! What profiling costs: counted events, multiplied by measured prices.
//!
//! Plainly: every hit of a probe and every sample is counted anyway. The CPU time of one such event
//! is measured on functions of the daemon ([`Measured`]). Together these prices are a [`Tariff`].
//! The events of a process are its [`Work`]. `tariff.charge(&work)` is the CPU time [`Spent`], with
//! the variance of both prices and counts.
//!
//! ```text
//! spent = Σ nᵢ·cᵢ        variance = Σ nᵢ²·var(cᵢ) + cᵢ²·var(nᵢ) + var(nᵢ)·var(cᵢ)
//! ```
//!
//! One price holds for all processes, so their costs share its error. So works are added before
//! they are charged, and subtracted for the cost since an earlier moment. Intervals are never
//! added.
//!
//! This module has no clock and no probe: `samplerd` measures prices and counts events.

mod forecast;
mod measured;
mod report;
mod spent;
mod tariff;
mod work;

pub use forecast::{Forecast, Injection};
pub use measured::Measured;
pub use report::{Report, percent, plus_minus};
pub use spent::{Range, Spent};
pub use tariff::Tariff;
pub use work::{Events, Placed, Program, Work};
