//! Attached probes, as their user holds them.

use super::wire;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, shutdown};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Attached probes of one program in one file. Dropping the link detaches the probes without
/// waiting for the guardian. The kernel takes some 35 ms to detach.
#[derive(Debug)]
pub struct Link(Held);

#[derive(Debug)]
enum Held {
    /// Held by this process: closing the descriptors detaches.
    Here { _links: Vec<OwnedFd> },
    /// Held by the guardian, until the guardian reads the end of this socket.
    Guarded { socket: OwnedFd, spent_ns: Arc<AtomicU64> },
}

impl Link {
    pub(in crate::bpf) fn here(links: Vec<OwnedFd>) -> Link {
        Link(Held::Here { _links: links })
    }

    pub(super) fn guarded(socket: OwnedFd, spent_ns: Arc<AtomicU64>) -> Link {
        Link(Held::Guarded { socket, spent_ns })
    }

    /// Has the guardian detach, as dropping it does; it can be waited for then.
    pub fn begin_close(&mut self) {
        if let Held::Guarded { socket, .. } = &self.0 {
            // The shutdown fails if the guardian has ended, and the links with it.
            let _ = shutdown(socket, Shutdown::Write);
        }
    }

    /// Whether the probes are detached after [`Link::begin_close`]. Adds the CPU time that the
    /// guardian has used for that to `spent_ns`.
    pub fn is_detached(&self, spent_ns: &AtomicU64) -> bool {
        self.read(RecvFlags::DONTWAIT, spent_ns)
    }

    /// Waits until the probes are detached after [`Link::begin_close`]; `spent_ns` as in
    /// [`Link::is_detached`].
    pub fn wait(&self, spent_ns: &AtomicU64) {
        self.read(RecvFlags::empty(), spent_ns);
    }

    fn read(&self, flags: RecvFlags, of_this_ns: &AtomicU64) -> bool {
        let Held::Guarded { socket, spent_ns } = &self.0 else { return true };
        loop {
            match wire::receive_spent(socket, flags) {
                Ok(Some(ns)) => {
                    spent_ns.fetch_add(ns, Relaxed);
                    of_this_ns.fetch_add(ns, Relaxed);
                }
                Err(Errno::AGAIN) => return false,
                // The probes are detached, or the guardian has ended, and the links with it.
                Ok(None) | Err(_) => return true,
            }
        }
    }
}

/// Closes links, the last one first, and waits until they are closed.
pub fn close_and_wait(mut links: Vec<Link>) {
    links.iter_mut().rev().for_each(Link::begin_close);
    links.iter().for_each(|link| link.wait(&AtomicU64::default()));
}

/// Returns the links that `attach` adds. On an error, none of them stays: they are closed in
/// reverse, and none of their breakpoints can be taken for a program's patch any more.
pub fn all_or_none(
    attach: impl FnOnce(&mut Vec<Link>) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Link>> {
    let mut links = Vec::new();
    match attach(&mut links) {
        Ok(()) => Ok(links),
        Err(error) => {
            close_and_wait(links);
            Err(error)
        }
    }
}
