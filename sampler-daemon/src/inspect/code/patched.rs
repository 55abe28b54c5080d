//! Functions that are not probed because their code in memory is not their file's, and what is
//! unknown without them.

use crate::inspect::allocator::{Allocator, Function};
use sampler_common::note::BlindSpot;
use sampler_common::wire::Role;

/// Why the functions are not probed.
const DIFFERS: &str =
    "the code in memory differs from the file (patched by the program or another tool): not probed";
/// Reported of a process in which some ends of blocks are not seen.
const HELD_UNKNOWN: &str = "; what is held is not known, and shown as 0";
/// Reported of a process in which some ends of mappings are not seen.
const MAPPED_UNKNOWN: &str =
    "; nor is any other function that maps: memory of kind mapped is not known, and shown as 0";

/// Functions of a file whose code differs in the memory of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patched {
    /// The process.
    pub pid: u32,
    /// Device and inode of the file.
    pub identity: (u64, u64),
    /// The file's path in the process.
    pub path: String,
    /// The functions, at least one.
    pub functions: Vec<Function>,
}

impl Patched {
    /// The functions of an allocator that are patched in a process; `None` if none is.
    pub fn find(
        pid: u32,
        allocator: &Allocator,
        is_patched: impl Fn(&Function) -> bool,
    ) -> Option<Patched> {
        let patched = allocator.functions.iter().filter(|of| is_patched(of));
        let functions: Vec<Function> = patched.cloned().collect();
        let Allocator { identity, path, .. } = allocator;
        let some = !functions.is_empty();
        some.then(|| Patched { pid, identity: *identity, path: path.clone(), functions })
    }

    /// Adds these functions to `all`, which has one item for each process and file.
    pub fn add_to(self, all: &mut Vec<Patched>) {
        let is_its = |of: &&mut Patched| of.pid == self.pid && of.identity == self.identity;
        let Some(known) = all.iter_mut().find(is_its) else { return all.push(self) };
        known.functions.extend(self.functions);
        known.functions.sort_by_key(|of| of.offset);
        known.functions.dedup_by_key(|of| of.offset);
    }

    /// Removes the patched functions from an allocator, and with them the functions that would give
    /// wrong numbers without them.
    pub fn leave_out(&self, allocator: &mut Allocator) {
        let is_patched = |of: &Function| self.functions.iter().any(|it| it.offset == of.offset);
        let are_ends_unseen = self.leaves_mappings();
        let functions = &mut allocator.functions;
        functions.retain(|of| !(is_patched(of) || are_ends_unseen && of.role.is_mapping()));
        // A file that samples itself needs its probes for both allocations and frees.
        if self.functions.iter().any(|of| matches!(of.role, Role::OtelAlloc | Role::OtelFree)) {
            functions.clear();
        }
    }

    /// Whether blocks end unseen without these functions, so that what is held cannot be known.
    pub fn leaves_blocks(&self) -> bool {
        self.has(&[Role::Free, Role::Realloc])
    }

    /// Whether allocations are not seen without these functions.
    pub fn leaves_allocations(&self) -> bool {
        self.functions.iter().any(|of| of.role != Role::Free && !of.role.is_mapping())
    }

    /// Whether mappings end unseen without these functions.
    fn leaves_mappings(&self) -> bool {
        self.has(&[Role::Unmap, Role::Remap])
    }

    fn has(&self, roles: &[Role]) -> bool {
        self.functions.iter().any(|of| roles.contains(&of.role))
    }

    /// The line about these functions in process `pid`, which may merely share a link with the
    /// patched process.
    pub fn blind_spot(&self, pid: u32) -> BlindSpot {
        let names = self.functions.iter().filter_map(|of| of.symbols.first());
        let names: Vec<&str> = names.map(String::as_str).collect();
        let whose = match self.pid == pid {
            true => String::new(),
            false => format!("in pid {}, which shares the probes, ", self.pid),
        };
        let held = if self.leaves_blocks() { HELD_UNKNOWN } else { "" };
        let mapped = if self.leaves_mappings() { MAPPED_UNKNOWN } else { "" };
        let why = format!("{}: {whose}{DIFFERS}{held}{mapped}", names.join(", "));
        BlindSpot::at(&self.path, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::placement::Placement;
    use sampler_common::wire::Shape;

    fn allocator(roles: &[(&str, Role)]) -> Allocator {
        let function = |(number, (name, role)): (usize, &(&str, Role))| Function {
            symbols: vec![(*name).to_owned()],
            role: *role,
            shape: Shape::DEFAULT,
            offset: 64 * number as u64,
            placement: Placement {
                displacement: 0,
                instruction: String::new(),
                emulated: true,
                reason: String::new(),
            },
        };
        let functions = roles.iter().enumerate().map(function).collect();
        Allocator { functions, path: "/lib/x.so".to_owned(), ..Allocator::none() }
    }

    fn left(allocator: &Allocator, patched: &str) -> (Vec<String>, Patched) {
        let is_patched = |of: &Function| of.symbols[0] == patched;
        let patched = Patched::find(7, allocator, is_patched).unwrap();
        let mut rest = allocator.clone();
        patched.leave_out(&mut rest);
        (rest.functions.into_iter().map(|of| of.symbols[0].clone()).collect(), patched)
    }

    #[test]
    fn functions_independent_of_the_patch_stay_probed() {
        let glibc = allocator(&[
            ("malloc", Role::Malloc),
            ("free", Role::Free),
            ("mmap", Role::Map),
            ("munmap", Role::Unmap),
        ]);
        let (rest, patched) = left(&glibc, "malloc");
        assert_eq!(rest, ["free", "mmap", "munmap"]);
        assert!(!patched.leaves_blocks() && patched.leaves_allocations());
        assert_eq!(
            patched.blind_spot(7).to_string(),
            "/lib/x.so: malloc: the code in memory differs from the file \
             (patched by the program or another tool): not probed"
        );
        let (rest, patched) = left(&glibc, "free");
        assert_eq!(rest, ["malloc", "mmap", "munmap"]);
        assert!(!patched.leaves_allocations());
        assert!(patched.leaves_blocks() && patched.blind_spot(7).why.ends_with("shown as 0"));
        assert!(
            patched
                .blind_spot(8)
                .to_string()
                .starts_with("/lib/x.so: free: in pid 7, which shares")
        );
        assert_eq!(left(&glibc, "mmap").0, ["malloc", "free", "munmap"]);
        let (rest, patched) = left(&glibc, "munmap");
        assert_eq!(rest, ["malloc", "free"]);
        assert!(patched.blind_spot(7).why.contains("kind mapped is not known"));
        assert_eq!(Patched::find(7, &glibc, |_| false), None);
    }

    #[test]
    fn later_patched_functions_join_the_reason() {
        let glibc = allocator(&[("malloc", Role::Malloc), ("free", Role::Free)]);
        let mut all = Vec::new();
        for name in ["free", "malloc", "free"] {
            left(&glibc, name).1.add_to(&mut all);
        }
        assert_eq!(all.len(), 1);
        assert!(
            all[0].blind_spot(7).to_string().starts_with("/lib/x.so: malloc, free: the code"),
            "{all:?}"
        );
    }

    #[test]
    fn a_patched_self_sampling_file_is_left_whole() {
        let sampler = allocator(&[("alloc", Role::OtelAlloc), ("free", Role::OtelFree)]);
        assert!(left(&sampler, "alloc").0.is_empty());
    }
}
