//! The table that people read in a terminal.

use super::Encode;
use crate::profile::Profile;
use std::io::{self, Write};

/// Writes the table.
pub struct Text {
    /// Columns that the table may use.
    pub width: usize,
    /// Whether to emphasize with escape sequences.
    pub color: bool,
}

impl Encode for Text {
    fn encode(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        let _ = (profile, out);
        todo!()
    }
}
