//! What samplerd has said, checked: all that the screen is made of.

use super::rows::Functions;
use sampler_common::cost::{Range, Report};
use sampler_common::encode::name::shown;
use sampler_common::estimate::{Confidence, Estimate};
use sampler_common::profile::{Exact, Kind, Lost, Profile};
use sampler_common::units::grouped;
use sampler_daemon::rpc::convert::cost;
use sampler_daemon::rpc::convert::quantities_from_wire;
use sampler_daemon::rpc::v1;
use std::time::Duration;

/// The daemon itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Daemon {
    pub(super) version: String,
    pub(super) pid: u32,
    pub(super) uptime: Duration,
}

/// A running process.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// Fit for a terminal.
    pub(super) name: String,
    pub(super) attached_unix_ns: u64,
    /// `None` where it is not counted: it samples by itself, or is seen in windows only.
    pub(super) exact: Option<Exact>,
    pub(super) held: Option<Held>,
    /// Share of its CPU time that was spent in probes, since attach.
    pub(super) cost: Option<Range>,
    pub(super) resident: Option<u64>,
    pub(super) samples: u64,
    /// Mean bytes between samples.
    pub(super) interval_bytes: u64,
}

/// What is held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) bytes: Estimate,
    pub(super) objects: Estimate,
}

/// Everything at one moment.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) daemon: Daemon,
    /// When exact totals were read, by samplerd's `CLOCK_MONOTONIC`.
    pub(super) time_ns: u64,
    pub(super) processes: Vec<Process>,
    /// Processes that have exited.
    pub(super) exited: u64,
    /// Of all processes that are counted, exited ones included.
    pub(super) exact: Exact,
    /// Of all together; `None` where frees are not followed.
    pub(super) held: Option<Held>,
    /// Of all together.
    pub(super) cost: Option<Report>,
    pub(super) lost: Vec<Lost>,
    /// Mean bytes between samples.
    pub(super) interval_bytes: u64,
}

/// What is asked of one process.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DetailRequest {
    pub(super) pid: u32,
    pub(super) attached_unix_ns: u64,
    pub(super) kind: Kind,
    /// How far back; `None`: since attach.
    pub(super) window: Option<Duration>,
}

/// The profile of one process.
#[derive(Clone, Debug)]
pub(super) struct Detail {
    pub(super) asked: DetailRequest,
    pub(super) profile: Profile,
    /// Length of the window, where its numbers are shown by the second.
    pub(super) seconds: Option<f64>,
    /// Why it is not quite what was asked for.
    pub(super) note: Option<String>,
    pub(super) functions: Functions,
}

impl Snapshot {
    /// From three answers. The profile is of everything, with any number of stacks.
    pub(super) fn of(
        status: v1::StatusResponse,
        list: v1::ListProcessesResponse,
        profile: &Profile,
    ) -> Result<Snapshot, String> {
        let mut exact = Exact::default();
        let mut exited = 0;
        let mut processes = Vec::new();
        let counted = list.processes.iter().map(|of| of.exact);
        for one in counted.chain(list.groups.iter().map(|of| of.exact)).flatten() {
            exact.alloc_space += one.alloc_space;
            exact.alloc_objects += one.alloc_objects;
        }
        exited += list.groups.iter().map(|of| of.processes).sum::<u64>();
        for of in list.processes {
            match of.state.as_str() {
                "running" => processes.push(process(of, status.live_tracking)?),
                _ => exited += of.folded.max(1),
            }
        }
        let totals = &profile.totals;
        let held =
            Held { bytes: totals.inuse_space.estimate, objects: totals.inuse_objects.estimate };
        Ok(Snapshot {
            time_ns: list.time_ns,
            processes,
            exited,
            exact,
            held: is_followed(status.live_tracking, profile).then_some(held),
            cost: profile.cost.clone(),
            lost: profile.lost.iter().filter(|lost| lost.samples > 0).cloned().collect(),
            interval_bytes: profile.interval_bytes,
            daemon: Daemon {
                version: shown(&status.version).into_owned(),
                pid: status.pid,
                uptime: Duration::from_nanos(status.uptime_ns),
            },
        })
    }
}

/// Frees are seen, and not in windows only.
fn is_followed(live_tracking: bool, profile: &Profile) -> bool {
    live_tracking && profile.reference.clusters.is_empty()
}

fn process(of: v1::Process, live_tracking: bool) -> Result<Process, String> {
    let exact =
        of.exact.map(|of| Exact { alloc_objects: of.alloc_objects, alloc_space: of.alloc_space });
    let totals = of.totals.as_ref().map(|of| quantities_from_wire(of, Confidence::DEFAULT));
    let totals = totals.transpose().map_err(|error| format!("pid {}: {error}", of.pid))?;
    // In windows there are no exact totals, and frees are not followed.
    let follows = live_tracking && (exact.is_some() || of.samples_itself);
    let held = totals
        .filter(|_| follows)
        .map(|of| Held { bytes: of.inuse_space.estimate, objects: of.inuse_objects.estimate });
    let report = of.cost.map(cost::from_wire).transpose();
    let report = report.map_err(|error| format!("pid {}: {error}", of.pid))?;
    Ok(Process {
        pid: of.pid,
        name: match of.folded {
            0 => shown(&of.comm).into_owned(),
            folded => format!("{} × {}", shown(&of.comm), grouped(folded)),
        },
        attached_unix_ns: of.attached_unix_ns,
        exact,
        held,
        cost: report.and_then(|report| report.share()),
        resident: of.memory.map(|memory| memory.rss_bytes),
        samples: of.samples,
        interval_bytes: of.interval_bytes,
    })
}

impl Detail {
    /// From an answer.
    pub(super) fn of(asked: DetailRequest, profile: Profile, note: Option<String>) -> Detail {
        let seconds = profile.window.filter(|_| asked.kind == Kind::Alloc).map(|window| {
            // Before it was attached nothing of it was seen.
            let start = window.start_unix_ns.max(asked.attached_unix_ns);
            window.end_unix_ns.saturating_sub(start) as f64 / 1e9
        });
        Detail {
            functions: Functions::of(&profile),
            seconds: seconds.filter(|seconds| *seconds > 0.0),
            asked,
            profile,
            note,
        }
    }

    /// An estimate of the profile as it is shown: by the second where it is of a window. The window's length is known exactly.
    pub(super) fn shown(&self, of: Estimate) -> Estimate {
        let by = 1.0 / self.seconds.unwrap_or(1.0);
        Estimate { value: of.value * by, low: of.low * by, high: of.high * by, ..of }
    }

    /// One of its stacks.
    pub(super) fn of_stack(&self, index: usize) -> Estimate {
        self.shown(self.profile.stacks[index].quantities.space(self.profile.kind).estimate)
    }

    /// What was allocated, where that was counted; by the second where it is of a window.
    pub(super) fn exact(&self) -> Option<f64> {
        let exact = self.profile.exact.filter(|_| self.asked.kind == Kind::Alloc)?;
        Some(exact.alloc_space as f64 / self.seconds.unwrap_or(1.0))
    }

    /// Everything in it.
    pub(super) fn total(&self) -> Estimate {
        self.shown(self.profile.totals.space(self.profile.kind).estimate)
    }
}
