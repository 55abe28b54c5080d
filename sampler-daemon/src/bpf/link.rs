//! Attached probes.

use super::engine::ProbeEngine;
use super::object::ProgramText;
use super::{sys, verifier};
use anyhow::Context as _;
use aya::Ebpf;
use aya::programs::UProbe;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope};
use std::fs::File;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

const SESSION: &str = "alloc_session";
const ENTER: &str = "alloc_entry";
const LEAVE: &str = "alloc_return";
const FREE: &str = "free_entry";
const NEW: &str = "new_entry";
const MARKER: &str = "marker_entry";

/// What to attach to in one file: file offsets of the probed instructions with their cookies.
#[derive(Clone, Debug, Default)]
pub struct Points {
    /// Allocating functions.
    pub allocating: Vec<(u64, u64)>,
    /// Freeing functions.
    pub freeing: Vec<(u64, u64)>,
    /// Allocating functions that can throw, whose return must not be probed.
    pub entering: Vec<(u64, u64)>,
    /// Functions whose calls are only counted.
    pub marking: Vec<(u64, u64)>,
    /// Whether nothing is to be seen before all is attached: then what is called most often comes last, so that the program pays for little until it is seen.
    pub is_shut: bool,
}

impl Points {
    /// The same, of a process of which nothing is to be seen before all are attached.
    #[must_use]
    pub fn shut(self) -> Points {
        Points { is_shut: true, ..self }
    }
}

/// One attachment; detaches when dropped, which takes the kernel some 35 ms.
#[derive(Debug)]
pub enum Link {
    /// A multi or session link.
    Multi {
        /// Closing it detaches.
        fd: OwnedFd,
    },
    /// A perf event.
    Perf {
        /// Dropping it detaches.
        link: UProbeLink,
    },
}

/// The loaded programs of a rung.
pub enum Programs {
    /// See [`ProbeEngine::Session`].
    Session {
        /// Entry and return of allocating functions.
        allocate: OwnedFd,
        /// Entry of freeing functions.
        free: OwnedFd,
        /// Entry of functions that can throw.
        new: OwnedFd,
        /// Entry of functions whose calls are only counted.
        mark: OwnedFd,
    },
    /// See [`ProbeEngine::Multi`].
    Multi {
        /// Entry of allocating functions.
        enter: OwnedFd,
        /// Their return.
        leave: OwnedFd,
        /// Entry of freeing functions.
        free: OwnedFd,
        /// Entry of functions that can throw.
        new: OwnedFd,
        /// Entry of functions whose calls are only counted.
        mark: OwnedFd,
    },
    /// See [`ProbeEngine::Perf`]; aya holds these.
    Perf,
}

impl Programs {
    pub(super) fn load(
        engine: ProbeEngine,
        text: &ProgramText,
        ebpf: &mut Ebpf,
    ) -> anyhow::Result<Programs> {
        Ok(match engine {
            ProbeEngine::Session => {
                let session = (SESSION, sys::ATTACH_SESSION);
                let [free, new, mark] = [FREE, NEW, MARKER].map(|name| (name, sys::ATTACH_MULTI));
                let [allocate, free, new, mark] = text.load_all([session, free, new, mark])?;
                Programs::Session { allocate, free, new, mark }
            }
            ProbeEngine::Multi => {
                let names = [ENTER, LEAVE, FREE, NEW, MARKER];
                let [enter, leave, free, new, mark] =
                    text.load_all(names.map(|name| (name, sys::ATTACH_MULTI)))?;
                Programs::Multi { enter, leave, free, new, mark }
            }
            ProbeEngine::Perf => {
                for name in [ENTER, LEAVE, FREE, NEW, MARKER] {
                    let program = perf_program(ebpf, name)?;
                    program.load().with_context(|| format!("load the eBPF program {name}"))?;
                    verifier::note(name, program.fd()?.as_fd());
                }
                Programs::Perf
            }
        })
    }

    /// The rung that these programs are for.
    pub fn engine(&self) -> ProbeEngine {
        match self {
            Programs::Session { .. } => ProbeEngine::Session,
            Programs::Multi { .. } => ProbeEngine::Multi,
            Programs::Perf => ProbeEngine::Perf,
        }
    }

