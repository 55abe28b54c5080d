//! The worker's reports in the protocol's form.

use super::{convert, v1};
use crate::pipeline::{ProbeReport, ProcessReport, SamplingReport, StatusReport};
use sampler_common::counting::Count;
use sampler_common::estimate::{Confidence, Estimator};
use sampler_common::profile::Quantities;
use sampler_common::units;
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) fn sampling(report: &SamplingReport) -> v1::ProcessInterval {
    v1::ProcessInterval {
        pid: report.pid,
        interval_bytes: report.interval_bytes,
        strategy: report.asked.strategy.name().to_owned(),
        one_in: report.one_in.unwrap_or(0.0),
        samples_per_second: report.asked.samples_per_second.unwrap_or(0.0),
    }
}

pub(super) fn status(report: StatusReport) -> v1::StatusResponse {
    let settings = report.settings;
    v1::StatusResponse {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        probe_engine: settings.engine.name().to_owned(),
        unwind: if settings.frame_pointers { "fp" } else { "dwarf" }.to_owned(),
        live_tracking: settings.track_live,
        max_live: u64::from(settings.max_live),
        live_samples: report.live_samples,
        snapshot_bytes: settings.snapshot_bytes,
        ring_bytes: u64::from(settings.ring_bytes),
        uptime_ns: report.uptime.as_nanos() as u64,
        outcomes: report
            .outcomes
            .iter()
            .map(|(outcome, count)| v1::Outcome { name: outcome.name().to_owned(), count: *count })
            .collect(),
        intervals: report.intervals.iter().map(sampling).collect(),
        probes: report.probes.into_iter().map(probe).collect(),
        pid: std::process::id(),
        blind: report.blind,
        tables: report
            .tables
            .into_iter()
            .map(|(name, used, bound)| v1::Table { name: name.to_owned(), used, bound })
            .collect(),
        process_events: report.process_events.map(|of| v1::ProcessEvents {
            read: of.read,
            lost: of.lost,
            images_refused: of.images_refused,
            files_missed: of.files_missed,
        }),
    }
}

fn probe(report: ProbeReport) -> v1::Probe {
    let function = report.function;
    v1::Probe {
        path: report.path,
        build_id: report.build_id,
        symbols: function.symbols,
        role: format!("{:?}", function.role).to_lowercase(),
        function_offset: function.offset,
        displacement: function.placement.displacement,
        instruction: function.placement.instruction,
        emulated: function.placement.emulated,
        reason: function.placement.reason,
        pids: report.pids,
        hits: report.hits.map(count),
    }
}

fn count(count: Count) -> v1::Count {
    v1::Count { value: count.value, low: count.low, high: count.high }
}

fn unix_ns(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

pub(super) fn process(report: &ProcessReport) -> v1::Process {
    let record = &report.record;
    let (row, reference) = (&report.totals, &report.reference);
    let totals = Quantities::of_row(row, reference, Estimator::default(), Confidence::DEFAULT);
    v1::Process {
        pid: record.pid,
        comm: record.comm.clone(),
        exe: record.exe.clone(),
        state: if record.exited.is_some() { "exited" } else { "running" }.to_owned(),
        attached_unix_ns: unix_ns(record.attached),
        exited_unix_ns: record.exited.map_or(0, unix_ns),
        images: record.images,
        interval_bytes: units::whole_interval(record.sampling.interval_bytes),
        exact: Some(v1::Exact {
            alloc_objects: report.exact.alloc_objects,
            alloc_space: report.exact.alloc_space,
        }),
        totals: Some(convert::quantities_to_wire(&totals)),
        samples: report.samples,
        allocators: record.allocators.clone(),
        blind: record.blind.clone(),
        free_calls: report.free_calls.map(count),
        sampling: Some(sampling(&SamplingReport::new(record.pid, &record.sampling))),
    }
}
