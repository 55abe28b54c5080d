//! A counter that many CPUs share.
//!
//! Plainly: a counter that every CPU increments is slow, wrong, large or approximate. Slow: its
//! cache line travels between CPUs for every event. Wrong: increments that race are lost. Large:
//! one cell for every CPU, summed by the reader.
//!
//! [`Scalable`] is approximate: exact while the count is small. Above a switch-over it adds a power
//! of two with the inverse probability. So it hardly ever writes and is still right on average,
//! with an error that a formula gives. `cargo xtask bench counters` compares it with the other
//! three.
//!
//! [`Switch`] has the rule of the approximate counter with its derivation, [`spread`] its interval.
//! After A. Ayers, "Scalable counters", notes on .NET's dynamic PGO (2023), which has the idea of
//! D. Dice, Y. Lev and M. Moir, "Scalable Statistics Counters" (SPAA 2013), which extends R.
//! Morris, "Counting large numbers of events in small registers" (CACM 21, 1978).

mod counter;
mod scalable;
#[cfg(feature = "std")]
pub mod spread;
mod switch;
mod word;

pub use counter::{Counter, Worker};
pub use scalable::Scalable;
#[cfg(feature = "std")]
pub use spread::{Count, Counted};
pub use switch::{MAX_AMOUNT, SATURATED, Switch};
pub use word::Word;
