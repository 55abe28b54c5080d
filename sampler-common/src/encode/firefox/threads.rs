//! A thread for each process: its allocations, and a marker for each of its stacks.

use super::{MARKER, what};
use crate::estimate::Estimate;
use crate::profile::{Profile, Stack};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A process and its stacks.
pub(super) struct Process {
    pid: u32,
    /// Indices into the profile's stacks.
    stacks: Vec<usize>,
}

/// A marker from one time to another.
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

/// The thread of a process; `stacks` are the indices of all stacks, `marker` that of the markers' name.
pub(super) fn thread(profile: &Profile, process: &Process, stacks: &[u32], marker: usize) -> Value {
    let name = match process.pid {
        0 => "all processes".to_owned(),
        pid => format!("pid {pid}"),
    };
    let rows: Vec<(&Stack, u32)> =
        process.stacks.iter().map(|index| (&profile.stacks[*index], stacks[*index])).collect();
    let end = profile.duration_ns as f64 / 1e6;
    json!({
        "processType": "default",
        "processName": name,
        "processStartupTime": 0,
        "processShutdownTime": null,
        "registerTime": 0,
        "unregisterTime": null,
        "pausedRanges": [],
        "showMarkersInTimeline": false,
        "name": format!("{name}, bytes {}", what(profile.kind)),
        "isMainThread": true,
        "pid": process.pid.to_string(),
        "tid": process.pid,
        "samples": { "length": 0, "stack": [], "time": [], "weight": null, "weightType": "samples" },
        "nativeAllocations": {
            "length": rows.len(),
            "time": vec![0; rows.len()],
            "weight": rows.iter().map(|(stack, _)| bytes(profile, stack)).collect::<Vec<_>>(),
            "weightType": "bytes",
            "stack": rows.iter().map(|(_, index)| *index).collect::<Vec<_>>(),
        },
        "markers": {
            "length": rows.len(),
            "name": vec![marker; rows.len()],
            "startTime": vec![0; rows.len()],
            "endTime": vec![end; rows.len()],
            "phase": vec![INTERVAL; rows.len()],
            "category": vec![0; rows.len()],
            "data": rows.iter().map(|(stack, index)| data(profile, stack, *index)).collect::<Vec<_>>(),
        },
    })
}

fn bytes(profile: &Profile, stack: &Stack) -> u64 {
    stack.quantities.space(profile.kind).estimate.value.round() as u64
}

/// The numbers of a stack with their ends; an end that is infinite is left out.
fn data(profile: &Profile, stack: &Stack, index: u32) -> Value {
    let space = stack.quantities.space(profile.kind).estimate;
    let objects = stack.quantities.objects(profile.kind).estimate;
    let mut data = Map::new();
    data.insert("type".into(), MARKER.into());
    for (name, Estimate { value, low, high, .. }) in [("bytes", space), ("objects", objects)] {
        data.insert(name.into(), value.into());
        data.insert(format!("{name}Low"), low.into());
        if high.is_finite() {
            data.insert(format!("{name}High"), high.into());
        }
    }
    data.insert("samples".into(), space.samples.into());
    data.insert("cause".into(), json!({ "stack": index }));
    Value::Object(data)
}
