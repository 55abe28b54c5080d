//! A counter that many CPUs share.
//!
//! Plainly: a counter that every CPU increments is either slow (its cache line travels between them
//! for every event), wrong (increments that race are lost), large (a cell for every CPU, summed
//! when it is read) or approximate. [`Scalable`] is approximate: it is exact while the count is small; above a
//! switch-over it adds a power of two with the inverse probability, so that it hardly ever writes
//! and is still right on average, with an error that is known by formula. `cargo xtask bench counters` measures it against the other three.
//!
//! The rule of the approximate one, with its derivation, is [`Switch`]; its interval [`spread`].
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
