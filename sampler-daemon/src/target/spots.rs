//! Where in the memory of a process its probes are.

use super::allocator::{Allocator, Function};
use super::mappings::{self, Backing, Mapping};
use sampler_common::wire::Role;

/// Addresses at which functions of these allocators are probed in a process that maps them; none of one that cannot be read any more.
pub fn of_process(pid: u32, allocators: &[Allocator]) -> Vec<u64> {
    let mapped = mappings::executable(pid).unwrap_or_default();
    allocators.iter().flat_map(|of| of_allocator(of, &mapped)).collect()
}

/// Of one allocator, those of malloc and free first.
fn of_allocator(allocator: &Allocator, mapped: &[Mapping]) -> Vec<u64> {
    let is_probed = |of: &&Function| !of.role.is_mapping();
    let mut functions: Vec<&Function> = allocator.functions.iter().filter(is_probed).collect();
    functions.sort_by_key(|function| {
        (!matches!(function.role, Role::Malloc | Role::Free), function.role)
    });
    let is_its = |of: &&Mapping| match &of.backing {
        Backing::File(path) => of.inode == allocator.identity.1 || *path == allocator.path,
        _ => false,
    };
    let of_file: Vec<&Mapping> = mapped.iter().filter(is_its).collect();
    let addresses = functions.into_iter().flat_map(|function| {
        let offset = function.offset + u64::from(function.placement.displacement);
        let has =
            move |of: &&&Mapping| (of.offset..of.offset + (of.end - of.start)).contains(&offset);
        of_file.iter().filter(has).map(move |of| of.start + (offset - of.offset))
    });
    addresses.collect()
}
