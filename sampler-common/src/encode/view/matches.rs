//! Results of a search: the functions, and all that was allocated under any of them.

use super::Number;
use crate::encode::functions::functions;
use crate::encode::name;
use crate::encode::tree::Measure;
use crate::estimate::Row;
use crate::profile::Profile;
use serde::Serialize;
use std::io::{self, Write};

#[derive(Serialize)]
struct MatchesObject {
    /// Indices of the functions in the graph's list.
    functions: Vec<usize>,
    /// Number of stacks with at least one of the functions.
    stacks: u64,
    /// Total of these stacks.
    total: Number,
}

/// Writes the functions that have `text` in their name, and the sum of their stacks, each stack
/// once. The case of ASCII letters is ignored.
///
/// # Errors
/// If `out` fails.
pub fn matches(
    profile: &Profile,
    measure: Measure,
    text: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let text = text.to_ascii_lowercase();
    let (all, at) = functions(profile);
    let found: Vec<bool> =
        all.iter().map(|of| name::shown(of.name).to_ascii_lowercase().contains(&text)).collect();
    let (mut row, mut stacks) = (Row::default(), 0);
    for stack in &profile.stacks {
        if stack.locations.iter().any(|location| at[*location as usize].iter().any(|id| found[*id]))
        {
            row.add(&stack.row);
            stacks += 1;
        }
    }
    let quantities = profile.quantities_of(&row);
    let object = MatchesObject {
        functions: (0..all.len()).filter(|id| found[*id]).collect(),
        stacks,
        total: (&measure.of(&quantities, profile.kind).estimate).into(),
    };
    Ok(serde_json::to_writer(out, &object)?)
}
