//! The string and function tables, each entry once.

use super::message;
use crate::profile::Line;
use std::collections::HashMap;

pub(super) struct Tables {
    pub(super) strings: Vec<String>,
    pub(super) functions: Vec<message::Function>,
    string_indices: HashMap<String, i64>,
    /// Ids by the string indices of name and file.
    function_ids: HashMap<(i64, i64), u64>,
}

impl Default for Tables {
    fn default() -> Self {
        let mut tables = Tables {
            strings: Vec::new(),
            functions: Vec::new(),
            string_indices: HashMap::new(),
            function_ids: HashMap::new(),
        };
        // The format requires the empty string first.
        tables.string("");
        tables
    }
}

impl Tables {
    /// Index of a string.
    pub(super) fn string(&mut self, text: &str) -> i64 {
        if let Some(index) = self.string_indices.get(text) {
            return *index;
        }
        let index = self.strings.len() as i64;
        self.strings.push(text.to_owned());
        self.string_indices.insert(text.to_owned(), index);
        index
    }

    /// A line with its function.
    pub(super) fn line(&mut self, line: &Line) -> message::Line {
        let (name, filename) = (self.string(&line.function), self.string(&line.file));
        let function_id = *self.function_ids.entry((name, filename)).or_insert_with(|| {
            let id = self.functions.len() as u64 + 1;
            self.functions.push(message::Function { id, name, system_name: name, filename });
            id
        });
        message::Line { function_id, line: i64::from(line.line) }
    }
}
