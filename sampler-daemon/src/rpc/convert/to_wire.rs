//! Conversion to the protocol.

use super::{clusters, cost, sources, strata};
use crate::rpc::v1;
use sampler_common::estimate::{Moments, Trials};
use sampler_common::note::Note;
use sampler_common::profile::{
    Exact, FunctionSum, Functions, Kind, Location, Lost, ProcessName, Profile, Quantities,
    Quantity, Stack,
};
use std::collections::HashMap;

/// The protocol's form of a profile. Each stack is freed when it is converted: a profile of all
/// stacks may need tens of megabytes.
pub fn to_wire(mut profile: Profile) -> v1::Profile {
    let stacks = std::mem::take(&mut profile.stacks);
    let stacks = stacks.into_iter().map(|of| stack(&of)).collect();
    let mut strings = Strings::default();
    strings.index("");
    let mappings = profile.mappings.iter().map(|mapping| v1::Mapping {
        path: mapping.path.clone(),
        build_id: mapping.build_id.clone(),
        code_start: mapping.code.as_ref().map_or(0, |code| code.start),
        code_end: mapping.code.as_ref().map_or(0, |code| code.end),
    });
    let locations = profile.locations.iter().map(|of| location(of, &mut strings)).collect();
    let functions = profile.functions.as_ref().map(|of| functions(of, &mut strings));
    v1::Profile {
        kind: kind_to_wire(profile.kind).into(),
        confidence: profile.confidence.level(),
        time_unix_ns: profile.time_unix_ns,
        duration_ns: profile.duration_ns,
        interval_bytes: profile.interval_bytes,
        totals: Some(quantities_to_wire(&profile.totals)),
        exact: profile.exact.map(exact),
        window_start_unix_ns: profile.window.map_or(0, |of| of.start_unix_ns),
        window_end_unix_ns: profile.window.map_or(0, |of| of.end_unix_ns),
        samples: profile.samples,
        lost: profile.lost.iter().map(lost).collect(),
        strings: strings.strings.into_iter().map(str::to_owned).collect(),
        mappings: mappings.collect(),
        locations,
        stacks,
        stacks_total: profile.stacks_total,
        notes: profile.notes.iter().map(Note::to_string).collect(),
        estimator: profile.estimator_name().to_owned(),
        strategy: profile.strategy_names(),
        sources: sources::groups_to_wire(&profile.sources),
        process_names: profile.process_names.iter().map(process_name).collect(),
        cost: profile.cost.as_ref().map(cost::to_wire),
        functions,
        reference: Some(strata::reference_to_wire(&profile.reference, &profile.pids)),
    }
}

fn process_name((pid, name): (&u32, &ProcessName)) -> v1::ProcessName {
    v1::ProcessName { pid: *pid, comm: name.comm.clone(), exe: name.exe.clone() }
}

/// The protocol's form of a kind.
pub fn kind_to_wire(kind: Kind) -> v1::Kind {
    match kind {
        Kind::Alloc => v1::Kind::Alloc,
        Kind::Live => v1::Kind::Live,
        Kind::Peak => v1::Kind::Peak,
        Kind::Mapped => v1::Kind::Mapped,
    }
}

/// The protocol's form of four quantities.
pub fn quantities_to_wire(of: &Quantities) -> v1::Quantities {
    v1::Quantities {
        alloc_objects: Some(quantity(&of.alloc_objects)),
        alloc_space: Some(quantity(&of.alloc_space)),
        inuse_objects: Some(quantity(&of.inuse_objects)),
        inuse_space: Some(quantity(&of.inuse_space)),
    }
}

/// The string table; each string occurs once.
#[derive(Default)]
struct Strings<'a> {
    strings: Vec<&'a str>,
    indices: HashMap<&'a str, u32>,
}

impl<'a> Strings<'a> {
    fn index(&mut self, text: &'a str) -> u32 {
        *self.indices.entry(text).or_insert_with(|| {
            self.strings.push(text);
            self.strings.len() as u32 - 1
        })
    }
}

fn location<'a>(of: &'a Location, strings: &mut Strings<'a>) -> v1::Location {
    let lines = of.lines.iter().map(|line| v1::Line {
        function: strings.index(&line.function),
        file: strings.index(&line.file),
        line: line.line,
    });
    v1::Location { mapping: of.mapping, address: of.address, lines: lines.collect() }
}

fn functions<'a>(of: &'a Functions, strings: &mut Strings<'a>) -> v1::Functions {
    let row = |row: &'a FunctionSum| v1::FunctionSum {
        function: strings.index(&row.line.function),
        file: strings.index(&row.line.file),
        line: row.line.line,
        module: strings.index(&row.module),
        own: row.own,
        total: Some(quantity(&row.total)),
    };
    let rows = of.rows.iter().map(row).collect();
    v1::Functions { rows, total: of.total, pids: of.pids.clone() }
}

fn stack(of: &Stack) -> v1::Stack {
    v1::Stack {
        pid: of.pid,
        locations: of.locations.clone(),
        quantities: Some(quantities_to_wire(&of.quantities)),
        strata: strata::row_to_wire(&of.row),
        clusters: clusters::row_to_wire(&of.row),
    }
}

fn lost(of: &Lost) -> v1::Lost {
    v1::Lost {
        outcome: of.outcome.clone(),
        samples: of.samples,
        alloc_space: of.alloc_space.as_ref().map(quantity),
        alloc_objects: of.alloc_objects.as_ref().map(quantity),
    }
}

fn exact(of: Exact) -> v1::Exact {
    v1::Exact { alloc_objects: of.alloc_objects, alloc_space: of.alloc_space }
}

fn quantity(Quantity { estimate, moments }: &Quantity) -> v1::Quantity {
    v1::Quantity {
        value: estimate.value,
        low: estimate.low,
        high: estimate.high,
        method: estimate.method.name().to_owned(),
        moments: Some(moments_to_wire(moments)),
    }
}

pub(super) fn moments_to_wire(of: &Moments) -> v1::Moments {
    v1::Moments {
        samples: of.samples,
        sum: of.sum,
        variance: of.variance,
        largest: of.largest,
        largest_inclusion: of.largest_inclusion,
        own: of.own,
    }
}

pub(super) fn trials_to_wire(of: &Trials) -> v1::Trials {
    v1::Trials { failures: of.failures, variance: of.variance, tail: of.tail }
}
