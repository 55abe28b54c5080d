//! The worker's reports in the protocol's form.

use super::convert::{cost, forecast, sources};
use super::{convert, histograms, v1};
use crate::export::{Counts, Exports};
use crate::inspect::process::memory::Memory;
use crate::pipeline::{
    Exclusion, GroupReport, PressureReport, ProbeReport, ProcessReport, ProcessSums,
    SamplingReport, StatusReport,
};
use crate::store::mapped::{ProcessTotals, Totals};
use sampler_common::counters::Outcome;
use sampler_common::counting::Count;
use sampler_common::estimate::{Confidence, Estimator};
use sampler_common::note::{BlindSpot, Processes};
use sampler_common::pressure::Cause;
use sampler_common::profile::{Exact, Quantities};
use sampler_common::sampling::Strategy;
use sampler_common::units;
use sampler_common::windows::Budget;
use sampler_common::wire::Role;
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) fn sampling(report: &SamplingReport) -> v1::ProcessInterval {
    v1::ProcessInterval {
        pid: report.pid,
        interval_bytes: report.interval_bytes,
        strategy: match report.is_self_sampled {
            true => Strategy::External.name().to_owned(),
            false => report.requested.strategy.name().to_owned(),
        },
        one_in: report.one_in.unwrap_or(0.0),
        samples_per_second: report.requested.samples_per_second.unwrap_or(0.0),
        samples_itself: report.samples_itself,
        pressure: pressure(&report.pressure),
        preloaded: report.preloaded,
        sources: sources::to_wire(report.sources),
    }
}

fn pressure(of: &PressureReport) -> Option<v1::Pressure> {
    let limit = match of.raised.cause {
        _ if of.raised.raises == 0 => "",
        Cause::Process => "process",
        Cause::Daemon => "daemon",
    };
    (of.raised.raises + of.ring_raises > 0).then(|| v1::Pressure {
        factor: of.raised.factor(),
        limit: limit.to_owned(),
        raises: of.raised.raises,
        since_unix_ns: of.since.map_or(0, unix_ns),
        ring_raises: of.ring_raises,
        ring_factor: of.ring_factor,
        ring_fills: of.is_raised_by_ring,
    })
}

pub(super) fn status(report: StatusReport, exports: &Exports) -> v1::StatusResponse {
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
        outcomes: outcomes(&report.outcomes),
        intervals: report.intervals.iter().map(sampling).collect(),
        probes: report.probes.into_iter().map(probe).collect(),
        pid: std::process::id(),
        blind_spots: report.blind_spots,
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
        coverage: report.coverage.into_iter().map(blind_spot).collect(),
        excluded_calls: report.excluded_calls,
        excluded: report.excluded.into_iter().map(exclusion).collect(),
        unseen_calls: report.unseen_calls,
        prices: Some(cost::prices(&report.prices)),
        forecasts: report.forecasts.iter().map(|(pid, of)| forecast::to_wire(*pid, of)).collect(),
        cost: Some(cost::to_wire(&report.cost)),
        daemon_processor_ns: report.processor_ns,
        daemon_starting_ns: report.starting_ns,
        max_samples_per_second: finite(report.limits.daemon),
        max_samples_per_process: finite(report.limits.process),
        max_samples_per_preloaded: finite(report.limits.library),
        windows: report.settings.windows.map_or(0.0, Budget::share),
        histograms: histograms::all(
            &report.answers,
            &report.reading.delays,
            &report.reading.ring_fill,
        ),
        daemon_rss_bytes: report.rss_bytes.unwrap_or(0),
        exports: exports.counts().into_iter().map(|of| export(of, exports)).collect(),
    }
}

fn export(of: Counts, exports: &Exports) -> v1::Export {
    v1::Export {
        destination: of.destination,
        made: of.made,
        sent: of.sent,
        sent_bytes: of.sent_bytes,
        refused: of.refused,
        dropped: of.dropped,
        waiting: of.waiting,
        waiting_bytes: of.waiting_bytes,
        retried: of.retried,
        rejected_profiles: of.rejected_profiles,
        last_error: of.last_error,
        uncovered_ns: exports.uncovered_ns(),
        kept_bytes: of.kept_bytes,
        removed_files: of.removed_files,
        removed_bytes: of.removed_bytes,
        left_out: exports.is_left_out(),
    }
}

fn finite(limit: f64) -> f64 {
    if limit.is_finite() { limit } else { 0.0 }
}

fn blind_spot(of: Processes) -> v1::BlindSpot {
    let (pids, comms) = of.examples.into_iter().unzip();
    v1::BlindSpot { why: of.reason.to_string(), processes: of.count, pids, comms, place: of.place }
}

fn exclusion((of, processes): (Exclusion, u64)) -> v1::Exclusion {
    let (criterion, reason) = (of.criterion.to_string(), of.reason.to_owned());
    v1::Exclusion { criterion, reason, processes }
}

