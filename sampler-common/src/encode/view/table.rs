//! Functions by the bytes that they allocate themselves and by all bytes allocated under them.

use super::Number;
use crate::encode::name;
use crate::encode::tree::Measure;
use crate::estimate::Row;
use crate::profile::{Function, Profile, functions};
use serde::Serialize;
use std::io::{self, Write};

#[derive(Serialize)]
struct TableObject {
    measure: &'static str,
    /// Rows by falling own bytes, then by falling total bytes.
    rows: Vec<RowObject>,
    /// Number of functions that are not in `rows`.
    left_out: usize,
}

#[derive(Serialize)]
struct RowObject {
    function: String,
    file: String,
    line: u32,
    module: String,
    /// Sum of the stacks that are attributed to the function ([`crate::profile::own_frame`]);
    /// `null`: there are none.
    own: Option<Number>,
    /// Sum of the stacks that contain the function, each once.
    total: Number,
}

/// Writes the first `rows` functions of the table, ordered and attributed as in the text format.
/// Both numbers have an interval.
///
/// # Errors
/// If `out` fails.
pub fn table(
    profile: &Profile,
    measure: Measure,
    rows: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let functions = functions(profile);
    let shown = &functions[..rows.min(functions.len())];
    let object = TableObject {
        measure: measure.name(),
        rows: shown.iter().map(|of| row(profile, measure, of)).collect(),
        left_out: functions.len() - shown.len(),
    };
    Ok(serde_json::to_writer(out, &object)?)
}

fn row(profile: &Profile, measure: Measure, of: &Function) -> RowObject {
    let sum = |stacks: &[usize]| {
        let mut row = Row::default();
        stacks.iter().for_each(|index| row.add(&profile.stacks[*index].row));
        Number::from(&measure.of(&profile.quantities_of(&row), profile.kind).estimate)
    };
    let line = of.frame.line;
    let shown = |text: &str| if text.is_empty() { String::new() } else { name::shown(text).into() };
    RowObject {
        function: name::shown(&line.function).into_owned(),
        file: shown(&line.file),
        line: line.line,
        module: shown(of.frame.module),
        own: (!of.own_stacks.is_empty()).then(|| sum(&of.own_stacks)),
        total: sum(&of.stacks),
    }
}
