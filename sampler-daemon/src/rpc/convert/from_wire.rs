//! Conversion from the protocol, with checks. An error names the index that is out of range, or the
//! number that is invalid.

use super::cost;
use super::number::{number, quantity};
use super::{sources, strata};
use crate::rpc::v1;
use sampler_common::estimate::{Confidence, Estimator, Reference};
use sampler_common::note::Note;
use sampler_common::profile::{
    Exact, FunctionSum, Functions, Kind, Line, Location, Lost, Mapping, POINTS, ProcessName,
    Profile, Quantities, Quantity, Stack, Window,
};
use sampler_common::sampling::Strategy;
use std::collections::HashSet;

/// A profile from the protocol; indices and numbers from the network are checked.
///
/// The error is one line for people. Every [`sampler_common::estimate::Estimate`] gets the
/// profile's confidence and the number of samples of its moments.
pub fn from_wire(profile: v1::Profile) -> Result<Profile, String> {
    let kind = match profile.kind() {
        v1::Kind::Alloc => Kind::Alloc,
        v1::Kind::Live => Kind::Live,
        v1::Kind::Peak => Kind::Peak,
        v1::Kind::Mapped => Kind::Mapped,
        v1::Kind::Unspecified => {
            return Err(format!("kind {} is none of alloc, live, peak and mapped", profile.kind));
        }
    };
    let confidence = Confidence::new(profile.confidence).map_err(|error| error.to_string())?;
    let totals = profile.totals.ok_or("the profile has no totals")?;
    let totals = quantities_from_wire(&totals, confidence).within("totals")?;
    let exact = profile
        .exact
        .map(|of| Exact { alloc_objects: of.alloc_objects, alloc_space: of.alloc_space });
    let window = window(profile.window_start_unix_ns, profile.window_end_unix_ns)?;
    let lost = lost(profile.lost, confidence)?;
    if profile.strings.first().is_none_or(|first| !first.is_empty()) {
        return Err("the first string is not empty".to_owned());
    }
    let mappings: Vec<Mapping> = profile
        .mappings
        .into_iter()
        .map(|of| {
            let code = Some(of.code_start..of.code_end).filter(|code| !code.is_empty());
            Mapping { path: of.path, build_id: of.build_id, code }
        })
        .collect();
    let locations =
        each(profile.locations, "location", |of| location(&of, &profile.strings, mappings.len()))?;
    let functions = profile
        .functions
        .map(|of| functions(of, &profile.strings, confidence))
        .transpose()
        .within("functions")?;
    let strategies = strategies(&profile.strategy)?;
    let estimator = estimator(&profile.estimator, &strategies)?;
    let (pids, reference) = strata::reference(profile.reference).within("reference")?;
    let stacks =
        each(profile.stacks, "stack", |of| stack(of, locations.len(), &reference, confidence))?;
    Ok(Profile {
        kind,
        confidence,
        time_unix_ns: profile.time_unix_ns,
        duration_ns: profile.duration_ns,
        interval_bytes: profile.interval_bytes,
        estimator,
        strategies,
        sources: sources::groups_from_wire(&profile.sources)?,
        pids,
        process_names: profile.process_names.into_iter().map(process_name).collect(),
        reference,
        totals,
        exact,
        window,
        samples: profile.samples,
        lost,
        mappings,
        locations,
        stacks,
        stacks_total: profile.stacks_total,
        functions,
        notes: profile.notes.into_iter().map(Note::from).collect(),
        cost: profile.cost.map(cost::from_wire).transpose().within("cost")?,
    })
}

fn process_name(of: v1::ProcessName) -> (u32, ProcessName) {
    (of.pid, ProcessName { comm: of.comm, exe: of.exe })
}

/// The window; 0 and 0 are no window.
fn window(start_unix_ns: u64, end_unix_ns: u64) -> Result<Option<Window>, String> {
    if start_unix_ns > end_unix_ns {
        return Err(format!("window {start_unix_ns} ends before it begins, at {end_unix_ns}"));
    }
    Ok((end_unix_ns > 0).then_some(Window { start_unix_ns, end_unix_ns }))
}

/// Four quantities from the protocol, checked as by [`from_wire`].
pub fn quantities_from_wire(
    of: &v1::Quantities,
    confidence: Confidence,
) -> Result<Quantities, String> {
    let make = |name: &str, of: &Option<v1::Quantity>| -> Result<Quantity, String> {
        quantity(of.as_ref().ok_or_else(|| format!("{name} is missing"))?, confidence).within(name)
    };
    Ok(Quantities {
        alloc_objects: make("alloc_objects", &of.alloc_objects)?,
        alloc_space: make("alloc_space", &of.alloc_space)?,
        inuse_objects: make("inuse_objects", &of.inuse_objects)?,
        inuse_space: make("inuse_space", &of.inuse_space)?,
    })
}

