//! The pprof format.

use super::Encode;
use crate::profile::Profile;
use std::io::{self, Write};

/// Writes the pprof format.
pub struct Pprof;

impl Encode for Pprof {
    fn encode(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        let _ = (profile, out);
        todo!()
    }
}
