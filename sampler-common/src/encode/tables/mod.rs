//! Pushes as tables in Parquet files, for SQL engines.
//!
//! The tables carry moments, not intervals: an engine adds moments over hosts and windows by SUM and
//! MAX, and makes the interval last. `docs/fleet/tables.md` describes every column, and
//! `docs/fleet/*.sql` are the statements. All tables are flat, so that the same statements run on
//! every engine: a stack has one row for each frame.
//!
//! Ids of stacks and frames are the same on every host: hashes of build ids and addresses in files,
//! or of names. They contain no address of a process and no pid.

mod column;
mod dictionary;
mod facts;
mod identity;
mod read;
mod schema;

use super::push::Push;
use crate::profile::Kind;
use dictionary::Dictionary;
use facts::facts;

pub use column::EncodeError;
pub use dictionary::symbols;
pub use identity::WrittenRows;
pub use read::{FrameRow, MappingRow, ReadError, frames, mappings, qualities};
pub use schema::{SCHEMA_VERSION, Table};

/// A Parquet file.
#[derive(Clone, Debug)]
pub struct File {
    /// The table that the file is a part of.
    pub table: Table,
    /// The contents.
    pub bytes: Vec<u8>,
}

/// The files of a window.
#[derive(Clone, Debug)]
pub struct Files {
    /// The files, in the order in which they should be written: a row that another row refers to
    /// comes first. [`Table::Coverage`] comes last, and shows that the window is complete.
    pub files: Vec<File>,
    /// Rows of dictionaries that the files contain. [`WrittenRows::add`] takes them once the files are
    /// written.
    pub new: WrittenRows,
}

/// Encodes pushes. Rows of dictionaries that are in `known` are left out. A host that was not drawn
/// has a coverage only.
///
/// # Errors
/// If the Parquet library refuses a column, which no input should cause.
pub fn files(pushes: &[Push], known: &WrittenRows) -> Result<Files, EncodeError> {
    let drawn: Vec<&Push> = pushes.iter().filter(|push| push.draw.is_drawn).collect();
    let mut dictionary = Dictionary::new(known);
    let ids: Vec<Vec<i64>> = drawn.iter().map(|push| dictionary.add(push)).collect();
    let (mut files, new) = match drawn.is_empty() {
        true => Default::default(),
        false => dictionary.files()?,
    };
    for (push, ids) in drawn.iter().zip(&ids) {
        let table = match push.kind {
            Kind::Alloc => Table::Alloc,
            Kind::Live | Kind::Peak | Kind::Mapped => Table::Live,
        };
        files.push(File { table, bytes: facts(push, ids, table)? });
    }
    files.push(File { table: Table::Coverage, bytes: facts::coverage(pushes)? });
    Ok(Files { files, new })
}

#[cfg(test)]
mod tests;
