//! Metrics of the daemon: outcomes and losses, tables, ring buffer, times, back-pressure and the
//! daemon's own cost.

use super::page::{Kind, Page};
use crate::pipeline::{MetricsReport, StatusReport};
use sampler_common::counters::Outcome;

/// Outcomes that mean that data is missing or had to be repaired.
pub(in crate::http) const LOSSES: [Outcome; 25] = [
    Outcome::PendingFull,
    Outcome::PendingReplaced,
    Outcome::StaleReturn,
    Outcome::RingFull,
    Outcome::LostCellsFull,
    Outcome::LiveFull,
    Outcome::LiveReplaced,
    Outcome::FreeRingFull,
    Outcome::RestoreFailed,
    Outcome::ReadFault,
    Outcome::UsdtFlood,
    Outcome::MappingRingFull,
    Outcome::EventRingFull,
    Outcome::RingShare,
    Outcome::FreeRingShare,
    Outcome::Malformed,
    Outcome::UnknownProcess,
    Outcome::ReturnLost,
    Outcome::StackTableFull,
    Outcome::StacksDiscarded,
    Outcome::WindowsFull,
    Outcome::LifetimesFull,
    Outcome::StreamLagged,
    Outcome::LibraryFull,
    Outcome::LibraryLate,
];

pub(super) fn write(report: &MetricsReport, page: &mut Page) {
    let status = &report.status;
    about(status, page);
    counts(status, page);
    ring(status, page);
    tables(status, page);
    times(status, page);
    pressure(status, page);
}

fn about(status: &StatusReport, page: &mut Page) {
    let settings = &status.settings;
    let unwind = if settings.frame_pointers { "fp" } else { "dwarf" };
    page.family("sampler_build_info", Kind::Gauge, "Version, and how it probes and unwinds")
        .sample(
            &[
                ("version", env!("CARGO_PKG_VERSION")),
                ("probe_engine", settings.engine.name()),
                ("unwind", unwind),
            ],
            1.0,
        );
    page.gauge("sampler_uptime_seconds", "Time since the start", status.uptime.as_secs_f64());
    page.counter(
        "process_cpu_seconds_total",
        "CPU time of samplerd itself, user and system",
        status.processor_ns as f64 / 1e9,
    );
    if let Some(bytes) = status.rss_bytes {
        let help = "Resident memory of samplerd itself";
        page.gauge("process_resident_memory_bytes", help, bytes as f64);
    }
}

fn counts(status: &StatusReport, page: &mut Page) {
    let mut family = page.family(
        "sampler_outcomes_total",
        Kind::Counter,
        "How samples, and calls that were looked at, ended",
    );
    for (outcome, count) in &status.outcomes {
        family.sample(&[("outcome", outcome.name())], *count as f64);
    }
    let mut family = page.family(
        "sampler_losses_total",
        Kind::Counter,
        "What was lost on the way, by reason; totals stay right where sizes are known",
    );
    for (outcome, count) in status.outcomes.iter().filter(|(of, _)| LOSSES.contains(of)) {
        family.sample(&[("reason", outcome.name())], *count as f64);
    }
    let lost = status.process_events.map_or(0, |of| of.lost);
    family.sample(&[("reason", "process_events")], lost as f64);
    page.counter(
        "sampler_unseen_calls_total",
        "Calls of processes that should be profiled and found no slot",
        status.unseen_calls as f64,
    );
    page.counter(
        "sampler_excluded_calls_total",
        "Calls of excluded processes, which pay the trap where links are shared",
        status.excluded_calls as f64,
    );
}

fn ring(status: &StatusReport, page: &mut Page) {
    let size = f64::from(status.settings.ring_bytes);
    page.gauge("sampler_ring_size_bytes", "Size of the ring between kernel and samplerd", size);
    let waiting = status.reading.ring_waiting_bytes as f64;
    page.gauge(
        "sampler_ring_waiting_bytes",
        "Bytes that waited in it when samplerd last woke",
        waiting,
    );
    let help = "How full it was each time that samplerd woke";
    page.family("sampler_ring_fill_ratio", Kind::Histogram, help)
        .histogram(&[], &status.reading.ring_fill);
}

fn tables(status: &StatusReport, page: &mut Page) {
    let help = "Sampled blocks that are held: entries of the live set";
    page.gauge("sampler_live_samples", help, status.live_samples as f64);
    let mut family =
        page.family("sampler_table_entries", Kind::Gauge, "Entries of samplerd's tables");
    for (table, used, _) in &status.tables {
        family.sample(&[("table", table)], *used as f64);
    }
    let help = "Most entries of samplerd's tables";
    let mut family = page.family("sampler_table_entries_limit", Kind::Gauge, help);
    for (table, _, bound) in &status.tables {
        family.sample(&[("table", table)], *bound as f64);
    }
}

fn times(status: &StatusReport, page: &mut Page) {
    let help = "Time from a question to the answer of the worker, without names and encoding";
    let mut family = page.family("sampler_answer_duration_seconds", Kind::Histogram, help);
    for (question, times) in &status.answers {
        family.histogram(&[("question", question)], times);
    }
    let help = "Time from a sampled allocation to its sample in the store";
    page.family("sampler_sample_delay_seconds", Kind::Histogram, help)
        .histogram(&[], &status.reading.delays);
}

fn pressure(status: &StatusReport, page: &mut Page) {
    let each = || status.intervals.iter().map(|of| &of.pressure);
    let factor = each().map(|of| of.raised.factor()).fold(1.0, f64::max);
    let help =
        "Largest interval in force by the one asked for: above 1 where samples come too fast";
    page.gauge("sampler_back_pressure_ratio", help, factor);
    let raised = each().filter(|of| of.raised.factor() > 1.0).count() as f64;
    let by_ring = each().filter(|of| of.is_raised_by_ring).count() as f64;
    page.family(
        "sampler_back_pressure_processes",
        Kind::Gauge,
        "Processes whose interval is raised now, by the limit of samples or by the full ring",
    )
    .sample(&[("cause", "limit")], raised)
    .sample(&[("cause", "ring")], by_ring);
    if status.limits.daemon.is_finite() {
        let help = "Most samples in a second";
        page.gauge("sampler_samples_per_second_limit", help, status.limits.daemon);
    }
}
