//! The pprof format: gzipped `profile.proto`, as `go tool pprof` and related tools read it.
//!
//! The format has no room for intervals; the comments have those of the totals (`pprof -comments`).
//! Values are estimates rounded to integers.

mod pushed;
mod tables;

pub use pushed::profiles;

/// The messages of the file.
pub use sampler_messages::pprof as message;

use super::address::Space;
use super::{Encode, NO_STACK};
use crate::estimate::Estimate;
use crate::profile::{Kind, Line, Profile, Quantities, Quantity, Stack, entry_pattern};
use crate::units::{human_bytes, utc};
use flate2::{Compression, write::GzEncoder};
use prost::Message;
use std::io::{self, Write};
use tables::Tables;

/// Sample types in the order of every sample's values, with their units.
pub const SAMPLE_TYPES: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

/// Writes the pprof format.
///
/// A sample has the labels `pid` (a number) and `comm` unless processes are merged. Rows that round
/// to 0 in all four quantities are left out.
pub struct Pprof;

impl Encode for Pprof {
    fn encode(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        let mut gzip = GzEncoder::new(out, Compression::default());
        gzip.write_all(&message(profile).encode_to_vec())?;
        gzip.finish()?;
        Ok(())
    }
}

/// The profile as a `profile.proto` message.
pub fn message(profile: &Profile) -> message::Profile {
    let mut tables = Tables::default();
    let space = Space::of(profile);
    let mapping = mappings(profile, &space, &mut tables);
    let mut location = locations(profile, &space, &mut tables);
    let mut sample = Vec::with_capacity(profile.stacks.len());
    let no_stack = location.len() as u64 + 1;
    let mut unknown_used = false;
    for stack in &profile.stacks {
        let mut row = sample_of(profile, stack, &mut tables);
        if row.value.iter().all(|value| *value == 0) {
            continue;
        }
        if row.location_id.is_empty() {
            row.location_id.push(no_stack);
            unknown_used = true;
        }
        sample.push(row);
    }
    if unknown_used {
        let line = Line { function: NO_STACK.into(), ..Line::default() };
        let line = vec![tables.line(&line)];
        location.push(message::Location { id: no_stack, mapping_id: 0, address: 0, line });
    }
    let value_type = |(name, unit): (&str, &str), tables: &mut Tables| message::ValueType {
        r#type: tables.string(name),
        unit: tables.string(unit),
    };
    let sample_type = SAMPLE_TYPES.map(|of| value_type(of, &mut tables)).to_vec();
    let period_type = Some(value_type(("space", "bytes"), &mut tables));
    let comment = comments(profile).iter().map(|text| tables.string(text)).collect();
    let default_sample_type = tables.string(match profile.kind {
        Kind::Alloc => "alloc_space",
        Kind::Live | Kind::Peak | Kind::Mapped => "inuse_space",
    });
    // Without `drop_frames` every tool would attribute everything to malloc.
    let drop_frames = tables.string(&entry_pattern());
    message::Profile {
        sample_type,
        sample,
        mapping,
        location,
        time_nanos: signed(profile.time_unix_ns),
        // 0 for a profile since attach, as in Go: collectors take any other value for the length of
        // a difference.
        duration_nanos: if profile.is_windowed() { signed(profile.duration_ns) } else { 0 },
        period_type,
        period: signed(profile.interval_bytes),
        comment,
        default_sample_type,
        function: tables.functions,
        drop_frames,
        string_table: tables.strings,
    }
}

/// A value as the format's `i64`; larger values saturate rather than turn negative.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn mappings(profile: &Profile, space: &Space, tables: &mut Tables) -> Vec<message::Mapping> {
    let mut mappings: Vec<message::Mapping> = profile
        .mappings
        .iter()
        .enumerate()
        .map(|(index, mapping)| {
            let range = space.range(index);
            message::Mapping {
                id: index as u64 + 1,
                memory_start: range.start,
                memory_limit: range.limit,
                file_offset: range.file_offset,
                filename: tables.string(&mapping.path),
                build_id: tables.string(&mapping.build_id),
                // Every frame has a name, if only its offset, so that tools do not symbolize again.
                has_functions: true,
                ..message::Mapping::default()
            }
        })
        .collect();
    for location in &profile.locations {
        let mapping = &mut mappings[location.mapping as usize];
        mapping.has_filenames |= location.lines.iter().any(|line| !line.file.is_empty());
        mapping.has_line_numbers |= location.lines.iter().any(|line| line.line > 0);
        mapping.has_inline_frames |= location.lines.len() > 1;
    }
    mappings
}

