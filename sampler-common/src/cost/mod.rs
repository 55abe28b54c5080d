//! What profiling costs: counted events, multiplied by measured prices.
//!
//! Plainly: every hit of a probe, every sample and every hit of a return probe is counted anyway.
//! The CPU time of one such event is measured on functions of the daemon ([`Measured`], [`Line`]).
//! Together these prices are a [`Tariff`]. The events of a process are its [`Work`].
//! `tariff.charge(&work)` is the CPU time [`Spent`], with the variance of both prices and counts.
//!
//! ```text
//! spent = Σ nᵢ·cᵢ        variance = Σ nᵢ²·var(cᵢ) + cᵢ²·var(nᵢ) + var(nᵢ)·var(cᵢ)
//! ```
//!
//! One price holds for all processes, so their costs share its error. So works are added before
//! they are charged, and subtracted for the cost since an earlier moment. Intervals are never
//! added. The machine's speed also varies in time: its speed during the measurement is an error
//! that all prices share ([`Speed`]).
//!
//! This module has no clock and no probe: `samplerd` measures prices and counts events.

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
