//! `--allocator-spec FILE`: allocators that only the user knows, like the pools of a program.
//!
//! A line is `library PATTERN`, or `ROLE SYMBOL [ARGUMENT=NUMBER …]` for a function of that
//! library. `docs/allocator-spec.md` describes the format.

mod glob;

use super::family::{Entry, entry};
use crate::regular_file::open_regular;
use sampler_common::wire::{MAX_ARGUMENTS, NONE, Role, Shape};
use std::io::Read as _;
use std::path::Path;

/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Most functions in a file. Each function is a probe in every process that has the library.
const MAX_FUNCTIONS: usize = 256;

/// The allocators that the user describes.
#[derive(Debug, Default)]
pub struct Spec {
    libraries: Vec<Library>,
}

/// The functions of the files that a pattern matches.
#[derive(Debug)]
struct Library {
    pattern: String,
    entries: Vec<Entry>,
}

/// A specification without allocators.
pub static EMPTY: Spec = Spec { libraries: Vec::new() };

impl Spec {
    /// Reads a file. The specification stays in memory until the program ends.
    ///
    /// # Errors
    /// One line with the file, the line number and what is wrong.
    pub fn read(path: &Path) -> Result<&'static Spec, String> {
        let named = |error: String| format!("--allocator-spec {}{error}", path.display());
        let mut text = String::new();
        let file = open_regular(path).map_err(|error| named(format!(": {error}")))?;
        let mut file = file.take(MAX_BYTES);
        file.read_to_string(&mut text).map_err(|error| named(format!(": {error}")))?;
        if text.len() as u64 >= MAX_BYTES {
            return Err(named(format!(": larger than {MAX_BYTES} bytes")));
        }
        let spec =
            Spec::parse(&text).map_err(|(line, error)| named(format!(", line {line}: {error}")))?;
        Ok(Box::leak(Box::new(spec)))
    }

    /// Parses the text of a specification. The error is the number of the line, from 1, and what is
    /// wrong with the line.
    pub(in crate::inspect) fn parse(text: &str) -> Result<Spec, (usize, String)> {
        let mut spec = Spec::default();
        let mut count = 0;
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            let result = match words.as_slice() {
                [] => Ok(()),
                ["library", rest @ ..] => spec.library(rest),
                [role, rest @ ..] => spec.function(role, rest).map(|()| count += 1),
            };
            result.map_err(|error| (number, error))?;
            if count > MAX_FUNCTIONS {
                return Err((number, format!("more than {MAX_FUNCTIONS} functions")));
            }
        }
        Ok(spec)
    }

    fn library(&mut self, words: &[&str]) -> Result<(), String> {
        let &[pattern] = words else {
            return Err("one pattern must follow library (for example libpool.so*)".into());
        };
        self.libraries.push(Library { pattern: pattern.to_owned(), entries: Vec::new() });
        Ok(())
    }

    fn function(&mut self, role: &str, words: &[&str]) -> Result<(), String> {
        let role = RoleWord::of(role)?;
        let Some((symbol, arguments)) = words.split_first() else {
            return Err(format!("the name of a function must follow {}", role.name));
        };
        let Some(library) = self.libraries.last_mut() else {
            return Err("a line `library PATTERN` must come first".into());
        };
        if library.entries.iter().any(|entry| entry.symbol == *symbol) {
            return Err(format!("{symbol} is there already"));
        }
        let shape = role.shape(arguments)?;
        // The name lives as long as the specification.
        let symbol: &'static str = Box::leak((*symbol).to_owned().into_boxed_str());
        library.entries.push(entry(symbol, role.role, shape));
        Ok(())
    }

    /// The described functions of the file at `path` with this soname.
    pub(in crate::inspect) fn entries(&self, path: &str, soname: &str) -> Vec<Entry> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_meant = |library: &&Library| {
            let texts = [path, name, soname];
            texts.iter().any(|text| !text.is_empty() && glob::matches(&library.pattern, text))
        };
        self.libraries.iter().filter(is_meant).flat_map(|of| of.entries.clone()).collect()
    }
}

/// A word for a role, and the default places of its arguments: size, count and pointer, with the
/// name of the pointer.
struct RoleWord {
    name: &'static str,
    role: Role,
    size: u8,
    count: u8,
    pointer: u8,
    pointer_name: &'static str,
}

const fn word(
    name: &'static str,
    role: Role,
    [size, count, pointer]: [u8; 3],
    pointer_name: &'static str,
) -> RoleWord {
    RoleWord { name, role, size, count, pointer, pointer_name }
}

/// The words. The defaults are the arguments of the C functions of these names.
const WORDS: [RoleWord; 7] = [
    word("malloc", Role::Malloc, [0, NONE, NONE], ""),
    word("calloc", Role::Calloc, [1, 0, NONE], ""),
    word("realloc", Role::Realloc, [1, NONE, 0], "old"),
    word("aligned_alloc", Role::AlignedAlloc, [1, NONE, NONE], ""),
    word("posix_memalign", Role::PosixMemalign, [2, NONE, 0], "out"),
    word("new", Role::New, [0, NONE, NONE], ""),
    word("free", Role::Free, [NONE, NONE, 0], "pointer"),
];

impl RoleWord {
    fn of(name: &str) -> Result<&'static RoleWord, String> {
        let known = WORDS.iter().find(|word| word.name == name);
        known.ok_or_else(|| {
            let names: Vec<&str> = WORDS.iter().map(|word| word.name).collect();
            format!("{name} is no role (use {}, or library)", names.join(", "))
        })
    }

    fn shape(&self, arguments: &[&str]) -> Result<Shape, String> {
        let (mut size, mut count, mut pointer) = (self.size, self.count, self.pointer);
        for argument in arguments {
            let (key, value) = argument
                .split_once('=')
                .ok_or_else(|| format!("{argument} is not ARGUMENT=NUMBER (for example size=2)"))?;
            let number = match value.parse::<u8>() {
                Ok(number) if (1..=MAX_ARGUMENTS).contains(&number) => number - 1,
                _ => return Err(format!("{argument}: arguments are 1 to {MAX_ARGUMENTS}")),
            };
            match key {
                "size" if self.size != NONE => size = number,
                "count" if self.size != NONE => count = number,
                _ if key == self.pointer_name => pointer = number,
                _ => return Err(format!("{} has no argument {key}", self.name)),
            }
        }
        Ok(Shape::new(size, count, pointer))
    }
}

#[cfg(test)]
mod tests;
