//! A set of probes to attach, and the kernel calls that attach it. [`super::guardian`] decides
//! which process makes these calls.

use super::sys;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

/// The points in a call at which a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Entry, and return unless the entry returns 1 (Linux 6.13).
    Session,
    /// Entry.
    Entry,
    /// Return.
    Return,
}

impl Hook {
    /// The attach type and the flags of a multi link.
    pub(super) fn link(self) -> (u32, u32) {
        match self {
            Hook::Session => (sys::ATTACH_SESSION, 0),
            Hook::Entry => (sys::ATTACH_MULTI, 0),
            Hook::Return => (sys::ATTACH_MULTI, sys::RETURN),
        }
    }
}

/// The kind of link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One link for all probes (Linux 6.6).
    Multi(Hook),
    /// A perf event for each probe; the number is the type of the PMU.
    Perf(Hook, u32),
}

/// An instruction to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// File offset.
    pub(super) offset: u64,
    /// The cookie that the program gets.
    pub(super) cookie: u64,
    /// File offset of a counter that the kernel raises while the probe is attached; 0: no counter.
    /// Perf events raise no counter.
    pub(super) counter: u64,
}

impl Point {
    /// A point without a counter.
    pub(super) fn new(offset: u64, cookie: u64) -> Point {
        Point { offset, cookie, counter: 0 }
    }
}

/// A set of probes in one file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) program: BorrowedFd<'a>,
    pub(super) kind: Kind,
    /// The open file: its path may mean another file by now, or in another mount namespace.
    pub(super) file: BorrowedFd<'a>,
    /// `None`: every process.
    pub(super) pid: Option<u32>,
    pub(super) points: &'a [Point],
}

impl Request<'_> {
    /// Attaches the probes. Closing the descriptors detaches them. On an error nothing stays
    /// attached.
    pub(super) fn attach(&self) -> io::Result<Vec<OwnedFd>> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        match self.kind {
            Kind::Multi(hook) => {
                let (attach_type, flags) = hook.link();
                let [offsets, cookies, counters] =
                    [|of: &Point| of.offset, |of: &Point| of.cookie, |of: &Point| of.counter]
                        .map(|field| self.points.iter().map(field).collect::<Vec<u64>>());
                let counters = if counters.iter().all(|at| *at == 0) { &[][..] } else { &counters };
                let words = (&cookies[..], counters);
                let pid = self.pid.unwrap_or(0);
                sys::link_counted(self.program, attach_type, &path, &offsets, words, flags, pid)
                    .map(|link| vec![link])
            }
            Kind::Perf(hook, pmu) => {
                let is_return = hook == Hook::Return;
                let attach = |of: &Point| {
                    let point = (of.offset, of.cookie);
                    sys::link_perf_uprobe(self.program, pmu, is_return, &path, point, self.pid)
                };
                self.points.iter().map(attach).collect()
            }
        }
    }
}
