//! Where in the memory of a process its probes are.

use super::allocator::{Allocator, Function};
use super::mappings::{self, Backing, Mapping};
use sampler_common::wire::Role;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

/// An instruction of a file that is probed to count how often it runs.
#[derive(Clone, Debug)]
pub struct Spot {
    /// How its function is called where it is spoken of.
    pub name: String,
    /// The very file that is mapped.
    pub file: Arc<File>,
    /// Path in the process.
    pub path: String,
    /// Offset of the instruction.
    pub offset: u64,
    /// Whether an allocator's function is probed there as well.
    pub is_allocating: bool,
    pub(super) inode: u64,
}

impl Spot {
    /// At an offset of a file, named by that; `None` if the file cannot be looked at.
    pub fn new(file: Arc<File>, path: &str, offset: u64) -> Option<Spot> {
        let inode = file.metadata().ok()?.ino();
        let name = format!("{}+{offset:#x}", path.rsplit('/').next().unwrap_or_default());
        Some(Spot { name, file, path: path.to_owned(), offset, is_allocating: false, inode })
    }

    /// At an offset of the tests' own program.
    #[cfg(test)]
    pub fn in_this_program(offset: u64) -> Spot {
        const OWN: &str = "/proc/self/exe";
        Spot::new(Arc::new(File::open(OWN).unwrap()), OWN, offset).unwrap()
    }

    /// Where the less usual functions of an allocator are probed, as far as that costs little.
    pub fn of_allocator(allocator: &Allocator) -> impl Iterator<Item = Spot> {
        let is_one = |of: &&Function| {
            let role = of.role;
            let is_usual = matches!(role, Role::Malloc | Role::Free | Role::New);
            of.placement.emulated && !is_usual && !role.is_mapping()
        };
        allocator.functions.iter().filter(is_one).filter_map(|of| {
            let spot = Spot::new(Arc::clone(&allocator.file), &allocator.path, of.probed())?;
            let name = of.symbols.first().cloned().unwrap_or_default();
            Some(Spot { name, is_allocating: true, ..spot })
        })
    }

    /// Whether it is in the same file.
    pub fn is_in_same_file(&self, other: &Spot) -> bool {
        self.inode == other.inode && self.path == other.path
    }

    /// Whether it is the same instruction.
    pub fn is_same(&self, other: &Spot) -> bool {
        self.is_in_same_file(other) && self.offset == other.offset
    }

    /// Whether a function of these allocators is probed there.
    pub fn is_of(&self, allocators: &[Allocator]) -> bool {
        let has = |of: &Allocator| of.identity.1 == self.inode || of.path == self.path;
        let functions = allocators.iter().filter(|of| has(of)).flat_map(|of| &of.functions);
        functions.map(Function::probed).any(|offset| offset == self.offset)
    }
}

/// Addresses at which functions of these allocators are probed in a process that maps them, and these other instructions; none of one that cannot be read any more.
pub fn of_process(pid: u32, allocators: &[Allocator], others: &[Spot]) -> Vec<u64> {
    let mapped = mappings::executable(pid).unwrap_or_default();
    let of_other =
        |of: &Spot| addresses(&of_file(&mapped, of.inode, &of.path), of.offset).collect::<Vec<_>>();
    let of_others = others.iter().flat_map(of_other);
    of_others.chain(allocators.iter().flat_map(|of| of_allocator(of, &mapped))).collect()
}

/// Those whose file the process maps there, still.
pub fn mapped_in(pid: u32, spots: Vec<Spot>) -> Vec<Spot> {
    let mapped = mappings::executable(pid).unwrap_or_default();
    let is_mapped =
        |of: &Spot| addresses(&of_file(&mapped, of.inode, &of.path), of.offset).next().is_some();
    spots.into_iter().filter(is_mapped).collect()
}

/// What is mapped of a file.
fn of_file<'m>(mapped: &'m [Mapping], inode: u64, path: &str) -> Vec<&'m Mapping> {
    let is_its = |of: &&Mapping| match &of.backing {
        Backing::File(its) => of.inode == inode || its == path,
        _ => false,
    };
    mapped.iter().filter(is_its).collect()
}

/// Where a byte of a file is that is mapped so.
fn addresses<'m>(of_file: &'m [&'m Mapping], offset: u64) -> impl Iterator<Item = u64> + 'm {
    let has = move |of: &&&Mapping| (of.offset..of.offset + (of.end - of.start)).contains(&offset);
    of_file.iter().filter(has).map(move |of| of.start + (offset - of.offset))
}

/// Of one allocator, those of malloc and free first.
fn of_allocator(allocator: &Allocator, mapped: &[Mapping]) -> Vec<u64> {
    let is_probed = |of: &&Function| !of.role.is_mapping();
    let mut functions: Vec<&Function> = allocator.functions.iter().filter(is_probed).collect();
    functions.sort_by_key(|function| {
        (!matches!(function.role, Role::Malloc | Role::Free), function.role)
    });
    let of_file = of_file(mapped, allocator.identity.1, &allocator.path);
    functions
        .into_iter()
        .flat_map(|of| addresses(&of_file, of.probed()).collect::<Vec<_>>())
        .collect()
}
