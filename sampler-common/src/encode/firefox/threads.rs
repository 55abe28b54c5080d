//! One thread for each process: its allocations, and a marker for each of its stacks.

use super::super::name;
use super::MARKER;
use crate::profile::{Profile, Stack};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A process and its stacks.
pub(super) struct Process {
    pid: u32,
    /// Indices into the profile's stacks.
    stacks: Vec<usize>,
}

/// Phase of a marker with a start and an end.
const INTERVAL: u32 = 1;

/// The processes by falling bytes: in the order of their first stack.
pub(super) fn processes(profile: &Profile) -> Vec<Process> {
    let mut order: Vec<Process> = Vec::new();
    let mut known: BTreeMap<u32, usize> = BTreeMap::new();
    for (index, stack) in profile.stacks.iter().enumerate() {
        let at = *known.entry(stack.pid).or_insert_with(|| {
            order.push(Process { pid: stack.pid, stacks: Vec::new() });
            order.len() - 1
        });
        order[at].stacks.push(index);
    }
    if order.is_empty() {
        // The profiler refuses a profile without a thread.
        order.push(Process { pid: profile.pids.first().copied().unwrap_or(0), stacks: Vec::new() });
    }
    order
}

/// The thread of a process. `stacks` has the indices of all stacks, `marker` is the index of the
/// markers' name.
pub(super) fn thread<'a>(
    profile: &'a Profile,
    process: &Process,
    stacks: &[u32],
    marker: usize,
) -> impl Serialize + use<'a> {
    let label = match process.pid {
        0 => "all processes".to_owned(),
        pid => name::shown(&profile.process_label(pid)).into_owned(),
    };
    let rows: Vec<(&Stack, u32)> =
        process.stacks.iter().map(|index| (&profile.stacks[*index], stacks[*index])).collect();
    let end = profile.duration_ns as f64 / 1e6;
    Thread {
        process_type: "default",
        process_startup_time: 0,
        process_shutdown_time: None,
        register_time: 0,
        unregister_time: None,
        paused_ranges: [],
        show_markers_in_timeline: false,
        name: format!("{label}, bytes {}", profile.what()),
        process_name: label,
        is_main_thread: true,
        pid: process.pid.to_string(),
        tid: process.pid,
        samples: json!({ "length": 0, "stack": [], "time": [], "weight": null, "weightType": "samples" }),
        native_allocations: Allocations {
            length: rows.len(),
            time: vec![0; rows.len()],
            weight: rows.iter().map(|(stack, _)| bytes(profile, stack)).collect(),
            weight_type: "bytes",
            stack: rows.iter().map(|(_, index)| *index).collect(),
        },
        markers: Markers {
            length: rows.len(),
            name: vec![marker; rows.len()],
            start_time: vec![0; rows.len()],
            end_time: vec![end; rows.len()],
            phase: vec![INTERVAL; rows.len()],
            category: vec![0; rows.len()],
            data: rows.iter().map(|(stack, index)| data(profile, stack, *index)).collect(),
        },
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Thread {
    process_type: &'static str,
    process_name: String,
    process_startup_time: u32,
    process_shutdown_time: Option<u32>,
    register_time: u32,
    unregister_time: Option<u32>,
    paused_ranges: [u32; 0],
    show_markers_in_timeline: bool,
    name: String,
    is_main_thread: bool,
    pid: String,
    tid: u32,
    samples: Value,
    native_allocations: Allocations,
    markers: Markers,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Allocations {
    length: usize,
    time: Vec<u32>,
    weight: Vec<u64>,
    weight_type: &'static str,
    stack: Vec<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Markers {
    length: usize,
    name: Vec<usize>,
    start_time: Vec<u32>,
    end_time: Vec<f64>,
    phase: Vec<u32>,
    category: Vec<u32>,
    data: Vec<Data>,
}

/// The numbers of a stack with the ends of their intervals; an infinite end is left out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    r#type: &'static str,
    bytes: f64,
    bytes_low: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_high: Option<f64>,
    objects: f64,
    objects_low: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    objects_high: Option<f64>,
    samples: u64,
    cause: Cause,
}

#[derive(Serialize)]
struct Cause {
    stack: u32,
}

fn bytes(profile: &Profile, stack: &Stack) -> u64 {
    stack.quantities.space(profile.kind).estimate.value.round() as u64
}

fn data(profile: &Profile, stack: &Stack, index: u32) -> Data {
    let space = stack.quantities.space(profile.kind).estimate;
    let objects = stack.quantities.objects(profile.kind).estimate;
    let finite = |end: f64| Some(end).filter(|end| end.is_finite());
    Data {
        r#type: MARKER,
        bytes: space.value,
        bytes_low: space.low,
        bytes_high: finite(space.high),
        objects: objects.value,
        objects_low: objects.low,
        objects_high: finite(objects.high),
        samples: space.samples,
        cause: Cause { stack: index },
    }
}
