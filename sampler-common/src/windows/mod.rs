//! Windows: a process is probed for short, random parts of its own progress, so that profiling
//! costs at most a share of its CPU time.
//!
//! Every CPU has a timer that ticks in user mode only. The ticks measure progress. Traps are time
//! in the kernel. So a program that its probes slow down has as many ticks for the same work as
//! without probes.
//!
//! # Law
//!
//! Progress is cut into consecutive strata. The length Lᵢ of a stratum is fixed before the stratum
//! begins, from the cost of earlier windows ([`Planner`]). Each stratum has one window of cᵢ ticks
//! at a uniformly drawn place. So each allocation of the stratum falls into the window with
//! probability κᵢ = cᵢ/Lᵢ. If it was then sampled with probability π, the sample stands for 1/(πκᵢ)
//! allocations. This is the two-stage estimator of Horvitz and Thompson. The interval contains the
//! variance between windows ([`crate::estimate::clusters`]).
//!
//! Sources: W. G. Cochran, "Sampling Techniques" (1977), chapters 5 (one unit for each stratum), 9A
//! and 10 (clusters, two stages).

mod budget;
mod groups;
mod planner;

pub use budget::Budget;
pub use groups::{Group, Groups, MAX_GROUPS};
pub use planner::{Clock, Ledger, Planner, Window, WindowCost};
