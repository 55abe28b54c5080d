//! Metrics of processes: costs, samples, allocations, and how they are sampled.

use super::ledger::{Accounts, MAX_NAMED, Shown};
use super::page::{Kind, Page};
use crate::pipeline::{MetricsReport, SamplingReport};
use sampler_common::cost::Range;

const NS_PER_SECOND: f64 = 1e9;

/// The label of the processes without their own series, in place of pid and command name.
const OTHER: &str = "other";

/// One of the numbers; `None` if unknown.
type Number = fn(&Shown) -> Option<f64>;

/// A number that describes how a process is sampled.
type Gauge = fn(&SamplingReport) -> f64;

/// Names after `sampler_` or `sampler_process_`, help texts and numbers.
const COUNTERS: [(&str, &str, Number); 6] = [
    ("probe_cpu_seconds_total", "CPU time spent in probes, estimated from measured prices", |of| {
        spent(of, |range| range.value)
    }),
    (
        "probe_cpu_low_seconds_total",
        "Lower end of the 95 % interval of the CPU time spent in probes",
        |of| spent(of, |range| range.low),
    ),
    (
        "probe_cpu_high_seconds_total",
        "Upper end of the 95 % interval of the CPU time spent in probes",
        |of| spent(of, |range| range.high),
    ),
    ("samples_total", "Sampled allocations", |of| Some(of.samples as f64)),
    (
        "allocated_bytes_total",
        "Bytes allocated since attach (with --windows: in windows), counted exactly by malloc probes",
        |of| of.is_counted.then_some(of.bytes as f64),
    ),
    (
        "allocations_total",
        "Allocations since attach (with --windows: in windows), counted exactly by malloc probes",
        |of| of.is_counted.then_some(of.objects as f64),
    ),
];

fn spent(of: &Shown, end: fn(&Range) -> f64) -> Option<f64> {
    of.spent_ns.as_ref().map(|range| end(range) / NS_PER_SECOND)
}

pub(super) fn write(report: &MetricsReport, accounts: &Accounts, page: &mut Page) {
    let running = report.processes.iter().filter(|of| of.is_running).count() as f64;
    let records = report.processes.iter().filter(|of| !of.is_running && of.pid != 0).count();
    page.family("sampler_processes", Kind::Gauge, "Processes that are or were profiled")
        .sample(&[("state", "running")], running)
        .sample(&[("state", "exited")], records as f64 + report.folded as f64);
    for (name, help, number) in COUNTERS {
        if let Some(value) = number(&accounts.total) {
            page.counter(&format!("sampler_{name}"), &format!("{help}, all processes"), value);
        }
    }
    for (name, help, number) in COUNTERS {
        each(name, help, number, accounts, page);
    }
    sampling(report, accounts, page);
}

/// Writes a family: one series for each process in `accounts.named`, and one for all other
/// processes.
fn each(name: &str, help: &str, number: Number, accounts: &Accounts, page: &mut Page) {
    if number(&accounts.total).is_none() {
        return;
    }
    let name = format!("sampler_process_{name}");
    let help = format!("{help}: the {MAX_NAMED} costliest processes that run, others summed");
    let mut family = page.family(&name, Kind::Counter, &help);
    for process in &accounts.named {
        let pid = process.pid.to_string();
        if let Some(value) = number(&process.shown) {
            family.sample(&[("pid", &pid), ("comm", &process.comm)], value);
        }
    }
    if let Some(value) = number(&accounts.other) {
        family.sample(&[("pid", OTHER), ("comm", OTHER)], value);
    }
}

/// Writes how the processes are sampled now.
fn sampling(report: &MetricsReport, accounts: &Accounts, page: &mut Page) {
    let each = accounts.named.iter().filter_map(|process| {
        let sampling = report.status.intervals.iter().find(|of| of.pid == process.pid)?;
        Some((process, sampling))
    });
    let gauges: [(&str, &str, Gauge); 2] = [
        ("sampler_process_interval_bytes", "Mean bytes between samples in force", |of| {
            of.interval_bytes as f64
        }),
        (
            "sampler_process_back_pressure_ratio",
            "Interval in force by the one asked for: above 1 where samples come too fast",
            |of| of.pressure.raised.factor(),
        ),
    ];
    for (name, help, number) in gauges {
        let mut family = page.family(name, Kind::Gauge, help);
        for (process, sampling) in each.clone() {
            let pid = process.pid.to_string();
            family.sample(&[("pid", &pid), ("comm", &process.comm)], number(sampling));
        }
    }
}
