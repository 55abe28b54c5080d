//! The sampling core: one implementation for the kernel, the daemon and the tests.

#[cfg(feature = "std")]
pub mod adaptive;
mod bits;
pub mod class;
pub mod countdown;
pub mod decide;
pub mod design;
pub mod draw;
pub mod external;
pub mod product;
pub mod rate;
pub mod ring_pressure;
pub mod strategy;
pub mod token_bucket;
#[cfg(feature = "std")]
pub mod wanted;

#[cfg(feature = "std")]
pub use adaptive::{ClassUse, adapt};
pub use class::{class, class_bounds, size_bucket, size_bucket_bounds};
pub use countdown::{Cell, Random, Trial, keeps_running, offset, trial};
pub use decide::{Decision, Drawn, decide, draw_points};
pub use design::Design;
pub use draw::draw;
pub use external::external;
#[cfg(feature = "std")]
pub use external::implied_interval;
pub use product::product;
pub use rate::Rate;
pub use strategy::Strategy;
#[cfg(feature = "std")]
pub use wanted::interval_for;
