//! The text of `sampler status`.

use super::cost;
use super::hits::{Hits, symbol};
use super::{exports, pressure, times};
use crate::set::sentence;
use sampler_common::encode::name::shown;
use sampler_common::encode::text::layout::{end, left, middle, paragraph, right, wrapped};
use sampler_common::units::{grouped, human_bytes, human_duration};
use sampler_daemon::rpc::v1::{Probe, StatusResponse};
use std::collections::BTreeMap;
use std::time::Duration;

const LABEL: usize = 10;
/// Widths of a probe's symbol, hits, displacement and mode.
const SYMBOL: usize = 17;
const HITS: usize = "with aligned_alloc".len();
const DISPLACEMENT: usize = 5;
const MODE: usize = "single-stepped".len();
const PRICE: usize = "19.0 µs".len() - 1;
const MIN_WIDTH: usize = 72;
/// Maximum number of processes that are named for one way of sampling. Further processes are only
/// counted.
const PIDS: usize = 8;

/// Formats the whole status, at most `width` columns wide (72 at least). `sources` says where each
/// process's samples come from.
pub(super) fn table(status: &StatusResponse, sources: &str, width: usize) -> String {
    let mut page = Page { width: width.max(MIN_WIDTH), out: String::new() };
    page.line(&format!(
        "samplerd {}, pid {}, up {}",
        shown(&status.version),
        status.pid,
        human_duration(Duration::from_nanos(status.uptime_ns))
    ));
    page.paragraph("engine", &engine(status));
    page.paragraph("live set", &live_set(status));
    page.paragraph("ring", &human_bytes(status.ring_bytes as f64));
    page.paragraph("sampling", &intervals(status));
    page.paragraph("source", sources);
    page.paragraph("cost", &cost::text(status));
    cost::forecasts(status).iter().for_each(|line| page.paragraph("forecast", line));
    page.paragraph("prices", &cost::prices(status));
    page.paragraph("daemon", &cost::daemon(status));
    if status.windows > 0.0 {
        let percent = (status.windows * 1e6).round() / 1e4;
        page.paragraph("windows", &format!("{percent} % of each process's CPU time (--windows)"));
    }
    page.paragraph("limits", &pressure::limits(status));
    if let Some(times) = times::text(&status.histograms) {
        page.paragraph("times", &times);
    }
    for of in pressure::raised(status.intervals.iter()) {
        page.paragraph("raised", &of);
    }
    let tables = status
        .tables
        .iter()
        .map(|of| format!("{} {} of {}", shown(&of.name), grouped(of.used), grouped(of.bound)));
    if status.unseen_calls > 0 {
        page.paragraph(
            "unseen",
            &format!(
                "{} calls of processes that found no slot free (raise --max-processes)",
                grouped(status.unseen_calls)
            ),
        );
    }
    status.exports.iter().for_each(|of| page.paragraph("export", &exports::text(of)));
    page.paragraph("tables", &tables.collect::<Vec<_>>().join(", "));
    page.paragraph("events", &process_events(status));
    page.paragraph("excluded", &excluded(status));
    for blind_spot in &status.blind_spots {
        page.paragraph("blind", &shown(blind_spot));
    }
    page.outcomes(status);
    page.probes(&status.probes);
    page.out
}

fn engine(status: &StatusResponse) -> String {
    let snapshots = match status.unwind.as_str() {
        "dwarf" => format!(" from {} snapshots", human_bytes(f64::from(status.snapshot_bytes))),
        _ => String::new(),
    };
    format!(
        "{} probes, {} unwinding{snapshots}",
        shown(&status.probe_engine),
        shown(&status.unwind)
    )
}

fn live_set(status: &StatusResponse) -> String {
    if !status.live_tracking {
        let why = if status.windows > 0.0 { "--windows" } else { "--no-live" };
        return format!("off: frees are not probed ({why})");
    }
    format!(
        "{} of {} sampled blocks (--max-live)",
        grouped(status.live_samples),
        grouped(status.max_live)
    )
}

/// The process events that the kernel reported.
fn process_events(status: &StatusResponse) -> String {
    let Some(of) = &status.process_events else { return String::new() };
    let mut text = format!("{} of processes", grouped(of.read));
    let counts = [
        (of.lost, "lost (a survey of all processes repairs it)"),
        (of.images_refused, "programs with too many mappings"),
        (of.files_missed, "files not looked into at once"),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!(", {} {what}", grouped(count)));
    }
    text
}

/// Processes by how they are sampled. Usually all processes are sampled alike.
fn intervals(status: &StatusResponse) -> String {
    let mut by_interval: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for of in &status.intervals {
        by_interval.entry(sentence(of)).or_default().push(of.pid.to_string());
    }
    let each = by_interval.iter().map(|(how, pids)| match pids.len() {
        0..=PIDS => format!("{how}: pid {}", pids.join(" ")),
        n => format!("{how}: {n} processes"),
    });
    each.collect::<Vec<_>>().join("; ")
}

/// The excluded processes, and the cost of excluding them.
fn excluded(status: &StatusResponse) -> String {
    let each = status.excluded.iter().map(|of| {
        let why =
            if of.reason.is_empty() { String::new() } else { format!(" ({})", shown(&of.reason)) };
        let count = match of.processes {
            0 | 1 => String::new(),
            n => format!(" {} processes", grouped(n)),
        };
        format!("{}{count}{why}", shown(&of.criterion))
    });
    let mut text = each.collect::<Vec<_>>().join(", ");
    if status.excluded_calls > 0 {
        let calls = grouped(status.excluded_calls);
        text += &format!("; {calls} calls of theirs paid the trap of a shared link all the same");
    }
    text
}

