//! `sampler status`: what samplerd does, where its probes are, and what it lost.

pub(crate) mod cost;
mod exports;
mod hits;
mod pressure;
mod text;
mod times;

use crate::connect::{self, Address};
use crate::{output, page, source};
use anyhow::Result;
pub(crate) use pressure::raised;
use sampler_daemon::rpc::v1::{
    BlindSpot, Count, Exclusion, Outcome, Probe, ProcessInterval, StatusRequest, StatusResponse,
};
use serde_json::{Map, Value, json};

pub(crate) async fn run(address: &Address, json: bool) -> Result<()> {
    let mut client = connect::client(address).await?;
    let answer = client.status(StatusRequest {}).await;
    let status = answer.map_err(|status| connect::failed(address, &status))?.into_inner();
    cost::report(address, status.cost.as_ref())?;
    let sources = status.intervals.iter().map(|of| (of, of.pid.to_string()));
    let sources = source::text(address, sources)?;
    let contents = if json {
        format!("{}\n", object(&status))
    } else {
        text::table(&status, &sources, page::width())
    };
    output::print(contents.as_bytes())
}

/// The JSON form; its keys are stable.
fn object(status: &StatusResponse) -> Value {
    let tables: Map<String, Value> = status
        .tables
        .iter()
        .map(|of| (of.name.clone(), json!({ "used": of.used, "bound": of.bound })))
        .collect();
    json!({
        "version": status.version,
        "pid": status.pid,
        "uptime_ns": status.uptime_ns,
        "probe_engine": status.probe_engine,
        "unwind": status.unwind,
        "snapshot_bytes": status.snapshot_bytes,
        "ring_bytes": status.ring_bytes,
        "live_tracking": status.live_tracking,
        "max_live": status.max_live,
        "live_samples": status.live_samples,
        "outcomes": outcomes(&status.outcomes),
        "intervals": intervals(&status.intervals),
        "probes": status.probes.iter().map(probe).collect::<Vec<_>>(),
        "tables": tables,
        "blind": status.blind_spots,
        "process_events": status.process_events.as_ref().map(|of| json!({
            "read": of.read,
            "lost": of.lost,
            "images_refused": of.images_refused,
            "files_missed": of.files_missed,
        })),
        "coverage": status.coverage.iter().map(blind_spot).collect::<Vec<_>>(),
        "excluded": status.excluded.iter().map(excluded).collect::<Vec<_>>(),
        "excluded_calls": status.excluded_calls,
        "unseen_calls": status.unseen_calls,
        "cost": cost::object(status.cost.as_ref()),
        "forecasts": status.forecasts.iter().map(cost::forecast).collect::<Vec<_>>(),
        "prices": status.prices.as_ref().map(cost::prices_object),
        "daemon_processor_ns": status.daemon_processor_ns,
        "daemon_starting_ns": status.daemon_starting_ns,
        "daemon_rss_bytes": Some(status.daemon_rss_bytes).filter(|bytes| *bytes > 0),
        "max_samples_per_second": pressure::limit(status.max_samples_per_second),
        "windows": (status.windows > 0.0).then_some(status.windows),
        "max_samples_per_process": pressure::limit(status.max_samples_per_process),
        "max_samples_per_preloaded": pressure::limit(status.max_samples_per_preloaded),
        "exports": status.exports.iter().map(exports::object).collect::<Vec<_>>(),
        "histograms": status.histograms.iter().map(times::object).collect::<Vec<_>>(),
    })
}

/// Counters by name, in JSON.
pub(crate) fn outcomes(of: &[Outcome]) -> Value {
    of.iter().map(|of| (of.name.clone(), of.count.into())).collect::<Map<String, Value>>().into()
}

/// How processes are sampled, in JSON.
pub(crate) fn intervals(of: &[ProcessInterval]) -> Value {
    of.iter().map(sampling).collect()
}

/// How a process is sampled, in JSON.
pub(crate) fn sampling(of: &ProcessInterval) -> Value {
    let some = |number: f64| Some(number).filter(|number| *number > 0.0);
    json!({
        "pid": of.pid,
        "interval_bytes": of.interval_bytes,
        "strategy": of.strategy,
        "one_in": some(of.one_in),
        "samples_per_second": some(of.samples_per_second),
        "samples_itself": of.samples_itself,
        "preloaded": of.preloaded,
        "sources": source::names(of),
        "pressure": of.pressure.as_ref().map(pressure::object),
    })
}

fn blind_spot(of: &BlindSpot) -> Value {
    json!({
        "why": of.why,
        "processes": of.processes,
        "pids": of.pids,
        "comms": of.comms,
        "place": of.place,
    })
}

fn excluded(of: &Exclusion) -> Value {
    let reason = Some(&of.reason).filter(|reason| !reason.is_empty());
    json!({ "criterion": of.criterion, "reason": reason, "processes": of.processes })
}

fn probe(probe: &Probe) -> Value {
    json!({
        "path": probe.path,
        "build_id": probe.build_id,
        "symbols": probe.symbols,
        "role": probe.role,
        "function_offset": probe.function_offset,
        "displacement": probe.displacement,
        "instruction": probe.instruction,
        "emulated": probe.emulated,
        "reason": probe.reason,
        "pids": probe.pids,
        "hits": probe.hits.as_ref().map(count),
        "hit_ns": probe.hit_ns.as_ref().map(cost::interval),
        "spent_ns": probe.spent_ns.as_ref().map(cost::interval),
    })
}

/// A count with its interval in JSON.
pub(crate) fn count(of: &Count) -> Value {
    json!({ "value": of.value, "low": of.low, "high": of.high })
}
