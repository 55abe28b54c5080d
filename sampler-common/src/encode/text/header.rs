//! The lines above the table: the description of the profile and its totals.

use super::{Page, bytes_of, layout};
use crate::encode::name;
use crate::estimate::{Estimate, Method, plus_minus};
use crate::profile::{Exact, Kind, Profile, Quantity, Window};
use crate::sampling::Strategy;
use crate::units::{grouped, human_bytes, human_count, human_duration, utc};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Duration;

/// Maximum number of processes that the title names; further ones are counted.
const PIDS: usize = 4;

pub(super) fn write(profile: &Profile, page: Page, out: &mut dyn Write) -> io::Result<()> {
    for line in layout::wrapped(&name::shown(&title(profile)), page.width) {
        writeln!(out, "{}", page.bold(&line))?;
    }
    if let Some((label, window)) = window(profile) {
        page.paragraph(label, &window, false, out)?;
    }
    let totals = &profile.totals;
    let rows = [
        (
            if profile.kind == Kind::Mapped { "mapped" } else { "allocated" },
            if without_windows(profile) {
                "not known: no window has seen an allocation".to_owned()
            } else {
                total(&totals.alloc_space, &totals.alloc_objects)
            },
        ),
        ("held", held(profile)),
        ("exact", exact(profile)),
        ("sampled", sampled(profile)),
    ];
    let main = bytes_of(profile.kind);
    for (label, text) in rows {
        page.paragraph(label, &text, label == main, out)?;
    }
    Ok(())
}

fn title(profile: &Profile) -> String {
    let what = match (profile.kind, profile.window) {
        (Kind::Alloc, None) => "Memory allocated since attach",
        (Kind::Alloc, Some(_)) => "Memory allocated in the window",
        (Kind::Live, None) => "Memory allocated since attach and still held",
        (Kind::Live, Some(_)) => "Memory allocated in the window and still held",
        (Kind::Peak, _) => "Memory held at the largest live total since attach",
        (Kind::Mapped, None) => "Memory mapped by programs themselves, not by malloc",
        (Kind::Mapped, Some(_)) => "Memory that programs mapped themselves in the window",
    };
    let of_stacks = || profile.stacks.iter().map(|stack| stack.pid).filter(|pid| *pid != 0);
    let pids: BTreeSet<u32> = match &profile.functions {
        Some(functions) => functions.pids.iter().copied().collect(),
        None => of_stacks().collect(),
    };
    // Processes without a stack were asked for as well.
    match pids.len().max(if profile.pids.len() > PIDS { profile.pids.len() } else { 0 }) {
        0 => what.to_owned(),
        1..=PIDS => format!("{what}, {}", named(profile, &pids)),
        n => {
            let comms: BTreeSet<_> = profile.pids.iter().map(|pid| profile.comm(*pid)).collect();
            match comms.first() {
                Some(Some(comm)) if comms.len() == 1 => format!("{what}, {comm} ({n} processes)"),
                _ => format!("{what}, {n} processes"),
            }
        }
    }
}

/// `kvstore (pid 4121 4122), pid 77`.
fn named(profile: &Profile, pids: &BTreeSet<u32>) -> String {
    let mut by_name: BTreeMap<Option<&str>, Vec<String>> = BTreeMap::new();
    for pid in pids {
        by_name.entry(profile.comm(*pid)).or_default().push(pid.to_string());
    }
    let label = |(comm, pids): (Option<&str>, Vec<String>)| match comm {
        Some(comm) => format!("{comm} (pid {})", pids.join(" ")),
        None => format!("pid {}", pids.join(" ")),
    };
    by_name.into_iter().map(label).collect::<Vec<_>>().join(", ")
}

/// Bytes with their interval written out, and objects.
fn total(space: &Quantity, objects: &Quantity) -> String {
    let bytes = &space.estimate;
    let range = match bytes.has_interval() {
        true => format!(
            "{} ({})",
            layout::right(&plus_minus(bytes), 5),
            between(&human_bytes(bytes.low), &human_bytes(bytes.high))
        ),
        false => at_least(bytes, human_bytes),
    };
    let line = format!(
        "{} {range} {}",
        layout::right(&human_bytes(bytes.value), 8),
        number_of_objects(&objects.estimate),
    );
    line.trim_end().to_owned()
}

/// The interval by [`plus_minus`], as part of a sentence.
fn interval(estimate: &Estimate) -> String {
    if estimate.has_interval() { plus_minus(estimate) } else { "(no interval)".to_owned() }
}

/// See [`number_of_objects`].
const WIDE: f64 = 10.0;

