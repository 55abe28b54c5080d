//! Code that the end-to-end tests share: workloads, a daemon per test, profiles, statistics,
//! clients.
//!
//! Every wait has a condition and a deadline. A test that cannot run (no root, no programs
//! built) fails with the reason; it never passes silently.

pub mod again;
pub mod breakpoints;
pub mod browser;
pub mod build;
pub mod child;
pub mod client;
pub mod collector;
pub mod daemon;
pub mod debian;
pub mod docs;
pub mod exposition;
pub mod fleet;
pub mod http;
pub mod inject;
pub mod machine;
pub mod nobody;
pub mod own_libc;
pub mod pid_namespace;
pub mod plot;
pub mod preload;
pub mod profile;
pub mod progress;
pub mod pythons;
pub mod raw_grpc;
pub mod siblings;
pub mod spread;
pub mod statistics;
pub mod strips;
pub mod terminal;
pub mod tls;
pub mod truth;
pub mod usage;
pub mod wait;
pub mod windowed;
pub mod workload;

pub use daemon::Daemon;
pub use profile::Profile;
pub use truth::Truth;
pub use workload::{Build, Workload};