fn outcomes(outcomes: &[(Outcome, u64)]) -> Vec<v1::Outcome> {
    let outcome = |(outcome, count): &(Outcome, u64)| v1::Outcome {
        name: outcome.name().to_owned(),
        count: *count,
    };
    outcomes.iter().map(outcome).collect()
}

fn probe(report: ProbeReport) -> v1::Probe {
    let function = report.function;
    v1::Probe {
        path: report.path,
        build_id: report.build_id,
        symbols: function.symbols,
        role: role(function.role),
        function_offset: function.offset,
        displacement: function.placement.displacement,
        instruction: function.placement.instruction,
        emulated: function.placement.emulated,
        reason: function.placement.reason,
        pids: report.pids,
        hits: report.hits.map(count),
        hit_ns: report.per_hit.map(cost::measured),
        spent_ns: report.spent.map(cost::interval),
    }
}

fn role(role: Role) -> String {
    match role {
        Role::OtelAlloc => "otel_alloc".to_owned(),
        Role::OtelFree => "otel_free".to_owned(),
        Role::LibraryEnded => "library_ended".to_owned(),
        role => format!("{role:?}").to_lowercase(),
    }
}

fn count(count: Count) -> v1::Count {
    v1::Count { value: count.value, low: count.low, high: count.high }
}

fn mappings(of: ProcessTotals) -> v1::Mappings {
    let by = |of: Totals| v1::MappedBy {
        bytes: of.mapped.bytes,
        calls: of.mapped.calls,
        held_bytes: of.held.bytes,
        held_calls: of.held.calls,
    };
    v1::Mappings {
        directly: Some(by(of.directly)),
        by_allocators: Some(by(of.by_allocators)),
        by_unknown: Some(by(of.by_unknown)),
    }
}

fn unix_ns(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

pub(super) fn process(report: &ProcessReport) -> v1::Process {
    let record = &report.record;
    v1::Process {
        pid: record.pid,
        comm: record.comm.clone(),
        exe: record.exe.clone(),
        state: if record.exited.is_some() { "exited" } else { "running" }.to_owned(),
        attached_unix_ns: unix_ns(record.attached),
        exited_unix_ns: record.exited.map_or(0, unix_ns),
        images: record.images,
        interval_bytes: units::whole_interval(record.sampling.shown_interval()),
        exact: report.sums.exact.map(exact),
        samples_itself: record.sampling.samples_itself,
        totals: Some(totals(&report.sums)),
        samples: report.sums.samples,
        allocators: record.allocators.clone(),
        allocator_in_force: record.in_force.clone(),
        blind_spots: record.blind_spots.iter().map(BlindSpot::to_string).collect(),
        mappings: report.mappings.map(mappings),
        free_calls: report.free_calls.map(count),
        exited_count: record.exited_count,
        bounds: outcomes(&report.bounds),
        sampling: Some(sampling(&SamplingReport::new(record))),
        cgroup: record.origin.cgroup.clone(),
        container: record.origin.container.clone(),
        started_unix_ns: record.origin.started.map_or(0, unix_ns),
        memory: memory(&report.sums),
        cost: Some(cost::to_wire(&report.sums.cost)),
    }
}

pub(super) fn group(report: &GroupReport) -> v1::ProcessGroup {
    v1::ProcessGroup {
        key: report.key.clone(),
        processes: report.processes,
        running: report.running,
        pids: report.pids.clone(),
        exact: report.sums.exact.map(exact),
        totals: Some(totals(&report.sums)),
        samples: report.sums.samples,
        memory: memory(&report.sums),
        newest_unix_ns: unix_ns(report.newest),
        sources: sources::groups_to_wire(&report.sources),
        cost: Some(cost::to_wire(&report.sums.cost)),
    }
}

fn exact(of: Exact) -> v1::Exact {
    v1::Exact { alloc_objects: of.alloc_objects, alloc_space: of.alloc_space }
}

fn totals(of: &ProcessSums) -> v1::Quantities {
    let (estimator, confidence) = (Estimator::default(), Confidence::DEFAULT);
    let totals = Quantities::of_row(&of.totals, &of.reference, estimator, confidence);
    convert::quantities_to_wire(&totals)
}

fn memory(of: &ProcessSums) -> Option<v1::Memory> {
    let Memory { rss_bytes, anonymous_bytes, heap_bytes } = of.memory?;
    // No block is smaller than its requested size.
    let usable = of.usable.sums.ratio(1.0, Confidence::DEFAULT);
    Some(v1::Memory {
        rss_bytes,
        anonymous_bytes,
        heap_bytes,
        usable_ratio: usable.map(|of| v1::Interval { value: of.value, low: of.low, high: of.high }),
        usable_samples: usable.map_or(0, |of| of.samples),
        usable_refused: of.usable.refused,
    })
}
