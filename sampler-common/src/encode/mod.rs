//! Formats that people's tools read, one small file each behind one trait.
//!
//! `docs/formats.md` is the reference for their readers.

mod address;
mod callers;
pub mod comparison;
pub mod csv;
pub mod firefox;
#[cfg(test)]
pub(crate) mod fixture;
pub mod folded;
mod format;
mod functions;
mod interval;
pub mod jeprof;
pub mod json;
#[cfg(test)]
mod large;
pub mod leaks;
pub mod lifetimes;
pub mod name;
pub mod otlp;
pub mod perfetto;
pub mod pprof;
pub mod push;
pub mod speedscope;
mod sums;
pub mod svg;
pub mod tables;
pub mod text;
mod tree;
mod trie;
pub mod view;
mod xml;

use crate::profile::Profile;
use std::io::{self, Write};

pub use format::Format;
pub use tree::Measure;

/// The frame of a row that has none of its own.
const NO_STACK: &str = "[no stack]";

/// Writes a profile in one format.
pub trait Encode {
    /// Writes `profile` to `out`, whole. Fails only where `out` does.
    fn encode(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()>;
}
