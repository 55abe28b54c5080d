//! Links that processes share: one set for each file with an allocator.

use super::FileId;
use super::closing::ClosingLinks;
use super::points::{Owner, attach, attach_sampler};
use crate::bpf::{Kernel, Link, Settings, pages};
use crate::inspect::allocator::Allocator;
use crate::inspect::code::in_memory;
use crate::inspect::code::patched::Patched;
use crate::inspect::discovery::SelfSampler;
use anyhow::ensure;
use rustc_hash::{FxHashMap, FxHashSet};

/// Maximum number of further identities of a file that are remembered. Beyond that, each lookup of
/// a further identity compares the file with all others.
const MAX_ALSO: usize = 256;
/// Maximum number of files with links. Each link costs kernel memory and an update of every process
/// that maps the file.
pub const MAX_FILES: usize = 1024;

/// The links of one file.
struct Shared {
    links: Vec<Link>,
    /// The allocator, without the functions that are not probed.
    allocator: Allocator,
    /// Other identities of the file: overlay mounts show the file under their own devices.
    also: Vec<FileId>,
    /// Number of surveys in succession that found no process that maps the file.
    unused: u32,
    /// Functions that are not probed, and why.
    left_out: Vec<Patched>,
    /// Whether the file was requested before a process mapped it, and no process has mapped it yet.
    is_awaited: bool,
}

/// The shared links, by device and inode.
#[derive(Default)]
pub struct SharedLinks {
    files: FxHashMap<FileId, Shared>,
}

impl SharedLinks {
    /// Attaches to an allocator, unless the file has its links already. Every process that maps the
    /// file pays for the trap from now on. The eBPF program decides whose calls count.
    ///
    /// Links in `closing` are waited for: a breakpoint of theirs could be taken for a patch.
    pub(super) fn attach(
        &mut self,
        kernel: &mut Kernel,
        allocator: &Allocator,
        settings: &Settings,
        closing: &mut ClosingLinks,
    ) -> anyhow::Result<()> {
        if self.has(allocator) {
            return Ok(());
        }
        ensure!(self.files.len() < MAX_FILES, "already probing {MAX_FILES} files, the most");
        closing.wait();
        let (allocator, left_out) = intact(allocator);
        let links = attach(kernel, &allocator, Owner::All, settings)?;
        self.enter(allocator, links, left_out);
        Ok(())
    }

    /// Attaches to a file that samples by itself, as [`SharedLinks::attach`] does to an allocator.
    pub(super) fn attach_sampler(
        &mut self,
        kernel: &mut Kernel,
        sampler: &SelfSampler,
        settings: &Settings,
        closing: &mut ClosingLinks,
    ) -> anyhow::Result<()> {
        let allocator = &sampler.allocator;
        if self.has(allocator) {
            return Ok(());
        }
        closing.wait();
        let (intact, left_out) = intact(allocator);
        let links = match left_out.is_empty() {
            true => attach_sampler(kernel, sampler, Owner::All, settings)?,
            false => Vec::new(),
        };
        self.enter(intact, links, left_out);
        Ok(())
    }

    /// Records the links of a file.
    fn enter(&mut self, allocator: Allocator, links: Vec<Link>, left_out: Vec<Patched>) {
        tracing::info!(path = allocator.path, "probing {} for all", allocator.name);
        let identity = allocator.identity;
        let shared =
            Shared { links, allocator, also: Vec::new(), unused: 0, left_out, is_awaited: false };
        self.files.insert(identity, shared);
    }