/// Whether two probes look the same to people: places of one USDT probe, which share a count.
fn are_alike(a: &Probe, b: &Probe) -> bool {
    let seen = |of: &Probe| {
        let file = (of.path.clone(), of.build_id.clone(), of.pids.clone());
        (file, of.role.clone(), symbol(of).to_owned(), of.emulated, of.displacement)
    };
    seen(a) == seen(b)
}

struct Page {
    width: usize,
    out: String,
}

impl Page {
    fn line(&mut self, text: &str) {
        self.out.push_str(middle(text, self.width).trim_end());
        self.out.push('\n');
    }

    /// Writes a label and its wrapped text. Writes nothing if the text is empty.
    fn paragraph(&mut self, label: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        for line in paragraph(label, text, LABEL, self.width).lines() {
            self.line(line);
        }
    }

    fn outcomes(&mut self, status: &StatusResponse) {
        let (counted, never): (Vec<_>, Vec<_>) =
            status.outcomes.iter().partition(|outcome| outcome.count > 0);
        if status.outcomes.is_empty() {
            return;
        }
        self.line("");
        self.line("outcomes");
        for of in counted {
            self.line(&format!("{}  {}", right(&grouped(of.count), 15), shown(&of.name)));
        }
        let never: Vec<_> = never.iter().map(|of| shown(&of.name)).collect();
        for line in wrapped(&never.join(" "), self.width - 17).iter().enumerate() {
            let (index, names) = line;
            let count = if index == 0 && !names.is_empty() { "0" } else { "" };
            self.line(&format!("{}  {names}", right(count, 15)));
        }
    }

    fn probes(&mut self, probes: &[Probe]) {
        let mut last = None;
        let mut hits = Hits::default();
        for places in probes.chunk_by(are_alike) {
            let Some(probe) = places.first() else { continue };
            let file = (&probe.path, &probe.build_id, &probe.pids);
            if last != Some(file) {
                self.line("");
                let pids: Vec<_> = probe.pids.iter().map(u32::to_string).collect();
                let pids = match pids.len() {
                    0 => String::new(),
                    1..=4 => format!(", pid {}", pids.join(" ")),
                    n => format!(", {n} processes"),
                };
                let room = self.width - "probes in ".len() - pids.len();
                self.line(&format!("probes in {}{pids}", end(&shown(&probe.path), room)));
                last = Some(file);
            }
            self.probe(probe, places.len(), &hits.of(probe));
        }
    }

    /// Writes a probe. The reason for single-stepping, which is slow, stands below the probe.
    fn probe(&mut self, probe: &Probe, places: usize, hits: &str) {
        let symbol = match places {
            1 => shown(symbol(probe)).into_owned(),
            n => format!("{} ×{n}", shown(symbol(probe))),
        };
        let mode = if probe.emulated { "emulated" } else { "single-stepped" };
        let instruction = self.width - 2 - SYMBOL - HITS - DISPLACEMENT - MODE - PRICE - 7;
        self.line(&format!(
            "  {} {}  {} {} {}  {}",
            left(&middle(&symbol, SYMBOL), SYMBOL),
            left(&end(hits, HITS), HITS),
            right(&format!("+{:#x}", probe.displacement), DISPLACEMENT),
            left(mode, MODE),
            right(&cost::column(probe.hit_ns.as_ref()), PRICE),
            end(&shown(&probe.instruction), instruction),
        ));
        if !probe.emulated && !probe.reason.is_empty() {
            for line in wrapped(&shown(&probe.reason), self.width - 6) {
                self.line(&format!("      {line}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_common::encode::text::layout::columns;

    #[test]
    fn places_of_one_probe_are_joined_in_one_line() {
        let of = |symbol: &str, role: &str| Probe {
            path: "/usr/lib/libsampler_preload.so".into(),
            symbols: vec![symbol.into()],
            role: role.into(),
            emulated: true,
            instruction: "nop".into(),
            ..Probe::default()
        };
        let alloc = || of("otel_memory:alloc", "otel_alloc");
        let free = || of("otel_memory:free", "otel_free");
        let probes = vec![alloc(), alloc(), alloc(), free()];
        let text = table(&StatusResponse { probes, ..StatusResponse::default() }, "", 100);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("emulated")).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].contains("×3") && !lines[1].contains("×"), "{text}");
    }

    #[test]
    fn an_empty_status_is_short_and_any_status_fits() {
        assert!(table(&StatusResponse::default(), "", 80).lines().count() < 8);
        let long = "wörd\u{1b}[2J ".repeat(40);
        let status = StatusResponse {
            version: long.clone(),
            probe_engine: long.clone(),
            blind_spots: vec![long.clone()],
            probes: vec![Probe {
                path: long.clone(),
                symbols: vec![long.clone()],
                instruction: long.clone(),
                reason: long.clone(),
                pids: (0..99).collect(),
                ..Probe::default()
            }],
            ..StatusResponse::default()
        };
        for width in [0, 60, 80] {
            let text = table(&status, "uprobes: 1", width);
            assert!(text.lines().all(|line| columns(line) <= width.max(MIN_WIDTH)), "{text}");
            assert!(!text.contains('\u{1b}'));
        }
    }
}