/// A number of objects with its interval. For an estimate of 0 the text says how many there may be.
/// If the upper end is more than [`WIDE`] times the estimate, only the interval is shown: few
/// samples of large blocks say little about small ones.
fn number_of_objects(estimate: &Estimate) -> String {
    let Estimate { value, low, high, .. } = *estimate;
    let shown = human_count(value);
    match (estimate.has_interval(), value <= 0.0) {
        (true, true) => format!("{shown} objects ({})", between("0", &human_count(high))),
        (true, false) if high > WIDE * value => {
            format!("{} objects", between(&human_count(low), &human_count(high)))
        }
        (true, false) => format!("{shown} objects {}", plus_minus(estimate)),
        (false, _) => format!("{shown} objects {}", at_least(estimate, human_count)),
    }
}

/// For an interval without an upper end the lower end, if it is more than 0 and not made from a
/// stride.
fn at_least(estimate: &Estimate, shown: impl Fn(f64) -> String) -> String {
    let says_least = estimate.low > 0.0 && estimate.method != Method::Stride;
    match says_least && !estimate.has_interval() {
        true => format!("(at least {}, no upper end)", shown(estimate.low)),
        false => interval(estimate),
    }
}

/// `57.4 … 75.7 MiB`; both units if they differ.
fn between(low: &str, high: &str) -> String {
    let (number, unit) = low.split_once(' ').unwrap_or((low, ""));
    let low = if high.ends_with(&format!(" {unit}")) { number } else { low };
    format!("{low} … {high}")
}

fn held(profile: &Profile) -> String {
    if in_windows(profile) {
        return "not known: allocations are seen in windows only".to_owned();
    }
    match profile.reference.held_unknown {
        true => "not known: frees are not probed".to_owned(),
        false => total(&profile.totals.inuse_space, &profile.totals.inuse_objects),
    }
}

/// Whether the profile's processes were probed for a part of the time only.
fn in_windows(profile: &Profile) -> bool {
    !profile.reference.clusters.is_empty()
}

/// Whether nothing was seen in windows. Then a bound says how rare allocations are, and not how
/// many bytes they have.
fn without_windows(profile: &Profile) -> bool {
    let has_interval = profile.totals.alloc_space.estimate.has_interval();
    in_windows(profile) && profile.samples == 0 && !has_interval
}

fn exact(profile: &Profile) -> String {
    match profile.exact {
        Some(Exact { alloc_objects: 0, .. }) if profile.kind != Kind::Mapped => {
            format!("{}: no allocation was seen", layout::right("0 B", 8))
        }
        Some(exact) => {
            let is_partial = profile.reference.allocations_unseen;
            format!(
                "{} in {} {}, {}",
                layout::right(&human_bytes(exact.alloc_space as f64), 8),
                grouped(exact.alloc_objects),
                if profile.kind == Kind::Mapped { "calls" } else { "allocations" },
                if is_partial { "at least: some are not seen" } else { "all counted" },
            )
        }
        None if profile.strategies.contains(&Strategy::External) => match profile.samples {
            0 => "not known: no sample has come".to_owned(),
            _ => "not known: a process samples by itself".to_owned(),
        },
        None if in_windows(profile) => "not known: counted in windows only".to_owned(),
        None => "not known: limits of sizes cut a class, or a process is not profiled any more"
            .to_owned(),
    }
}

/// The window, or the time of the peak.
fn window(profile: &Profile) -> Option<(&'static str, String)> {
    let Window { start_unix_ns, end_unix_ns } = profile.window?;
    if profile.kind == Kind::Peak {
        return Some(("peak", format!("at {}", utc(end_unix_ns))));
    }
    Some(("window", format!("{} to {}", utc(start_unix_ns), utc(end_unix_ns))))
}

fn sampled(profile: &Profile) -> String {
    let held = match profile.kind {
        Kind::Alloc => String::new(),
        Kind::Mapped => {
            let time = human_duration(Duration::from_nanos(profile.duration_ns));
            let whose = match profile.reference.allocations_unseen {
                true => "every call that was seen",
                false => "every call",
            };
            return format!("nothing: {whose} in {time} is counted");
        }
        Kind::Live | Kind::Peak => {
            format!(" ({} held)", grouped(profile.totals.inuse_space.moments.samples))
        }
    };
    format!(
        "{} samples{held} in {}, one per {}, ± at {}%",
        grouped(profile.samples),
        human_duration(Duration::from_nanos(profile.duration_ns)),
        human_bytes(profile.interval_bytes as f64),
        percent(profile.confidence.level()),
    )
}

/// `95`, `99.9`, `99.99999`: a level rounded to nine digits.
fn percent(level: f64) -> f64 {
    (level * 1e9).round() / 1e7
}