    /// Removes functions that are patched in a process from the links of their file: `reattach`
    /// replaces the file's links. Returns whether any of the functions was probed.
    ///
    /// If `reattach` fails, the file has no links and leaves the table, so that it can be attached
    /// to again.
    pub(super) fn leave_out(
        &mut self,
        patched: &Patched,
        reattach: impl FnOnce(&Allocator, Vec<Link>) -> anyhow::Result<Vec<Link>>,
    ) -> anyhow::Result<bool> {
        let Some(file) = self.file_mut(patched.identity) else { return Ok(false) };
        let probed = file.allocator.functions.len();
        patched.leave_out(&mut file.allocator);
        if file.allocator.functions.len() == probed {
            return Ok(false);
        }
        tracing::warn!("no longer probed in any process: {}", patched.blind_spot(patched.pid));
        patched.clone().add_to(&mut file.left_out);
        let old = std::mem::take(&mut file.links);
        match reattach(&file.allocator, old) {
            Ok(links) => file.links = links,
            Err(error) => {
                let identity = file.allocator.identity;
                self.files.remove(&identity);
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Returns the functions of a file that are probed in no process because they are patched in
    /// one process.
    pub fn left_out(&self, allocator: &Allocator) -> &[Patched] {
        let is_its = |it: &&Shared| {
            let identity = allocator.identity;
            it.allocator.identity == identity || it.also.contains(&identity)
        };
        self.files.values().find(is_its).map_or(&[], |file| &file.left_out)
    }

    /// Whether an allocating function is probed in no process because it is patched in one process.
    pub fn leaves_allocations(&self) -> bool {
        let left_out = self.files.values().flat_map(|file| &file.left_out);
        left_out.into_iter().any(Patched::leaves_allocations)
    }

    fn file_mut(&mut self, identity: FileId) -> Option<&mut Shared> {
        if self.files.contains_key(&identity) {
            return self.files.get_mut(&identity);
        }
        self.files.values_mut().find(|file| file.also.contains(&identity))
    }

    /// Whether a file has its links, possibly under another identity. With a second set of links
    /// each call would count twice.
    fn has(&mut self, allocator: &Allocator) -> bool {
        if self.mapped(allocator.identity) {
            return true;
        }
        let mut alike =
            self.files.values_mut().filter(|it| it.allocator.build_id == allocator.build_id);
        let twin = alike.find(|it| is_same(&it.allocator, allocator));
        if let Some(twin) = twin {
            if twin.also.len() < MAX_ALSO {
                twin.also.push(allocator.identity);
            }
            (twin.unused, twin.is_awaited) = (0, false);
            return true;
        }
        false
    }

    /// Returns the allocators that have links.
    pub fn allocators(&self) -> impl Iterator<Item = &Allocator> {
        self.files.values().map(|shared| &shared.allocator)
    }

    /// Records that a process has mapped a file. Returns whether the file has links.
    pub fn mapped(&mut self, identity: FileId) -> bool {
        self.file_mut(identity).map(|file| (file.unused, file.is_awaited) = (0, false)).is_some()
    }

    /// Keeps the links of a file that no process maps, until a process has mapped the file.
    pub fn await_mapping(&mut self, identity: FileId) {
        self.files.entry(identity).and_modify(|file| file.is_awaited = true);
    }

    /// Records a survey; `mapped` are the mapped files. Returns the files that were not mapped at
    /// the last two surveys.
    pub fn unused(&mut self, mapped: &FxHashSet<FileId>) -> Vec<FileId> {
        for (identity, file) in &mut self.files {
            // The device and inode of a mount that is gone may be reused.
            file.also.retain(|it| mapped.contains(it));
            let is_mapped = mapped.contains(identity) || !file.also.is_empty();
            file.is_awaited &= !is_mapped;
            file.unused = if is_mapped || file.is_awaited { 0 } else { file.unused + 1 };
        }
        let unused = self.files.iter().filter(|(_, file)| file.unused >= 2);
        unused.flat_map(|(identity, file)| file.also.iter().chain([identity])).copied().collect()
    }

    /// Whether the last survey found a file with links that no process maps.
    pub fn has_unmapped(&self) -> bool {
        self.files.values().any(|file| file.unused > 0)
    }

    /// Returns the files that are not in `kept` under any of their identities.
    pub(super) fn others_than(&self, kept: &FxHashSet<FileId>) -> Vec<FileId> {
        let is_kept = |(identity, file): &(&FileId, &Shared)| {
            kept.contains(*identity) || file.also.iter().any(|it| kept.contains(it))
        };
        self.files.iter().filter(|it| !is_kept(it)).map(|(identity, _)| *identity).collect()
    }

    /// Removes and returns the links of `files`, for closing.
    pub(super) fn remove(&mut self, files: &[FileId]) -> Vec<Link> {
        let removed = files.iter().filter_map(|identity| self.files.remove(identity));
        removed.flat_map(|file| file.links).collect()
    }

    /// Returns the number of files with links.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Removes and returns all links, for closing.
    pub(super) fn take(&mut self) -> Vec<Link> {
        self.files.drain().flat_map(|(_, file)| file.links).collect()
    }
}

/// Splits an allocator into the part to probe, and the functions that are patched in any process
/// that maps the file now.
fn intact(allocator: &Allocator) -> (Allocator, Vec<Patched>) {
    let patched = in_memory::patched_anywhere(allocator);
    let mut intact = allocator.clone();
    for of in &patched {
        tracing::warn!("not probed in any process: {}", of.blind_spot(of.pid));
        of.leave_out(&mut intact);
    }
    (intact, patched)
}

/// Whether a probe in one file is a probe in the other file.
fn is_same(known: &Allocator, allocator: &Allocator) -> bool {
    pages::are_shared(&known.file, &allocator.file).unwrap_or_else(|error| {
        tracing::warn!(path = allocator.path, "compare it with {}: {error}", known.path);
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::allocator::Function;
    use crate::inspect::placement::Placement;
    use sampler_common::wire::{Role, Shape};

    #[test]
    fn a_file_whose_links_cannot_be_replaced_can_be_attached_to_again() {
        let placement = Placement {
            displacement: 0,
            instruction: String::new(),
            emulated: true,
            reason: String::new(),
        };
        let (symbols, role, shape) = (vec!["malloc".to_owned()], Role::Malloc, Shape::DEFAULT);
        let malloc = Function { symbols, role, shape, offset: 64, placement };
        let allocator = Allocator { functions: vec![malloc], ..Allocator::none() };
        let patched = Patched::find(7, &allocator, |_| true).unwrap();
        let mut links = SharedLinks::default();
        links.enter(allocator.clone(), Vec::new(), Vec::new());
        let refused = links.leave_out(&patched, |_, _| anyhow::bail!("refused"));
        assert_eq!(refused.unwrap_err().to_string(), "refused");
        assert!(!links.has(&allocator));
        links.enter(allocator.clone(), Vec::new(), Vec::new());
        assert!(links.leave_out(&patched, |_, _| Ok(Vec::new())).unwrap());
        assert!(links.has(&allocator) && links.left_out(&allocator) == [patched]);
    }

    #[test]
    fn an_unmapped_file_is_closed_by_the_second_survey() {
        let file = || Shared {
            links: Vec::new(),
            allocator: Allocator::none(),
            also: Vec::new(),
            unused: 0,
            left_out: Vec::new(),
            is_awaited: false,
        };
        let [a, b, c] = [(1, 1), (1, 2), (1, 3)];
        let mut links =
            SharedLinks { files: [a, b, c].map(|it| (it, file())).into_iter().collect() };
        assert!(links.unused(&[a].into_iter().collect()).is_empty());
        // B is mapped between the two surveys, though the second survey does not find it.
        links.mapped(b);
        let unused = links.unused(&[a].into_iter().collect());
        assert_eq!(unused, [c]);
        assert!(links.has_unmapped());
        links.remove(&unused);
        assert_eq!(links.file_count(), 2);
        // A is awaited before any process maps it. After a process has mapped A, A is treated as
        // any other file.
        links.await_mapping(a);
        (0..3).for_each(|_| assert!(!links.unused(&FxHashSet::default()).contains(&a)));
        links.mapped(a);
        links.unused(&FxHashSet::default());
        assert!(links.unused(&FxHashSet::default()).contains(&a));
        // B also has another identity.
        links.files.entry(b).and_modify(|file| file.also.push(c));
        assert_eq!(links.others_than(&[c].into_iter().collect()), [a]);
        assert!(links.others_than(&[a, b].into_iter().collect()).is_empty());
    }
}
