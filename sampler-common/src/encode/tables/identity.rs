//! Ids of frames and stacks, and the dictionary rows that were written before.

use crate::encode::push::{CodeFile, Frame};
use crate::profile::Line;
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::collections::HashSet;

/// Rows of dictionaries that are written, by a hash of each row.
#[derive(Clone, Debug, Default)]
pub struct WrittenRows(HashSet<i64>);

impl WrittenRows {
    /// Adds rows.
    pub fn add(&mut self, rows: &WrittenRows) {
        self.0.extend(&rows.0);
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, row: i64) -> bool {
        self.0.contains(&row)
    }

    /// Adds a row. Returns whether it is new.
    pub(super) fn insert(&mut self, row: i64) -> bool {
        self.0.insert(row)
    }
}

/// A hash over a list of byte strings. The same bytes, divided in another way, have another hash.
pub(super) fn hashed<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> i64 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let hash = hash.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    i64::from_le_bytes(first)
}

/// The id of a file: its GNU build id, or its `htlhash` if it has none.
pub(super) fn file_id(file: &CodeFile) -> &str {
    if file.build_id.is_empty() { &file.htlhash } else { &file.build_id }
}

/// The id of a frame. It is made from the place in the file, or from the name for code without a
/// file.
pub(super) fn frame_id(frame: &Frame, files: &[CodeFile]) -> i64 {
    match frame.code {
        Some((file, address)) => {
            let file = file_id(&files[file as usize]).as_bytes();
            hashed([b"code".as_slice(), file, &address.to_le_bytes()])
        }
        None => lines_hash(b"name".as_slice(), &frame.lines),
    }
}

/// A hash over names.
pub(super) fn lines_hash(of: &[u8], lines: &[Line]) -> i64 {
    let lines: Vec<(Cow<'_, str>, &str, [u8; 4])> = lines
        .iter()
        .map(|line| (function(line), line.file.as_str(), line.line.to_le_bytes()))
        .collect();
    let each = lines
        .iter()
        .flat_map(|(function, file, line)| [function.as_bytes(), file.as_bytes(), line.as_slice()]);
    hashed(std::iter::once(of).chain(each))
}

/// The name of a function. Code without a file and without a name is shown with its pid and
/// address, which are different in another process. So `[jit 4121]+0x7f001234` becomes `[jit]`.
pub(super) fn function(line: &Line) -> Cow<'_, str> {
    let name = line.function.as_str();
    let place = name.strip_prefix('[').and_then(|rest| rest.split_once("]+0x"));
    match place {
        Some((of, _)) => format!("[{}]", of.split(' ').next().unwrap_or(of)).into(),
        None => name.into(),
    }
}

/// How good the names of a frame are: 0 for a place without a name, 1 for a name, and 1 more for
/// each name with a source line.
pub(super) fn quality(lines: &[Line]) -> i32 {
    let unnamed = |line: &Line| line.function.contains("+0x") && line.file.is_empty();
    if lines.iter().all(unnamed) {
        return 0;
    }
    1 + lines.iter().filter(|line| !line.file.is_empty()).count() as i32
}
