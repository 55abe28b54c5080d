//! The store's answers, as json: the profile of kind live, a window, lifetimes, processes and
//! outcomes.

use crate::pipeline::records::ingest::Ingest;
use crate::store::stacks::StackFrame;
use crate::store::{ProcessId, StackId};
use rustc_hash::FxHashMap;
use sampler_common::estimate::{
    Confidence, Estimator, Moments, Reference, Row, Stratum, everything,
};
use sampler_common::profile::{Line, Quantities, Quantity};
use sampler_common::sampling::class;
use serde_json::{Map, Value, json};

/// All answers, at a time after the last record.
pub(super) fn answer(ingest: &Ingest, now_ns: u64) -> Value {
    let mut processes: Vec<_> = ingest.processes.iter().map(|(id, _)| id).collect();
    processes.sort_by_key(|id| ingest.processes.get(*id).pid);
    let counted = ingest.outcomes.iter().filter(|(_, count)| *count > 0);
    let outcomes: Map<_, _> =
        counted.map(|(outcome, count)| (outcome.name().to_owned(), json!(count))).collect();
    let events: Vec<_> = ingest.events.iter().map(|event| format!("{event:?}")).collect();
    json!({
        "processes": processes.iter().map(|id| process(ingest, *id)).collect::<Vec<_>>(),
        "outcomes": outcomes,
        "events": events,
        "live_samples": ingest.live.len(),
        "peak_samples": ingest.live.at_peak().count(),
        "profile": profile(ingest, &processes),
        "window": window(ingest, now_ns, &processes),
        "lifetimes": lifetimes(ingest, now_ns, &processes),
    })
}

fn process(ingest: &Ingest, id: ProcessId) -> Value {
    let record = ingest.processes.get(id);
    let spending = &record.spending;
    json!({
        "pid": record.pid, "interval_bytes": record.sampling.interval(),
        "records": spending.records, "samples": spending.samples,
        "stack_bytes": spending.stack_bytes,
    })
}

/// A process's index in the answer.
fn place(id: ProcessId, processes: &[ProcessId]) -> u32 {
    processes.iter().position(|of| *of == id).unwrap() as u32
}

/// A stack, leaf first.
fn stack(ingest: &Ingest, stack: StackId) -> Vec<String> {
    let frames = ingest.stacks.get(stack).iter().map(|number| match ingest.stacks.frame(*number) {
        StackFrame::Code(frame) => {
            let path = &ingest.modules.get(frame.module).path;
            Line::place(path, frame.offset).function
        }
        StackFrame::Note(note) => format!("{note:?}"),
    });
    frames.collect()
}

/// Ten digits: other machines' libraries may differ in the last ones.
fn rounded(number: f64) -> f64 {
    format!("{number:.9e}").parse().unwrap()
}

fn quantity(of: &Quantity) -> Value {
    let Moments { samples, sum, variance, largest, largest_inclusion, own } = of.moments;
    let (value, low, high) = (of.estimate.value, of.estimate.low, of.estimate.high);
    json!({
        "value": rounded(value), "low": rounded(low), "high": rounded(high), "samples": samples,
        "sum": rounded(sum), "variance": rounded(variance), "largest": rounded(largest),
        "largest_inclusion": rounded(largest_inclusion), "own": rounded(own),
    })
}

fn quantities(row: &Row, reference: &Reference) -> Value {
    let of = Quantities::of_row(row, reference, Estimator::Weighted, Confidence::DEFAULT);
    json!({
        "alloc_objects": quantity(&of.alloc_objects), "alloc_space": quantity(&of.alloc_space),
        "inuse_objects": quantity(&of.inuse_objects), "inuse_space": quantity(&of.inuse_space),
    })
}

/// Allocated and held memory: process, stack and moments, sorted.
fn rows(ingest: &Ingest, processes: &[ProcessId]) -> Vec<(u32, Vec<String>, Row)> {
    let mut rows: FxHashMap<(u32, StackId), Row> = FxHashMap::default();
    for (key, moments) in ingest.rows.iter() {
        let process = place(key.process, processes);
        let row = rows.entry((process, key.stack)).or_default();
        row.stratum(Stratum { process, class: key.cell.class }).add(moments);
    }
    let mut live: Vec<_> = ingest.live.iter().collect();
    live.sort_by_key(|(sample, _)| **sample);
    for (_, of) in live {
        let process = place(of.process, processes);
        let stratum = Stratum { process, class: class(of.sample.size) as u8 };
        rows.entry((process, of.stack)).or_default().stratum(stratum).add_live(&of.sample);
    }
    let rows = rows.into_iter();
    let mut rows: Vec<_> =
        rows.map(|((process, id), row)| (process, stack(ingest, id), row)).collect();
    rows.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    rows
}

/// The profile of kind live.
fn profile(ingest: &Ingest, processes: &[ProcessId]) -> Value {
    let rows = rows(ingest, processes);
    let mut reference = Reference::default();
    rows.iter().for_each(|(.., row)| reference.add(row));
    for (stratum, totals) in &mut reference.strata {
        let sampling = &ingest.processes.get(processes[stratum.process as usize]).sampling;
        let unseen = sampling.passes(usize::from(stratum.class));
        (totals.unseen_objects, totals.unseen_bytes) = unseen;
        reference.interval_bytes = reference.interval_bytes.max(sampling.largest_interval());
    }
    reference.forget_rates();
    let stacks = rows.iter().map(|(process, frames, row)| {
        json!({"process": process, "frames": frames, "quantities": quantities(row, &reference)})
    });
    json!({
        "totals": quantities(&everything(&reference, Estimator::Weighted), &reference),
        "stacks": stacks.collect::<Vec<_>>(),
    })
}

/// Everything allocated in the time slots.
fn window(ingest: &Ingest, now_ns: u64, processes: &[ProcessId]) -> Value {
    let window = ingest.windows.between(0, now_ns, now_ns).unwrap();
    let mut row = Row::default();
    for (key, allocated) in window.rows() {
        let process = place(key.process, processes);
        allocated.add_to(row.stratum(Stratum { process, class: key.cell.class }));
    }
    quantities(&row, &Reference::default())
}

/// How long blocks live, by stack.
fn lifetimes(ingest: &Ingest, now_ns: u64, processes: &[ProcessId]) -> Value {
    let lives = ingest.lifetimes.by_stack(&ingest.live, now_ns, |_| true);
    let mut lives: Vec<_> = lives
        .into_iter()
        .map(|((id, of), life)| (place(id, processes), stack(ingest, of), life))
        .collect();
    lives.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    let lives = lives.iter().map(|(process, frames, life)| {
        let moments = &life.byte_seconds;
        json!({
            "process": process, "frames": frames, "freed": life.freed, "held": life.held,
            "byte_seconds": rounded(moments.sum), "variance": rounded(moments.variance),
        })
    });
    lives.collect()
}
