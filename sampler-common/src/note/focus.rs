//! The note of `--focus`: which stacks a reader asked for, and their share of all bytes.

use crate::estimate::{Estimate, plus_minus};
use crate::units::{grouped, human_bytes, share};
use std::fmt::{self, Formatter};

/// The stacks that `--focus` chose, and their share of all bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Focus {
    /// The regular expression that chose the stacks.
    pub pattern: String,
    /// Number of chosen stacks.
    pub stacks: u64,
    /// Number of all stacks.
    pub stacks_total: u64,
    /// Bytes of the chosen stacks.
    pub bytes: Estimate,
    /// Estimated bytes of all stacks.
    pub total: f64,
}

impl fmt::Display for Focus {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Focus { pattern, bytes, total, .. } = self;
        if self.stacks == 0 {
            let all = grouped(self.stacks_total);
            return write!(f, "no stack matches {pattern}: {all} have other names only");
        }
        let [stacks, of] = [self.stacks, self.stacks_total].map(grouped);
        let interval = match bytes.has_interval() {
            true => format!(" {}", plus_minus(bytes)),
            false => " (no interval)".to_owned(),
        };
        write!(
            f,
            "only stacks with {pattern}: {stacks} of {of} stacks, {}{interval}, {} of all bytes; shares are of all bytes",
            human_bytes(bytes.value),
            share(bytes.value, *total)
        )
    }
}
