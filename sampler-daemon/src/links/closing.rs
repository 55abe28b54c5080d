//! Links are closed while everything else goes on: a link's breakpoints go at once, and then the kernel waits some 35 ms for whoever is still in its programs.
//!
//! Links come in the order in which they were attached ([`crate::bpf::Kernel::attach`]), and go the other way round: entries before returns, which
//! would be followed for nothing else, and both before frees, which nobody would see of what is still sampled. Were each to wait for
//! the one before, a return probe that harms its process would stay several times as long: so all are let go within a millisecond.

use super::clock::thread_ns;
use super::worker::Worker;
use crate::bpf::Link;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A link that has been let go.
pub(super) struct Closing {
    link: Link,
    /// CPU time that it takes is added to this.
    spent_ns: Arc<AtomicU64>,
}

/// Closes links, and waits until they are gone.
pub(super) fn close_and_wait(mut links: Vec<Link>) {
    links.iter_mut().rev().for_each(Link::let_go);
    links.iter().for_each(|link| link.wait(&AtomicU64::default()));
}

impl Worker {
    /// CPU time of this thread and of the guardian, which attaches for it.
    pub(super) fn attaching_ns(&self) -> u64 {
        thread_ns() + self.kernel.attacher().spent_ns()
    }

    /// Closes links.
    pub(super) fn close(&mut self, links: Vec<Link>) {
        self.close_counting(links, &Arc::default());
    }

    /// Closes links, and adds the CPU time that it takes to `spent_ns`.
    pub(super) fn close_counting(&mut self, mut links: Vec<Link>, spent_ns: &Arc<AtomicU64>) {
        links.iter_mut().rev().for_each(Link::let_go);
        let closing =
            links.into_iter().map(|link| Closing { link, spent_ns: Arc::clone(spent_ns) });
        self.closing.extend(closing);
    }

    /// Looks which links are closed.
    pub(super) fn look_at_closing(&mut self) {
        self.closing.retain(|of| !of.link.is_detached(&of.spent_ns));
    }

    /// Waits until all links that have been let go are closed.
    pub(super) fn wait_for_closing(&mut self) {
        self.closing.drain(..).for_each(|of| of.link.wait(&of.spent_ns));
    }
}
