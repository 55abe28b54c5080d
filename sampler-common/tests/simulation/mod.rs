//! Simulation of every pair of strategy and estimator. `cargo xtask simulate` prints the whole
//! table; `tests/pairs.rs` judges a short one.
#![allow(dead_code, reason = "each binary uses its own part")]

pub(crate) mod apart;
pub(crate) mod draw;
pub(crate) mod phases;
pub(crate) mod program;
pub(crate) mod proofs;
pub(crate) mod table;