    /// Attaches to `points` of `file` in process `pid` (`None`: in every process), in this order: frees (where nothing is seen yet they come last), returns, entries. So no
    /// followed call is without its return, and no sampled block can end unseen. On an error nothing
    /// stays attached.
    pub(super) fn attach(
        &self,
        ebpf: &mut Ebpf,
        file: &File,
        pid: Option<u32>,
        points: &Points,
    ) -> anyhow::Result<Vec<Link>> {
        // The very file, whatever its path means by now and in whichever mount namespace.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let multi = |program: &OwnedFd, attach_type, points: &[(u64, u64)], flags| {
            if points.is_empty() {
                return Ok(None);
            }
            let (offsets, cookies): (Vec<u64>, Vec<u64>) = points.iter().copied().unzip();
            let everyone = pid.unwrap_or(0);
            let program = program.as_fd();
            sys::link_uprobes(program, attach_type, &path, &offsets, &cookies, flags, everyone)
                .map(|fd| Some(Link::Multi { fd }))
                .with_context(|| format!("attach {} probes to {}", offsets.len(), whom(pid)))
        };
        let (allocating, freeing) = (&points.allocating[..], &points.freeing[..]);
        let (entering, marking) = (&points.entering[..], &points.marking[..]);
        let [first, last] = match points.is_shut {
            false => [freeing, &[]],
            true => [&[], freeing],
        };
        let links = match self {
            Programs::Session { allocate, free, new, mark } => vec![
                multi(free, sys::ATTACH_MULTI, first, 0)?,
                multi(new, sys::ATTACH_MULTI, entering, 0)?,
                multi(mark, sys::ATTACH_MULTI, marking, 0)?,
                multi(allocate, sys::ATTACH_SESSION, allocating, 0)?,
                multi(free, sys::ATTACH_MULTI, last, 0)?,
            ],
            Programs::Multi { enter, leave, free, new, mark } => vec![
                multi(free, sys::ATTACH_MULTI, first, 0)?,
                multi(new, sys::ATTACH_MULTI, entering, 0)?,
                multi(mark, sys::ATTACH_MULTI, marking, 0)?,
                multi(leave, sys::ATTACH_MULTI, allocating, sys::RETURN)?,
                multi(enter, sys::ATTACH_MULTI, allocating, 0)?,
                multi(free, sys::ATTACH_MULTI, last, 0)?,
            ],
            Programs::Perf => {
                let mut links = Vec::new();
                for (name, points) in [
                    (FREE, first),
                    (NEW, entering),
                    (MARKER, marking),
                    (LEAVE, allocating),
                    (ENTER, allocating),
                    (FREE, last),
                ] {
                    let program = perf_program(ebpf, name)?;
                    for point in points {
                        links.push(Some(perf_attach(program, &path, pid, *point)?));
                    }
                }
                links
            }
        };
        Ok(links.into_iter().flatten().collect())
    }
}

fn perf_program<'a>(ebpf: &'a mut Ebpf, name: &str) -> anyhow::Result<&'a mut UProbe> {
    Ok(ebpf
        .program_mut(name)
        .with_context(|| format!("program {name} is not in the eBPF object"))?
        .try_into()?)
}

fn whom(pid: Option<u32>) -> String {
    pid.map_or("every process".to_owned(), |pid| format!("pid {pid}"))
}

fn perf_attach(
    program: &mut UProbe,
    path: &str,
    pid: Option<u32>,
    (offset, cookie): (u64, u64),
) -> anyhow::Result<Link> {
    let point = UProbeAttachPoint {
        location: UProbeAttachLocation::AbsoluteOffset(offset),
        cookie: Some(cookie),
    };
    let scope = match pid {
        Some(pid) => UProbeScope::OneProcess(NonZeroU32::new(pid).context("pid 0")?),
        None => UProbeScope::AllProcesses,
    };
    let id = program
        .attach(point, path, scope)
        .with_context(|| format!("attach a probe at {offset:#x} to {}", whom(pid)))?;
    Ok(Link::Perf { link: program.take_link(id)? })
}