fn locations(profile: &Profile, space: &Space, tables: &mut Tables) -> Vec<message::Location> {
    let each = profile.locations.iter().enumerate().map(|(index, location)| message::Location {
        id: index as u64 + 1,
        mapping_id: u64::from(location.mapping) + 1,
        address: space.range(location.mapping as usize).address(location.address),
        line: location.lines.iter().map(|line| tables.line(line)).collect(),
    });
    each.collect()
}

fn sample_of(profile: &Profile, stack: &Stack, tables: &mut Tables) -> message::Sample {
    let mut label = Vec::new();
    if stack.pid != 0 {
        let (key, num) = (tables.string("pid"), i64::from(stack.pid));
        label.push(message::Label { key, num, ..message::Label::default() });
    }
    if let Some(comm) = profile.comm(stack.pid) {
        let (key, str) = (tables.string("comm"), tables.string(comm));
        label.push(message::Label { key, str, ..message::Label::default() });
    }
    let Quantities { alloc_objects, alloc_space, inuse_objects, inuse_space } = &stack.quantities;
    message::Sample {
        location_id: stack.locations.iter().map(|index| u64::from(*index) + 1).collect(),
        value: [alloc_objects, alloc_space, inuse_objects, inuse_space]
            .map(|quantity| quantity.estimate.value.round() as i64)
            .to_vec(),
        label,
    }
}

/// Facts without fields in the format: the intervals of the totals, the exact totals, losses,
/// notes.
pub(super) fn comments(profile: &Profile) -> Vec<String> {
    let percent = profile.confidence.level() * 100.0;
    let interval = |name: &str, Quantity { estimate, .. }: &Quantity, unit: &str| {
        let Estimate { value, low, high, .. } = estimate;
        match estimate.has_interval() {
            true => format!(
                "total {name}: {value:.0} {unit}, {percent}% interval {low:.0} to {high:.0}"
            ),
            false => format!("total {name}: {value:.0} {unit}, no interval, at least {low:.0}"),
        }
    };
    let totals = &profile.totals;
    let mut comments = vec![
        match profile.kind {
            Kind::Mapped => format!("sampler: {} mapping calls, every one", profile.samples),
            _ => format!(
                "sampler: {} samples, one per {} on average",
                profile.samples,
                human_bytes(profile.interval_bytes as f64)
            ),
        },
        format!("estimator {}, strategy {}", profile.estimator_name(), profile.strategy_names()),
        interval("alloc_objects", &totals.alloc_objects, "objects"),
        interval("alloc_space", &totals.alloc_space, "bytes"),
        interval("inuse_objects", &totals.inuse_objects, "objects"),
        interval("inuse_space", &totals.inuse_space, "bytes"),
    ];
    let since = if profile.is_windowed() { "in the window" } else { "since attach" };
    comments.extend(profile.exact.map(|exact| {
        format!("exact {since}: {} objects, {} bytes", exact.alloc_objects, exact.alloc_space)
    }));
    comments.extend(profile.window.map(|window| {
        format!("window: {} to {}", utc(window.start_unix_ns), utc(window.end_unix_ns))
    }));
    let lost = profile.lost.iter().filter(|lost| lost.samples > 0);
    comments.extend(lost.map(|lost| format!("lost: {} {} samples", lost.outcome, lost.samples)));
    comments.extend(profile.cost.iter().map(|cost| format!("cost: {}", cost.text())));
    comments.extend(profile.notes.iter().map(|note| format!("note: {note}")));
    comments
}

#[cfg(test)]
mod tests;
