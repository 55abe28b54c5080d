//! samplerd's answers, after checks. The screen is drawn from this data only.

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

/// The daemon.
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
    /// The name, made safe for terminals.
    pub(super) name: String,
    pub(super) attached_unix_ns: u64,
    /// Exact totals; `None` if the process samples by itself, or is seen only in windows.
    pub(super) exact: Option<Exact>,
    pub(super) held: Option<Held>,
    /// Share of the CPU time that was spent in probes, since the attach.
    pub(super) cost: Option<Range>,
    pub(super) resident: Option<u64>,
    pub(super) samples: u64,
    /// Mean bytes between samples.
    pub(super) interval_bytes: u64,
}

/// Held memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) bytes: Estimate,
    pub(super) objects: Estimate,
}

/// The daemon and all processes at one time.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) daemon: Daemon,
    /// The time at which the exact totals were read, by samplerd's `CLOCK_MONOTONIC`.
    pub(super) time_ns: u64,
    pub(super) processes: Vec<Process>,
    /// Number of processes that have exited.
    pub(super) exited: u64,
    /// Exact totals of all counted processes, including exited ones.
    pub(super) exact: Exact,
    /// Held memory of all processes; `None` if frees are not followed.
    pub(super) held: Option<Held>,
    /// Cost of all processes.
    pub(super) cost: Option<Report>,
    pub(super) lost: Vec<Lost>,
    /// Mean bytes between samples.
    pub(super) interval_bytes: u64,
}

/// A request for the profile of one process.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DetailRequest {
    pub(super) pid: u32,
    pub(super) attached_unix_ns: u64,
    pub(super) kind: Kind,
    /// The length of the window; `None`: since the attach.
    pub(super) window: Option<Duration>,
}

/// The profile of one process.
#[derive(Clone, Debug)]
pub(super) struct Detail {
    pub(super) requested: DetailRequest,
    pub(super) profile: Profile,
    /// The length of the window, if the numbers are shown per second.
    pub(super) seconds: Option<f64>,
    /// Why the profile is not exactly what was requested.
    pub(super) note: Option<String>,
    pub(super) functions: Functions,
}

impl Snapshot {
    /// Makes a snapshot of three answers. The profile covers all processes, with any number of
    /// stacks.
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
                _ => exited += of.exited_count.max(1),
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

/// Whether frees are seen, and not only in windows.
fn is_followed(live_tracking: bool, profile: &Profile) -> bool {
    live_tracking && profile.reference.clusters.is_empty()
}

fn process(of: v1::Process, live_tracking: bool) -> Result<Process, String> {
    let exact =
        of.exact.map(|of| Exact { alloc_objects: of.alloc_objects, alloc_space: of.alloc_space });
    let totals = of.totals.as_ref().map(|of| quantities_from_wire(of, Confidence::DEFAULT));
    let totals = totals.transpose().map_err(|error| format!("pid {}: {error}", of.pid))?;
    // In window mode there are no exact totals, and frees are not followed.
    let follows = live_tracking && (exact.is_some() || of.samples_itself);
    let held = totals
        .filter(|_| follows)
        .map(|of| Held { bytes: of.inuse_space.estimate, objects: of.inuse_objects.estimate });
    let report = of.cost.map(cost::from_wire).transpose();
    let report = report.map_err(|error| format!("pid {}: {error}", of.pid))?;
    Ok(Process {
        pid: of.pid,
        name: match of.exited_count {
            0 => shown(&of.comm).into_owned(),
            exited_count => format!("{} × {}", shown(&of.comm), grouped(exited_count)),
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
    /// Makes the details of an answer.
    pub(super) fn of(requested: DetailRequest, profile: Profile, note: Option<String>) -> Detail {
        let seconds = profile.window.filter(|_| requested.kind == Kind::Alloc).map(|window| {
            // Nothing was seen of the process before its attach.
            let start = window.start_unix_ns.max(requested.attached_unix_ns);
            window.end_unix_ns.saturating_sub(start) as f64 / 1e9
        });
        Detail {
            functions: Functions::of(&profile),
            seconds: seconds.filter(|seconds| *seconds > 0.0),
            requested,
            profile,
            note,
        }
    }

    /// Returns an estimate as it is shown: per second if the profile covers a window. The window's
    /// length is exact.
    pub(super) fn shown(&self, of: Estimate) -> Estimate {
        let by = 1.0 / self.seconds.unwrap_or(1.0);
        Estimate { value: of.value * by, low: of.low * by, high: of.high * by, ..of }
    }

    /// Returns the estimate of one stack.
    pub(super) fn of_stack(&self, index: usize) -> Estimate {
        self.shown(self.profile.stacks[index].quantities.space(self.profile.kind).estimate)
    }

    /// Returns the exact allocated bytes, if known; per second if the profile covers a window.
    pub(super) fn exact(&self) -> Option<f64> {
        let exact = self.profile.exact.filter(|_| self.requested.kind == Kind::Alloc)?;
        Some(exact.alloc_space as f64 / self.seconds.unwrap_or(1.0))
    }

    /// Returns the estimate of the whole profile.
    pub(super) fn total(&self) -> Estimate {
        self.shown(self.profile.totals.space(self.profile.kind).estimate)
    }
}
