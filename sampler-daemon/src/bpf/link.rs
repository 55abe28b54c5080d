//! The programs of an engine, and where they are attached.

use super::engine::ProbeEngine;
use super::guardian::{Attacher, Link, all_or_none};
use super::object::ProgramText;
use super::request::{Hook, Kind, Point, Request};
use super::sys;
use anyhow::Context as _;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};

/// File with the type of the PMU of uprobes.
const PMU: &str = "/sys/bus/event_source/devices/uprobe/type";

const SESSION: &str = "alloc_session";
const ENTER: &str = "alloc_entry";
const LEAVE: &str = "alloc_return";
const FREE: &str = "free_entry";
const NEW: &str = "new_entry";

/// Points to attach to in one file: file offsets of the probed instructions with their cookies.
#[derive(Clone, Debug, Default)]
pub struct Points {
    /// Allocating functions.
    pub allocating: Vec<(u64, u64)>,
    /// Freeing functions.
    pub freeing: Vec<(u64, u64)>,
    /// Allocating functions that can throw, whose return must not be probed.
    pub entering: Vec<(u64, u64)>,
}

/// The loaded programs of an engine.
pub struct Programs {
    /// Program at the entry of allocating functions; a session program runs at their return as
    /// well.
    enter: OwnedFd,
    /// Program at the return of allocating functions; `None` for sessions.
    leave: Option<OwnedFd>,
    /// Program at the entry of freeing functions.
    free: OwnedFd,
    /// Program at the entry of functions that can throw.
    new: OwnedFd,
    engine: ProbeEngine,
    /// Type of the PMU of uprobes; 0 unless the engine is perf.
    pmu: u32,
}

impl Programs {
    pub(super) fn load(engine: ProbeEngine, text: &ProgramText) -> anyhow::Result<Programs> {
        let (entry, session) = match engine {
            ProbeEngine::Perf => (0, 0),
            _ => (sys::ATTACH_MULTI, sys::ATTACH_SESSION),
        };
        let [free, new] = [FREE, NEW].map(|name| (name, entry));
        let pmu = if engine == ProbeEngine::Perf { pmu()? } else { 0 };
        if engine == ProbeEngine::Session {
            let [enter, free, new] = text.load_all([(SESSION, session), free, new])?;
            return Ok(Programs { enter, leave: None, free, new, engine, pmu });
        }
        let [enter, leave] = [ENTER, LEAVE].map(|name| (name, entry));
        let [enter, leave, free, new] = text.load_all([enter, leave, free, new])?;
        Ok(Programs { enter, leave: Some(leave), free, new, engine, pmu })
    }

    /// The engine of these programs.
    pub fn engine(&self) -> ProbeEngine {
        self.engine
    }

    /// Attaches to `points` of `file` in process `pid` (`None`: in every process). The order is
    /// frees, returns, entries. So every followed call has its return probed, and every free of a
    /// sampled block is seen. On an error nothing stays attached.
    pub(super) fn attach(
        &self,
        attacher: &Attacher,
        file: &File,
        pid: Option<u32>,
        points: &Points,
    ) -> anyhow::Result<Vec<Link>> {
        let allocating = &points.allocating[..];
        let entry = if self.leave.is_none() { Hook::Session } else { Hook::Entry };
        let leave = self.leave.as_ref().map(|program| (program, Hook::Return, allocating));
        let before = [
            (&self.free, Hook::Entry, &points.freeing[..]),
            (&self.new, Hook::Entry, &points.entering[..]),
        ];
        let after = [(&self.enter, entry, allocating)];
        let groups = before.into_iter().chain(leave).chain(after);
        all_or_none(|links| {
            for (program, hook, points) in groups.filter(|(.., points)| !points.is_empty()) {
                let kind = match self.engine {
                    ProbeEngine::Perf => Kind::Perf(hook, self.pmu),
                    _ => Kind::Multi(hook),
                };
                let point = |(offset, cookie): &(u64, u64)| Point::new(*offset, *cookie);
                let points: Vec<Point> = points.iter().map(point).collect();
                let (program, file) = (program.as_fd(), file.as_fd());
                let request = Request { program, kind, file, pid, points: &points };
                let what = || format!("attach {} probes to {}", points.len(), whom(pid));
                attacher.attach(&request, links).with_context(what)?;
            }
            Ok(())
        })
    }
}

fn pmu() -> anyhow::Result<u32> {
    let text = fs::read_to_string(PMU).with_context(|| format!("read {PMU}"))?;
    text.trim().parse().with_context(|| format!("parse {PMU}: {text:?}"))
}

fn whom(pid: Option<u32>) -> String {
    pid.map_or("every process".to_owned(), |pid| format!("pid {pid}"))
}
