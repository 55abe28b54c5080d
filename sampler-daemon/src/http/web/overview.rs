//! The part of the page that is always visible: the daemon, the cost of profiling, losses, and the
//! processes with their numbers.

use crate::http::metrics::LOSSES;
use crate::pipeline::{GroupReport, Listing, ProcessReport, ProcessSums, StatusReport};
use sampler_common::encode::json;
use sampler_common::encode::name::shown;
use sampler_common::estimate::{Confidence, Estimator};
use sampler_common::profile::Quantities;
use sampler_common::units;
use serde_json::{Value, json};

/// Encodes the daemon's report on itself and its processes.
pub(super) fn overview(status: &StatusReport, listing: &Listing) -> Value {
    let settings = &status.settings;
    let processes = listing.processes.iter().map(process);
    let groups = listing.groups.iter().map(group);
    let blind_spots = status.coverage.iter().map(|of| match of.count {
        1 => shown(&of.reason.to_string()).into_owned(),
        n => format!("{} ({n} processes)", shown(&of.reason.to_string())),
    });
    let blind_spots: Vec<String> =
        status.blind_spots.iter().map(|of| shown(of).into_owned()).chain(blind_spots).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "uptime_ns": status.uptime.as_nanos() as u64,
        "probe_engine": settings.engine.name(),
        "unsupported": unsupported(status),
        "live_samples": status.live_samples,
        "max_live": settings.max_live,
        "daemon_processor_ns": status.processor_ns,
        "daemon_rss_bytes": status.rss_bytes,
        "cost": json::cost(&status.cost),
        "cost_text": shown(&status.cost.text()),
        "losses": losses(status),
        "unseen_calls": status.unseen_calls,
        "blind": blind_spots,
        "raised": raised(status),
        "processes": processes.chain(groups).collect::<Vec<_>>(),
    })
}

/// What is not known and why, by name.
fn unsupported(status: &StatusReport) -> Value {
    status.unsupported.iter().map(|(name, why)| ((*name).to_owned(), json!(why))).collect()
}

/// Losses by reason, as `/metrics` counts them.
fn losses(status: &StatusReport) -> Value {
    let lost = status.outcomes.iter().filter(|(of, count)| LOSSES.contains(of) && *count > 0);
    let events = status.process_events.map_or(0, |of| of.lost);
    let events = Some(("process_events", events)).filter(|(_, count)| *count > 0);
    let all = lost.map(|(outcome, count)| (outcome.name(), *count)).chain(events);
    all.map(|(name, count)| json!({ "reason": name, "count": count })).collect()
}

/// Returns the processes whose interval is raised now.
fn raised(status: &StatusReport) -> Vec<u32> {
    let is_raised = |of: &&crate::pipeline::SamplingReport| {
        of.pressure.raised.factor() > 1.0 || of.pressure.is_raised_by_ring
    };
    status.intervals.iter().filter(is_raised).map(|of| of.pid).collect()
}

fn process(of: &ProcessReport) -> Value {
    let record = &of.record;
    let mut value = numbers(&of.sums);
    value["pid"] = json!(record.pid);
    value["comm"] = json!(shown(&record.comm));
    value["exe"] = json!(if record.exe.is_empty() { "".into() } else { shown(&record.exe) });
    value["running"] = json!(record.exited.is_none());
    value["folded"] = json!(record.exited_count);
    value["interval_bytes"] = json!(units::whole_interval(record.sampling.shown_interval()));
    value["blind"] =
        record.blind_spots.iter().map(|of| shown(&of.to_string()).into_owned()).collect();
    value
}

/// Encodes the exited processes of one name.
fn group(of: &GroupReport) -> Value {
    let mut value = numbers(&of.sums);
    value["comm"] = json!(shown(&of.key));
    value["running"] = json!(false);
    value["folded"] = json!(of.processes);
    value
}

fn numbers(of: &ProcessSums) -> Value {
    // The estimator and confidence of `ListProcesses`.
    let (estimator, confidence) = (Estimator::default(), Confidence::DEFAULT);
    let totals = Quantities::of_row(&of.totals, &of.reference, estimator, confidence);
    json!({
        "totals": json::quantities(&totals),
        "held_known": !of.reference.held_unknown,
        "exact_space": of.exact.map(|exact| exact.alloc_space),
        "samples": of.samples,
        "rss_bytes": of.memory.map(|memory| memory.rss_bytes),
        "cost": json::cost(&of.cost),
    })
}
