//! The guardian: a small process that makes and closes samplerd's probes.
//!
//! A uprobe leaks if a thread removes it, or adds it next to others, while a fatal signal is
//! pending for the thread. The uprobe then stays in its processes for good ("uprobe: … failed to
//! unregister, leaking uprobe"). `uprobe_unregister` finds the processes' pages with
//! `get_user_pages`, which gives up when such a signal is pending. A `kill -9` of samplerd could
//! cause that. So the guardian adds and removes all probes, in a process that nobody has a reason
//! to kill. It holds the only descriptors of the links:
//!
//! ```text
//!  samplerd ── control socket: program, file, points, an answer socket ──▶ guardian
//!           ◀── answer socket: attached, or the error ──
//!           ─── answer socket: closed, by samplerd or by its death ──▶ closes the links
//!           ◀── answer socket: CPU time used; then its end: detached ──
//! ```
//!
//! When the control socket breaks, the guardian closes the remaining links and ends. When the
//! guardian is killed, the kernel closes its links, and removes their probes: a process that has
//! begun to exit has no signal pending. samplerd then ends too, since it would record nothing any
//! more.

mod link;
mod serve;
mod wire;

pub use link::{Link, all_or_none, close_and_wait};
pub use serve::{VERB, serve};

use super::request::Request;
use anyhow::Context as _;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The guardian of this process. Dropping it detaches all probes.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    control: Arc<OwnedFd>,
}

impl Guardian {
    /// Starts the guardian: this program again, with [`VERB`].
    ///
    /// # Errors
    /// If the socket or the process cannot be made.
    pub fn start() -> anyhow::Result<Guardian> {
        let (control, its) = pair().context("make a socket for the probe guardian")?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(VERB).stdin(Stdio::from(its)).stdout(Stdio::null());
        let child = command.spawn().context("start the probe guardian")?;
        Ok(Guardian { child, control: Arc::new(control) })
    }

    /// Process id of the guardian.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The attacher that uses this guardian.
    pub fn attacher(&self) -> Attacher {
        let control = Arc::clone(&self.control);
        Attacher::Guardian { control, spent_ns: Arc::default() }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // Fails if the guardian has already ended.
        let _ = shutdown(&self.control, Shutdown::Both);
        let _ = self.child.wait();
    }
}

/// The process that attaches probes.
#[derive(Clone, Debug)]
pub enum Attacher {
    /// This process itself.
    Here,
    /// The guardian.
    Guardian {
        /// The socket for requests.
        control: Arc<OwnedFd>,
        /// CPU time that the guardian has used for requests, nanoseconds.
        spent_ns: Arc<AtomicU64>,
    },
}

impl Attacher {
    /// Attaches, and adds the links to `links`. On an error, some links may have been added.
    pub(super) fn attach(&self, request: &Request<'_>, links: &mut Vec<Link>) -> io::Result<()> {
        for points in request.points.chunks(wire::MAX_POINTS) {
            links.push(self.attach_some(&Request { points, ..*request })?);
        }
        Ok(())
    }

    fn attach_some(&self, request: &Request<'_>) -> io::Result<Link> {
        let (control, spent_ns) = match self {
            Attacher::Here => return request.attach().map(Link::here),
            Attacher::Guardian { control, spent_ns } => (control, spent_ns),
        };
        let (socket, its) = pair()?;
        wire::send_request(control, request, its.as_fd())?;
        drop(its);
        let ended = |_| io::Error::other("the probe guardian has not answered");
        let (result, ns) = wire::receive_result(&socket).map_err(ended)?;
        spent_ns.fetch_add(ns, Relaxed);
        result.map(|()| Link::guarded(socket, Arc::clone(spent_ns)))
    }

    /// CPU time that the guardian has used, nanoseconds.
    pub fn spent_ns(&self) -> u64 {
        match self {
            Attacher::Here => 0,
            Attacher::Guardian { spent_ns, .. } => spent_ns.load(Relaxed),
        }
    }

    /// A descriptor that hangs up when the guardian ends.
    pub fn guardian(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Attacher::Here => None,
            Attacher::Guardian { control, .. } => Some(control.as_fd()),
        }
    }
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}
