//! The distinct functions of a profile.
//!
//! Functions of the same name in different files (or modules, if files are unknown) stay apart.
//! Places in one function do not.

use crate::profile::{Line, Profile};
use std::collections::HashMap;

/// A function.
#[derive(Clone, Copy)]
pub(super) struct Function<'a> {
    /// Name of the function, as the profile has it.
    pub(super) name: &'a str,
    /// Source file of the function, empty if unknown.
    pub(super) file: &'a str,
    /// Line of the function's frames; 0 if unknown, or if frames have several lines.
    pub(super) line: u32,
    /// Path of the first mapped file in which the function was found.
    pub(super) module: &'a str,
}

/// The functions in the order of their first location, and for each location the indices of its
/// lines' functions, outermost first.
pub(super) fn functions(profile: &Profile) -> (Vec<Function<'_>>, Vec<Vec<usize>>) {
    let mut functions: Vec<Function> = Vec::new();
    let mut indices = HashMap::new();
    let each = profile.locations.iter().map(|location| {
        let module = profile.mappings[location.mapping as usize].path.as_str();
        let ids = location.lines.iter().rev().map(|line| {
            let Line { function: name, file, line } = line;
            let place = if file.is_empty() { module } else { file };
            let id = *indices.entry((name.as_str(), place)).or_insert_with(|| {
                functions.push(Function { name, file, line: *line, module });
                functions.len() - 1
            });
            if functions[id].line != *line {
                functions[id].line = 0;
            }
            id
        });
        ids.collect()
    });
    let at = each.collect();
    (functions, at)
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use crate::profile::Kind;

    #[test]
    fn every_function_has_one_entry() {
        let profile = fixture::profile(Kind::Alloc);
        let (functions, at) = functions(&profile);
        let parse = functions.iter().filter(|of| of.name == "parse_value(Parser*)");
        assert_eq!(parse.map(|of| of.line).collect::<Vec<_>>(), [0], "it is in lines 61 and 73");
        assert_eq!(at[5], at[6]);
        let inlined: Vec<&str> = at[2].iter().map(|id| functions[*id].name).collect();
        assert!(inlined[0].contains("_M_insert_unique_node") && inlined[1].contains("allocate"));
        let main = functions.iter().find(|of| of.name == "main").unwrap();
        assert_eq!((main.file, main.line, main.module), ("src/main.cpp", 31, "/usr/bin/kvstore"));
    }
}
