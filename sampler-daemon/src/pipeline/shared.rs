//! Links that processes share: one for each file with an allocator.

use super::attach::points;
use crate::bpf::{Kernel, Link, pages};
use crate::target::allocator::Allocator;
use rustc_hash::{FxHashMap, FxHashSet};
use sampler_common::wire::SHARED;
use std::time::{Duration, Instant};

/// How long a file is taken for one that was met already.
const SAME: Duration = Duration::from_secs(10);

/// Device and inode.
type Identity = (u64, u64);

/// The links, by the file's identity.
#[derive(Default)]
pub(super) struct SharedLinks {
    links: FxHashMap<Identity, (Allocator, Vec<Link>)>,
    /// Files that are others to the kernel: the layer of a container is mapped through many overlay mounts.
    same: FxHashSet<Identity>,
    /// When that was last forgotten: numbers of mounts are used again.
    forgot: Option<Instant>,
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
        if self.forgot.is_none_or(|forgot| forgot.elapsed() >= SAME) {
            self.same.clear();
            self.forgot = Some(Instant::now());
        }
        if self.links.contains_key(&allocator.identity) || self.same.contains(&allocator.identity) {
            return Ok(());
        }
        if self.meets(allocator) {
            self.same.insert(allocator.identity);
            return Ok(());
        }
        let links = kernel.attach(&allocator.file, None, &points(allocator, SHARED, track_live))?;
        tracing::info!(path = allocator.path, "probing {} for all", allocator.name);
        self.links.insert(allocator.identity, (allocator.clone(), links));
        Ok(())
    }

    /// Whether there is a link already that meets the calls of this allocator.
    fn meets(&self, allocator: &Allocator) -> bool {
        let alike = self.allocators().filter(|known| known.build_id == allocator.build_id);
        alike.into_iter().any(|known| match pages::are_shared(&known.file, &allocator.file) {
            Ok(shared) => shared,
            Err(error) => {
                tracing::warn!(path = allocator.path, "compare it with {}: {error}", known.path);
                false
            }
        })
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
