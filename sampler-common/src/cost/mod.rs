//! What profiling costs: events that were counted, times prices that were measured.
//!
//! Plainly: every hit of a probe, every sample, every return is counted anyway. What one of each takes is measured on
//! functions of the daemon's own ([`Measured`], [`Line`]); together these prices are a [`Tariff`]. The events of a process are its
//! [`Work`], and `tariff.charge(&work)` is the CPU time [`Spent`], with the variance that both prices and counts bring.
//!
//! ```text
//! spent = Σ nᵢ·cᵢ        variance = Σ nᵢ²·var(cᵢ) + cᵢ²·var(nᵢ) + var(nᵢ)·var(cᵢ)
//! ```
//!
//! One price holds for all processes, so that its error is theirs in common: works are added (and subtracted, for "since then")
//! before they are charged. Intervals are never added. Nor is one moment another: how fast the machine was when prices were measured is an error that all of them
//! have in common ([`Speed`]).
//!
//! No clock and no probe here: `samplerd` measures, and counts.

mod forecast;
mod line;
mod measured;
mod report;
mod speed;
mod spent;
mod tariff;
mod work;

pub use forecast::{Forecast, Injection};
pub use line::Line;
pub use measured::Measured;
pub use report::{Report, percent, plus_minus};
pub use speed::Speed;
pub use spent::{Range, Spent};
pub use tariff::{HitPrices, Tariff};
pub use work::{Events, Placed, Program, Work};
