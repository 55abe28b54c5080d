//! Links are closed while everything else goes on: a link's breakpoints go at once, and then the kernel waits some 35 ms for whoever is still in its programs.
//!
//! Links come in the order in which they were attached ([`crate::bpf::Kernel::attach`]), and go the other way round: entries before returns, which
//! would be followed for nothing else, and both before frees, which nobody would see of what is still sampled. Were each to wait for
//! the one before, a return probe that harms its process would stay several times as long: so all are let go within a millisecond.

use crate::bpf::Link;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A link that has been let go.
struct Closing {
    link: Link,
    /// CPU time that closing takes is added to this.
    spent_ns: Arc<AtomicU64>,
}

/// Links that have been let go and are not closed yet.
#[derive(Default)]
pub(super) struct ClosingLinks(Vec<Closing>);

impl ClosingLinks {
    /// Lets links go, and adds the CPU time that closing them takes to `spent_ns`.
    pub(super) fn close_in_order(&mut self, mut links: Vec<Link>, spent_ns: &Arc<AtomicU64>) {
        links.iter_mut().rev().for_each(Link::close_in_order);
        let closing =
            links.into_iter().map(|link| Closing { link, spent_ns: Arc::clone(spent_ns) });
        self.0.extend(closing);
    }

    /// Forgets those that are closed.
    pub(super) fn forget_closed(&mut self) {
        self.0.retain(|of| !of.link.is_detached(&of.spent_ns));
    }

    /// Waits until all are closed.
    pub(super) fn wait(&mut self) {
        self.0.drain(..).for_each(|of| of.link.wait(&of.spent_ns));
    }
}

/// Closes links, and waits until they are gone.
pub(super) fn close_and_wait(mut links: Vec<Link>) {
    links.iter_mut().rev().for_each(Link::close_in_order);
    links.iter().for_each(|link| link.wait(&AtomicU64::default()));
}
