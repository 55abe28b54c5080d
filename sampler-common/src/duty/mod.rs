//! A bounded cost: allocations are seen in windows only, as many and as long as a budget allows.
//!
//! Plainly: while a process is probed each of its allocations costs it half a microsecond, so it is probed for a small part of the time.
//! The time of which it is a part is not the wall's: a program that is slowed down in a window allocates less per second there, and more
//! elsewhere. It is the program's own progress, by a clock that ticks in its own code only ([`crate::wire::Duty`]).
//!
//! # Law
//!
//! Progress is cut into strata, one after another; the i-th is Lᵢ ticks long, which is settled before it begins from what earlier windows have cost
//! ([`Controller`]). In each there is one window of cᵢ ticks, at a place drawn uniformly. So every allocation of the stratum has the chance
//! κᵢ = cᵢ/Lᵢ to be seen, and a sample of it, taken with probability π, stands for 1/(πκᵢ) like it: Horvitz and Thompson's estimator for two stages.
//! What windows differ in is in the interval ([`crate::estimate::clusters`]); Σ over the finished strata is taken to all of
//! the progress by the ratio of the two.
//!
//! Sources: W. G. Cochran, "Sampling Techniques" (1977), chapters 5 (one unit for each stratum), 9A and 10 (clusters, two stages);
//! M. H. Hansen, W. N. Hurwitz, "On the theory of sampling from finite populations", Annals of Mathematical Statistics 14 (1943).

mod budget;
mod clock;
mod controller;
mod cost;
mod drag;
mod fit;
mod flow;
mod groups;
mod lead;
mod likeness;
mod marks;
mod pace;
mod recent;
mod steps;
mod taken;
mod tally;
mod ticks;
mod timers;
mod usual;
#[cfg(test)]
mod waits;
mod window;

pub use budget::Budget;
pub use clock::Clock;
pub use controller::Controller;
pub use cost::{Ledger, WindowCost};
pub use drag::Drag;
pub use fit::{Fit, Verdict};
pub use flow::Flow;
pub use groups::{Added, Counted, Group, Groups, MAX_GROUPS, TALLIES, TRAFFIC};
pub use lead::Lead;
pub use marks::{Marked, Marks};
pub use pace::{Bend, Counts, Pace};
pub use steps::{Steps, Waited};
pub use taken::Progress;
pub use tally::{Look, Tally};
pub use ticks::{Ticks, Watched};
pub use timers::Timers;
pub use usual::Usual;
pub use window::Window;

/// Fewer windows make no interval.
pub const LEAST_WINDOWS: u32 = 8;
