//! Counters that many CPUs share: one interface, five ways to keep the count.
//!
//! Plainly: a counter that every CPU increments is either slow (its cache line travels between them
//! for every event), wrong (increments that race are lost), large (a cell for every CPU, summed
//! when it is read) or approximate. The approximate one is exact while the count is small; above a
//! switch-over it adds a power of two with the inverse probability, so that it hardly ever writes
//! and is still right on average, with an error that is known by formula.
//!
//! | counter | an event costs | value | room |
//! | --- | --- | --- | --- |
//! | [`Racing`] | a load and a store | loses what races | a word |
//! | [`Interlocked`] | an atomic addition | exact | a word |
//! | [`Scalable`] | a load, seldom an atomic addition | unbiased, relative s.d. below 2^(−k/2) | a word |
//! | [`ExchangeFirst`] | a compare-exchange | exact without contention, else as above | a word |
//! | [`Sharded`] | an atomic addition to a line of its own | exact | a line per CPU |
//!
//! The rule of the approximate one, with its derivation, is [`Switch`]; its interval [`spread`].
//! After A. Ayers, "Scalable counters", notes on .NET's dynamic PGO (2023), which has the idea of
//! D. Dice, Y. Lev and M. Moir, "Scalable Statistics Counters" (SPAA 2013), which extends R.
//! Morris, "Counting large numbers of events in small registers" (CACM 21, 1978).

mod counter;
mod exchange_first;
mod interlocked;
mod line;
mod racing;
mod scalable;
mod sharded;
#[cfg(feature = "std")]
pub mod spread;
mod switch;
mod word;

pub use counter::{Counter, Worker};
pub use exchange_first::ExchangeFirst;
pub use interlocked::Interlocked;
pub use line::Line;
pub use racing::Racing;
pub use scalable::Scalable;
pub use sharded::Sharded;
#[cfg(feature = "std")]
pub use spread::{Count, Counted};
pub use switch::{MAX_AMOUNT, SATURATED, Switch};
pub use word::Word;
