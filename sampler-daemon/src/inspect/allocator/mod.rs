//! An allocator: a file, and the functions to probe in it.

pub(super) mod contents;
mod definitions;
pub(super) mod family;
pub mod spec;
pub mod text;
pub mod usable;

use super::placement::Placement;
use sampler_common::wire::{Role, Shape};
use std::fs::File;
use std::sync::Arc;

/// A function to probe. Aliases at one address are one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// All names of the function, the most usual first.
    pub symbols: Vec<String>,
    /// The function's role.
    pub role: Role,
    /// Where the function's arguments are.
    pub shape: Shape,
    /// File offset of the function's first instruction.
    pub offset: u64,
    /// Where the function's probe goes.
    pub placement: Placement,
}

impl Function {
    /// File offset of the function's probe.
    pub fn probed(&self) -> u64 {
        self.offset + u64::from(self.placement.displacement)
    }
}

/// A file with one allocator or several.
#[derive(Clone, Debug)]
pub struct Allocator {
    /// Name: `glibc`, `jemalloc and glibc`.
    pub name: String,
    /// Path in the process.
    pub path: String,
    /// GNU build id, lower-case hex, empty if the file has none.
    pub build_id: String,
    /// Device and inode: the identity of the file.
    pub identity: (u64, u64),
    /// The very file that is mapped.
    pub file: Arc<File>,
    /// The functions to probe.
    pub functions: Vec<Function>,
}

impl Allocator {
    /// Name and path.
    pub fn title(&self) -> String {
        format!("{} ({})", self.name, self.path)
    }

    /// Whether programs call the allocator by `malloc`, and not only by names of its own.
    pub(super) fn is_malloc(&self) -> bool {
        self.functions.iter().any(|of| of.symbols.iter().any(|name| name == "malloc"))
    }

    /// Whether the injected sampler samples the allocator, if it has hooked the functions of these
    /// names. It hooks all functions of an allocator or none, except those that may throw.
    pub(super) fn is_hooked(&self, names: &[&str]) -> bool {
        let is_named = |name: &String| names.contains(&name.as_str());
        self.functions.iter().any(|of| of.symbols.iter().any(is_named))
            && self.functions.iter().all(|of| of.role != Role::New)
    }

    /// The name of the function that is probed at this offset, if this path is the allocator's.
    pub fn probed_at(&self, path: &str, offset: u64) -> Option<&String> {
        let mut functions = self.functions.iter().filter(|_| self.path == path);
        functions.find(|of| of.probed() == offset)?.symbols.first()
    }
}

#[cfg(test)]
impl Allocator {
    /// An allocator without functions.
    pub fn none() -> Allocator {
        Allocator {
            name: "none".to_owned(),
            path: "/dev/null".to_owned(),
            build_id: String::new(),
            identity: (0, 0),
            file: Arc::new(File::open("/dev/null").unwrap()),
            functions: Vec::new(),
        }
    }
}
