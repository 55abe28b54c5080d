//! The folded format.

use super::Encode;
use crate::profile::Profile;
use std::io::{self, Write};

/// Writes the folded format.
pub struct Folded;

impl Encode for Folded {
    fn encode(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        let _ = (profile, out);
        todo!()
    }
}
