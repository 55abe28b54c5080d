//! Metrics of pushes, by destination.

use super::page::{Kind, Page};
use crate::export::{Counts, Exports};

/// A metric of a destination: its name, kind, help and value.
type Number = (&'static str, Kind, &'static str, fn(&Counts) -> u64);

const NUMBERS: [Number; 8] = [
    ("waiting_requests", Kind::Gauge, "Requests that wait", |of| of.waiting),
    ("waiting_bytes", Kind::Gauge, "Bytes of the requests that wait", |of| of.waiting_bytes),
    ("sent_bytes_total", Kind::Counter, "Bytes of the requests that were taken", |of| {
        of.sent_bytes
    }),
    ("retries_total", Kind::Counter, "Attempts that failed and are repeated", |of| of.retried),
    (
        "rejected_profiles_total",
        Kind::Counter,
        "Profiles that a backend left out of requests that it took",
        |of| of.rejected_profiles,
    ),
    ("kept_bytes", Kind::Gauge, "Bytes of this host's files in a folder", |of| of.kept_bytes),
    (
        "removed_files_total",
        Kind::Counter,
        "Files that were removed from a folder, to keep it within its bounds",
        |of| of.removed_files,
    ),
    ("removed_bytes_total", Kind::Counter, "Bytes of the files that were removed", |of| {
        of.removed_bytes
    }),
];

/// Writes the metrics; nothing if nothing is pushed.
pub(super) fn write(of: &Exports, page: &mut Page) {
    let exports = of.counts();
    if exports.is_empty() {
        return;
    }
    let help = "Requests to backends that have ended, by how";
    let mut family = page.family("sampler_export_requests_total", Kind::Counter, help);
    for of in &exports {
        let ends = [("sent", of.sent), ("refused", of.refused), ("dropped", of.dropped)];
        for (end, count) in ends {
            family.sample(&[("destination", &of.destination), ("outcome", end)], count as f64);
        }
    }
    for (name, kind, help, number) in NUMBERS {
        let name = format!("sampler_export_{name}");
        let mut family = page.family(&name, kind, help);
        for of in &exports {
            family.sample(&[("destination", &of.destination)], number(of) as f64);
        }
    }
    let help = "Time that is in no window that was pushed";
    page.counter("sampler_export_missed_seconds_total", help, of.uncovered_ns() as f64 / 1e9);
    let help = "1 if this host is among those that send stacks today (--export-share), else 0";
    page.gauge("sampler_export_drawn", help, f64::from(u8::from(!of.is_left_out())));
}
