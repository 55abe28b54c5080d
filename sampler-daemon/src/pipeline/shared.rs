//! Links that processes share: one for each file with an allocator.

use super::attach::points;
use crate::bpf::{Kernel, Link};
use crate::target::allocator::Allocator;
use rustc_hash::FxHashMap;
use sampler_common::wire::SHARED;

/// The links, by device and inode.
#[derive(Default)]
pub(super) struct SharedLinks {
    links: FxHashMap<(u64, u64), (Allocator, Vec<Link>)>,
}

impl SharedLinks {
    /// Attaches to an allocator, unless that is done already. Whoever maps it pays the trap from now on; whose calls count is decided
    /// by the eBPF program.
    pub(super) fn attach(
        &mut self,
        kernel: &mut Kernel,
        allocator: &Allocator,
        track_live: bool,
    ) -> anyhow::Result<()> {
        if self.links.contains_key(&allocator.identity) {
            return Ok(());
        }
        let links = kernel.attach(&allocator.file, None, &points(allocator, SHARED, track_live))?;
        tracing::info!(path = allocator.path, "probing {} for all", allocator.name);
        self.links.insert(allocator.identity, (allocator.clone(), links));
        Ok(())
    }

    /// What is attached to.
    pub(super) fn allocators(&self) -> impl Iterator<Item = &Allocator> {
        self.links.values().map(|(allocator, _)| allocator)
    }

    /// All links, to be closed.
    pub(super) fn take(&mut self) -> Vec<Link> {
        self.links.drain().flat_map(|(_, (_, links))| links).collect()
    }
}
