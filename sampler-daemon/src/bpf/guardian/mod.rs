//! The guardian: a small process that makes and closes samplerd's probes.
//!
//! A uprobe that is removed, or added beside others, by a thread with a fatal signal pending stays in its processes for good
//! ("uprobe: … failed to unregister, leaking uprobe"): `uprobe_unregister` finds their pages with `get_user_pages`, which gives up then. A `kill -9` of samplerd
//! would meet that. So the guardian does both, in a process that nobody has a reason to kill, and holds the only descriptors of the links:
//!
//! ```text
//!  samplerd ── control socket: program, file, points, a socket ──▶ guardian
//!           ◀── that socket: attached, or why not ──
//!           ─── that socket: closed, by samplerd or by its death ──▶ closes the links
//!           ◀── that socket: CPU time taken; then its end: detached ──
//! ```
//!
//! When the control socket breaks, the guardian closes what is left and ends. When the guardian is killed its links close with it: a process that has
//! begun to exit has no signal pending. samplerd ends then, since it would see nothing any more.

mod link;
mod serve;
mod wire;

pub use link::Link;
pub use serve::{VERB, serve};

use super::request::Request;
use anyhow::Context as _;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The guardian of this process; when this is dropped everything is detached.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    control: Arc<OwnedFd>,
}

impl Guardian {
    /// Starts it: this program again, with [`VERB`].
    ///
    /// # Errors
    /// If there can be no socket or no process.
    pub fn start() -> anyhow::Result<Guardian> {
        let (control, its) = pair().context("make a socket for the probe guardian")?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(VERB).stdin(Stdio::from(its)).stdout(Stdio::null());
        let child = command.spawn().context("start the probe guardian")?;
        Ok(Guardian { child, control: Arc::new(control) })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Who attaches through it.
    pub fn attacher(&self) -> Attacher {
        let control = Arc::clone(&self.control);
        Attacher::Guardian { control, spent_ns: Arc::default() }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // Fails if it has ended already.
        let _ = shutdown(&self.control, Shutdown::Both);
        let _ = self.child.wait();
    }
}

/// Who attaches.
#[derive(Clone, Debug)]
pub enum Attacher {
    /// This process itself.
    Here,
    /// The guardian.
    Guardian {
        /// Where requests go.
        control: Arc<OwnedFd>,
        /// CPU time that it has taken for them.
        spent_ns: Arc<AtomicU64>,
    },
}

impl Attacher {
    /// Attaches; dropping the links detaches.
    pub(super) fn attach(&self, request: &Request<'_>) -> io::Result<Vec<Link>> {
        let parts = request.points.chunks(wire::MAX_POINTS);
        parts.map(|points| self.attach_some(&Request { points, ..*request })).collect()
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

    /// CPU time that the guardian has taken, nanoseconds.
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
