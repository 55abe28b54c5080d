//! Reads profiles that were saved in the json format, for comparisons.
//!
//! All numbers come back as they were. The format has no mappings, file offsets and lines: every
//! function is a location of its own. Unknown keys are ignored. Keys that files of older versions
//! lack have a default.

mod frames;
mod quantity;
mod strata;
#[cfg(test)]
mod tests;

use self::frames::Frames;
use self::quantity::{QuantitiesObject, QuantityObject, quantities, quantity};
use self::strata::{ClusterSum, ExactObject, ReferenceObject, StratumObject, reference, row};
use super::cost::CostObject;
use crate::estimate::{Confidence, Estimator};
use crate::note::Note;
use crate::profile::{Exact, Kind, Lost, Mapping, ProcessName, Profile, Stack, Window};
use crate::sampling::Strategy;
use crate::source::{SampleSource, SampleSources, SourceGroup};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The error for text that is no profile; the message is one line with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no profile in json: {0} (save one: sampler profile --json -o FILE)")]
pub struct ReadError(String);

/// Reads the profile of `text`, which is one object.
///
/// # Errors
/// If `text` is no json, lacks a key, or has a number that makes no sense.
pub fn read(text: &str) -> Result<Profile, ReadError> {
    let object: ProfileObject =
        serde_json::from_str(text).map_err(|error| ReadError(error.to_string()))?;
    profile(object).map_err(ReadError)
}

#[derive(Deserialize)]
struct ProfileObject {
    kind: String,
    confidence: f64,
    interval_bytes: u64,
    time_unix_ns: u64,
    duration_ns: u64,
    estimator: Option<String>,
    #[serde(default)]
    strategy: String,
    #[serde(default)]
    sources: Vec<SourcesObject>,
    #[serde(default)]
    processes: Vec<ProcessObject>,
    window: Option<WindowObject>,
    totals: QuantitiesObject,
    exact: Option<ExactObject>,
    samples: u64,
    #[serde(default)]
    lost: Map<String, Value>,
    stacks_total: u64,
    #[serde(default)]
    notes: Vec<String>,
    cost: Option<CostObject>,
    reference: Option<ReferenceObject>,
    stacks: Vec<StackObject>,
}

#[derive(Clone, Copy, Deserialize)]
struct WindowObject {
    start_unix_ns: u64,
    end_unix_ns: u64,
}

#[derive(Deserialize)]
struct SourcesObject {
    sources: Vec<String>,
    processes: u64,
}

#[derive(Deserialize)]
struct ProcessObject {
    pid: u32,
    comm: String,
    exe: String,
}

#[derive(Deserialize)]
struct LostObject {
    samples: u64,
    alloc_space: Option<QuantityObject>,
    alloc_objects: Option<QuantityObject>,
}

#[derive(Deserialize)]
struct StackObject {
    pid: u32,
    frames: Vec<String>,
    #[serde(flatten)]
    quantities: QuantitiesObject,
    #[serde(default)]
    strata: Vec<StratumObject>,
    #[serde(default)]
    clusters: Vec<ClusterSum>,
}

fn profile(of: ProfileObject) -> Result<Profile, String> {
    let kind = Kind::from_name(&of.kind).ok_or_else(|| format!("kind {:?} is unknown", of.kind))?;
    let confidence = Confidence::new(of.confidence).map_err(|error| error.to_string())?;
    let (pids, reference) = reference(of.reference, of.interval_bytes)?;
    let mut frames = Frames::default();
    let mut stacks = Vec::with_capacity(of.stacks.len());
    for (index, stack) in of.stacks.into_iter().enumerate() {
        let within = |error: String| format!("stack {index}: {error}");
        stacks.push(Stack {
            pid: stack.pid,
            // Frames are written root first.
            locations: stack.frames.into_iter().rev().map(|name| frames.location(name)).collect(),
            row: row(stack.strata, &stack.clusters, &reference).map_err(within)?,
            quantities: quantities(&stack.quantities, confidence).map_err(within)?,
        });
    }
    let strategies = of.strategy.split(',').filter(|name| !name.is_empty());
    let strategies = strategies.map(|name| {
        Strategy::from_name(name).ok_or_else(|| format!("strategy {name:?} is unknown"))
    });
    Ok(Profile {
        kind,
        confidence,
        time_unix_ns: of.time_unix_ns,
        duration_ns: of.duration_ns,
        interval_bytes: of.interval_bytes,
        // If a process was sampled by stride, the name is not that of an estimator.
        estimator: of
            .estimator
            .and_then(|name| Estimator::from_name(&name))
            .unwrap_or(Estimator::Weighted),
        strategies: strategies.collect::<Result<_, String>>()?,
        sources: of.sources.iter().map(source_group).collect::<Result<_, String>>()?,
        pids,
        process_names: of.processes.into_iter().map(process_name).collect(),
        totals: quantities(&of.totals, confidence).map_err(|error| format!("totals: {error}"))?,
        window: of
            .window
            .map(|of| Window { start_unix_ns: of.start_unix_ns, end_unix_ns: of.end_unix_ns }),
        exact: of
            .exact
            .map(|of| Exact { alloc_objects: of.alloc_objects, alloc_space: of.alloc_space }),
        samples: of.samples,
        lost: of.lost.into_iter().map(|entry| lost(entry, confidence)).collect::<Result<_, _>>()?,
        mappings: vec![Mapping::default()],
        locations: frames.locations,
        stacks_total: of.stacks_total.max(stacks.len() as u64),
        functions: None,
        stacks,
        notes: of.notes.into_iter().map(Note::from).collect(),
        cost: of
            .cost
            .map(CostObject::report)
            .transpose()
            .map_err(|error| format!("cost: {error}"))?,
        reference,
    })
}

fn process_name(of: ProcessObject) -> (u32, ProcessName) {
    (of.pid, ProcessName { comm: of.comm, exe: of.exe })
}

fn source_group(of: &SourcesObject) -> Result<SourceGroup, String> {
    let each = of.sources.iter().map(|name| {
        SampleSource::from_name(name).ok_or_else(|| format!("source {name:?} is unknown"))
    });
    let sources = each.collect::<Result<SampleSources, String>>()?;
    Ok(SourceGroup { sources, processes: of.processes })
}

fn lost((outcome, value): (String, Value), confidence: Confidence) -> Result<Lost, String> {
    let within = |error: String| format!("lost {outcome}: {error}");
    let of: LostObject =
        serde_json::from_value(value).map_err(|error| within(error.to_string()))?;
    let known = |of: &Option<QuantityObject>| {
        of.as_ref().map(|of| quantity(of, confidence)).transpose().map_err(within)
    };
    Ok(Lost {
        alloc_space: known(&of.alloc_space)?,
        alloc_objects: known(&of.alloc_objects)?,
        samples: of.samples,
        outcome,
    })
}
