//! The Firefox Profiler's processed profile (<https://profiler.firefox.com>), version 60, JSON.
//!
//! Reference: `docs-developer/CHANGELOG-formats.md` and `src/types/profile.ts` of
//! firefox-devtools/profiler. Each process is a thread with native allocations, whose call tree the
//! profiler shows. Allocations have no place for an interval, but markers have. So the marker table
//! has the stacks with their numbers and the ends of their intervals. The extra information has the
//! description of the profile.

mod tables;
mod threads;

use super::pprof::comments;
use super::{Encode, name};
use crate::profile::Profile;
use serde_json::{Value, json};
use std::io::{self, Write};
use tables::Tables;

/// The written version of the format; the profiler upgrades older versions itself.
pub const VERSION: u32 = 60;
/// The type of the markers.
const MARKER: &str = "Estimate";

/// Writes the processed profile: the stacks of the profile's kind.
pub struct Firefox;

impl Encode for Firefox {
    fn encode(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        let (tables, stacks) = Tables::of(profile);
        let processes = threads::processes(profile);
        out.write_all(b"{\"meta\":")?;
        serde_json::to_writer(&mut *out, &meta(profile, processes.len()))?;
        out.write_all(b",\n\"libs\":")?;
        serde_json::to_writer(&mut *out, &libs(profile))?;
        out.write_all(b",\n\"shared\":")?;
        serde_json::to_writer(&mut *out, &tables)?;
        out.write_all(b",\n\"threads\":[")?;
        for (index, process) in processes.iter().enumerate() {
            out.write_all(if index == 0 { b"\n" } else { b",\n" })?;
            let thread = threads::thread(profile, process, &stacks, tables.estimate);
            serde_json::to_writer(&mut *out, &thread)?;
        }
        out.write_all(b"]}\n")
    }
}

fn meta(profile: &Profile, threads: usize) -> Value {
    let all: Vec<usize> = (0..threads).collect();
    let ms = |ns: u64| ns as f64 / 1e6;
    let start = ms(profile.time_unix_ns.saturating_sub(profile.duration_ns));
    json!({
        "interval": 1,
        "startTime": start,
        "endTime": start + ms(profile.duration_ns),
        "profilingStartTime": 0,
        "profilingEndTime": ms(profile.duration_ns),
        "processType": 0,
        "product": format!("sampler: memory {}", profile.what()),
        "importedFrom": "sampler",
        "stackwalk": 1,
        "version": 31,
        "preprocessedProfileVersion": VERSION,
        "symbolicated": true,
        "usesOnlyOneStackType": true,
        "sourceCodeIsNotOnSearchfox": true,
        "keepProfileThreadOrder": true,
        "initialVisibleThreads": all,
        "initialSelectedThreads": all.first().into_iter().collect::<Vec<_>>(),
        "categories": tables::categories(),
        "markerSchema": [schema()],
        "extra": [{ "label": "sampler", "entries": extra(profile) }],
    })
}

/// The description of the profile, line by line: `label: text`.
fn extra(profile: &Profile) -> Vec<Value> {
    let entry = |comment: String| {
        let (label, text) = comment.split_once(": ").unwrap_or(("method", &comment));
        json!({ "label": name::shown(label), "format": "string", "value": name::shown(text) })
    };
    comments(profile).into_iter().map(entry).collect()
}

/// How the profiler shows a marker.
fn schema() -> Value {
    let field = |key: &str, label: &str, format: &str| json!({ "key": key, "label": label, "format": format });
    let label = "{marker.data.bytes} ({marker.data.bytesLow} … {marker.data.bytesHigh})";
    json!({
        "name": MARKER,
        "display": ["marker-table"],
        "tableLabel": label,
        "tooltipLabel": label,
        "description": "What a stack allocated or holds, with the ends of the confidence interval. \
            Ends must not be added.",
        "fields": [
            field("bytes", "Bytes", "bytes"),
            field("bytesLow", "Bytes, low end", "bytes"),
            field("bytesHigh", "Bytes, high end", "bytes"),
            field("objects", "Objects", "decimal"),
            field("objectsLow", "Objects, low end", "decimal"),
            field("objectsHigh", "Objects, high end", "decimal"),
            field("samples", "Samples", "integer"),
        ],
    })
}

fn libs(profile: &Profile) -> Vec<Value> {
    let each = profile.mappings.iter().map(|mapping| {
        let path = name::shown(&mapping.path);
        let base = name::base_name(&path);
        let id = Some(&mapping.build_id).filter(|id| !id.is_empty());
        json!({
            "arch": "", "name": base, "path": path, "debugName": base, "debugPath": path,
            "breakpadId": "", "codeId": id,
        })
    });
    each.collect()
}

#[cfg(test)]
mod tests;
