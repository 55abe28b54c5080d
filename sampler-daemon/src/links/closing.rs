//! Links are closed in the background. A link's breakpoints are removed at once. Then the kernel
//! waits some 35 ms for threads that still run the link's programs.
//!
//! Links are passed in the order in which they were attached ([`crate::bpf::Kernel::attach`]), and
//! are closed in reverse:
//! - Entries go before returns, so that no entry asks for a return that is not probed.
//! - Both go before frees, so that the free of a sampled block is seen.
//!
//! The closing of all links begins within a millisecond. If each link waited for the one before, a
//! return probe that harms its process would stay several times as long.

use crate::bpf::Link;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A link whose closing has begun.
struct Closing {
    link: Link,
    /// The counter that the CPU time of closing is added to.
    spent_ns: Arc<AtomicU64>,
}

/// Links whose closing has begun and has not ended.
#[derive(Default)]
pub(super) struct ClosingLinks(Vec<Closing>);

impl ClosingLinks {
    /// Begins to close links. Adds the CPU time that closing takes to `spent_ns`.
    pub(super) fn begin_close(&mut self, mut links: Vec<Link>, spent_ns: &Arc<AtomicU64>) {
        links.iter_mut().rev().for_each(Link::begin_close);
        let closing =
            links.into_iter().map(|link| Closing { link, spent_ns: Arc::clone(spent_ns) });
        self.0.extend(closing);
    }

    /// Forgets the links that are closed.
    pub(super) fn forget_closed(&mut self) {
        self.0.retain(|of| !of.link.is_detached(&of.spent_ns));
    }

    /// Waits until all links are closed.
    pub(super) fn wait(&mut self) {
        self.0.drain(..).for_each(|of| of.link.wait(&of.spent_ns));
    }
}
