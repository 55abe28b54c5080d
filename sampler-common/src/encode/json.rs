//! The json format.

use super::Encode;
use crate::profile::Profile;
use std::io::{self, Write};

/// Writes the json format.
pub struct Json;

impl Encode for Json {
    fn encode(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        let _ = (profile, out);
        todo!()
    }
}
