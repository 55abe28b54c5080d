//! Addresses of the probes in the memory of a process.

use crate::inspect::allocator::{Allocator, Function};
use crate::inspect::mappings::{self, Backing, Mapping};
use sampler_common::wire::Role;

/// Addresses at which allocating functions of these allocators are probed in a process; none for a
/// process that cannot be read any more. Functions that are called most often come first.
pub fn of_process(pid: u32, allocators: &[Allocator]) -> Vec<u64> {
    let mapped = mappings::executable(pid).unwrap_or_default();
    allocators.iter().flat_map(|of| of_allocator(of, &mapped)).collect()
}

fn of_allocator(allocator: &Allocator, mapped: &[Mapping]) -> Vec<u64> {
    let is_probed = |of: &&Function| !of.role.is_mapping() && of.role != Role::Free;
    let mut functions: Vec<&Function> = allocator.functions.iter().filter(is_probed).collect();
    functions.sort_by_key(|function| (function.role != Role::Malloc, function.role));
    let is_its = |of: &&Mapping| match &of.backing {
        Backing::File(path) => of.inode == allocator.identity.1 || *path == allocator.path,
        _ => false,
    };
    let of_file: Vec<&Mapping> = mapped.iter().filter(is_its).collect();
    let offsets = functions.into_iter().map(Function::probed);
    offsets.flat_map(|offset| addresses(&of_file, offset)).collect()
}

/// The addresses at which a byte of a file is mapped.
fn addresses(of_file: &[&Mapping], offset: u64) -> Vec<u64> {
    let has = |of: &&&Mapping| (of.offset..of.offset + (of.end - of.start)).contains(&offset);
    of_file.iter().filter(has).map(|of| of.start + (offset - of.offset)).collect()
}
