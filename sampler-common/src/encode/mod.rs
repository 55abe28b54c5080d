//! Formats that people's tools read, one small file each behind one trait.

pub mod folded;
pub mod json;
pub mod pprof;
pub mod text;

use crate::profile::Profile;
use std::io::{self, Write};

/// Writes a profile in one format.
pub trait Encode {
    /// Writes `profile` to `out`, whole.
    fn encode(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()>;
}