/// The strategies by name; each occurs once.
fn strategies(names: &str) -> Result<Vec<Strategy>, String> {
    let mut strategies = Vec::new();
    for name in names.split(',').filter(|name| !name.is_empty()) {
        let of = Strategy::from_name(name).filter(|of| !strategies.contains(of));
        strategies.push(of.ok_or_else(|| {
            format!("strategy {name:?} is unknown or listed twice (is this sampler older than samplerd?)")
        })?);
    }
    Ok(strategies)
}

/// The estimator by name; [`POINTS`] if and only if a stride is among the strategies.
fn estimator(name: &str, strategies: &[Strategy]) -> Result<Estimator, String> {
    let points = strategies.contains(&Strategy::Stride);
    match Estimator::from_name(name) {
        Some(estimator) if !points => Ok(estimator),
        None if points && name == POINTS => Ok(Estimator::default()),
        _ => Err(format!(
            "estimator {name:?} is unknown or not one for these strategies (is this sampler older than samplerd?)"
        )),
    }
}

/// Adds to an error where in the profile it lies.
pub(super) trait Within<T> {
    fn within(self, place: &str) -> Result<T, String>;
}

impl<T> Within<T> for Result<T, String> {
    fn within(self, place: &str) -> Result<T, String> {
        self.map_err(|error| format!("{place}: {error}"))
    }
}

/// Converts a list. An error names the entry.
pub(super) fn each<T, U>(
    list: Vec<T>,
    name: &str,
    mut convert: impl FnMut(T) -> Result<U, String>,
) -> Result<Vec<U>, String> {
    let entries = list.into_iter().enumerate();
    entries.map(|(index, of)| convert(of).within(&format!("{name} {index}"))).collect()
}

pub(super) fn check_index(name: &str, index: u32, length: usize) -> Result<(), String> {
    if (index as usize) < length {
        Ok(())
    } else {
        Err(format!("{name} {index} is out of range (there are {length})"))
    }
}

fn location(of: &v1::Location, strings: &[String], mappings: usize) -> Result<Location, String> {
    check_index("mapping", of.mapping, mappings)?;
    if of.lines.is_empty() {
        return Err("it has no line".to_owned());
    }
    let lines = of.lines.iter().map(|of| line(strings, of.function, of.file, of.line));
    Ok(Location {
        mapping: of.mapping,
        address: of.address,
        lines: lines.collect::<Result<_, String>>()?,
    })
}

fn string(strings: &[String], index: u32) -> Result<String, String> {
    check_index("string", index, strings.len())?;
    Ok(strings[index as usize].clone())
}

fn line(strings: &[String], function: u32, file: u32, line: u32) -> Result<Line, String> {
    Ok(Line { function: string(strings, function)?, file: string(strings, file)?, line })
}

fn functions(
    of: v1::Functions,
    strings: &[String],
    confidence: Confidence,
) -> Result<Functions, String> {
    let row = |of: v1::FunctionSum| {
        Ok(FunctionSum {
            line: line(strings, of.function, of.file, of.line)?,
            module: string(strings, of.module)?,
            own: of.own.map(|own| number("own", own)).transpose()?,
            total: quantity(&of.total.ok_or("it has no total")?, confidence)?,
        })
    };
    Ok(Functions { rows: each(of.rows, "function", row)?, total: of.total, pids: of.pids })
}

fn stack(
    of: v1::Stack,
    locations: usize,
    reference: &Reference,
    confidence: Confidence,
) -> Result<Stack, String> {
    for index in &of.locations {
        check_index("location", *index, locations)?;
    }
    let quantities = of.quantities.as_ref().ok_or("it has no quantities")?;
    Ok(Stack {
        pid: of.pid,
        locations: of.locations,
        row: strata::row(of.strata, &of.clusters, reference)?,
        quantities: quantities_from_wire(quantities, confidence)?,
    })
}

fn lost(list: Vec<v1::Lost>, confidence: Confidence) -> Result<Vec<Lost>, String> {
    let mut outcomes = HashSet::new();
    let convert = |of: v1::Lost| {
        let known = |name: &str, of: Option<v1::Quantity>| {
            of.map(|of| quantity(&of, confidence)).transpose().within(name)
        };
        Ok(Lost {
            samples: of.samples,
            alloc_space: known("alloc_space", of.alloc_space)?,
            alloc_objects: known("alloc_objects", of.alloc_objects)?,
            outcome: of.outcome,
        })
    };
    let lost = each(list, "lost", convert)?;
    // Outcomes are the keys of an object in json.
    match lost.iter().find(|of| !outcomes.insert(of.outcome.as_str())) {
        Some(twice) => Err(format!("lost: outcome {} is listed twice", twice.outcome)),
        None => Ok(lost),
    }
}
