//! OTLP profiles, OpenTelemetry's signal for profiles (in development): the message `ProfilesData`,
//! as collectors store it.
//!
//! A process becomes a resource, and a quantity becomes a profile. The attributes of a sample hold
//! its interval, because no tool adds attributes up. The attributes of the scope describe the
//! profile.

mod pushed;
mod tables;

pub use pushed::{MAX_REQUEST_BYTES, MAX_SAMPLES, Request, rejected, requests, retry_delay};

/// The messages of the file.
pub use sampler_messages::otlp as message;

use super::Encode;
use super::name::base_name;
use super::pprof::SAMPLE_TYPES;
use crate::estimate::Estimate;
use crate::profile::{self, Kind, Quantities, Quantity};
use message::{
    AnyValue, KeyValue, Profile, ProfilesData, Resource, ResourceProfiles, Sample, Scope,
    ScopeProfiles, ValueType, any_value::Value,
};
use prost::Message;
use std::io::{self, Write};
use tables::Tables;

/// Writes `ProfilesData`. Rows whose quantity rounds to 0 are left out of the profile of that
/// quantity.
pub struct Otlp;

impl Encode for Otlp {
    fn encode(&self, profile: &profile::Profile, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&message(profile).encode_to_vec())
    }
}

/// The profile as a `ProfilesData` message.
pub fn message(profile: &profile::Profile) -> ProfilesData {
    let (mut tables, stacks) = Tables::of(profile);
    let header = header(profile);
    let each = processes(profile).into_iter().map(|(pid, rows)| {
        let profiles = order(profile.kind)
            .map(|quantity| one_profile(profile, quantity, &rows, &stacks, &mut tables));
        let scope = Scope { name: "sampler".into(), attributes: header.clone() };
        ResourceProfiles {
            resource: (pid != 0).then(|| Resource { attributes: process(profile, pid) }),
            scope_profiles: vec![ScopeProfiles { scope: Some(scope), profiles: profiles.to_vec() }],
        }
    });
    let resource_profiles = each.collect();
    ProfilesData { resource_profiles, dictionary: Some(tables.finish()) }
}

/// Attributes of a process by OpenTelemetry's semantic conventions.
fn process(profile: &profile::Profile, pid: u32) -> Vec<KeyValue> {
    let mut attributes = vec![attribute("process.pid", Value::IntValue(i64::from(pid)))];
    if let Some(name) = profile.process_names.get(&pid).filter(|name| !name.exe.is_empty()) {
        let text = |text: &str| Value::StringValue(text.to_owned());
        attributes.push(attribute("process.executable.name", text(base_name(&name.exe))));
        attributes.push(attribute("process.executable.path", text(&name.exe)));
    }
    attributes
}

/// The processes in the order of their largest stack, with the indices of their stacks.
fn processes(profile: &profile::Profile) -> Vec<(u32, Vec<usize>)> {
    let mut order: Vec<(u32, Vec<usize>)> = Vec::new();
    let mut known = std::collections::HashMap::new();
    for (index, stack) in profile.stacks.iter().enumerate() {
        let at = *known.entry(stack.pid).or_insert_with(|| {
            order.push((stack.pid, Vec::new()));
            order.len() - 1
        });
        order[at].1.push(index);
    }
    order
}

/// Indices into [`SAMPLE_TYPES`] in the order of the profiles: tools show the first profile.
fn order(kind: Kind) -> [usize; 4] {
    match kind {
        Kind::Alloc => [1, 0, 3, 2],
        Kind::Live | Kind::Peak | Kind::Mapped => [3, 2, 1, 0],
    }
}

fn quantity(of: &Quantities, index: usize) -> &Quantity {
    [&of.alloc_objects, &of.alloc_space, &of.inuse_objects, &of.inuse_space][index]
}

fn one_profile(
    profile: &profile::Profile,
    index: usize,
    rows: &[usize],
    stacks: &[i32],
    tables: &mut Tables,
) -> Profile {
    let (name, unit) = SAMPLE_TYPES[index];
    let mut value_type = |name: &str, unit: &str| ValueType {
        type_strindex: tables.string(name),
        unit_strindex: tables.string(unit),
    };
    let (sample_type, period_type) = (value_type(name, unit), value_type("space", "bytes"));
    let samples = rows.iter().filter_map(|row| {
        let estimate = quantity(&profile.stacks[*row].quantities, index).estimate;
        sample(&estimate, unit, stacks[*row], tables)
    });
    Profile {
        sample_type: Some(sample_type),
        samples: samples.collect(),
        time_unix_nano: profile.time_unix_ns.saturating_sub(profile.duration_ns),
        duration_nano: profile.duration_ns,
        period_type: Some(period_type),
        period: i64::try_from(profile.interval_bytes).unwrap_or(i64::MAX),
        attribute_indices: Vec::new(),
        profile_id: Vec::new(),
    }
}

/// A number with the ends of its interval; an infinite end is left out.
fn sample(estimate: &Estimate, unit: &str, stack: i32, tables: &mut Tables) -> Option<Sample> {
    let Estimate { value, low, high, samples, .. } = *estimate;
    let value = value.round() as i64;
    if value == 0 {
        return None;
    }
    let mut attributes =
        vec![tables.attribute("sampler.low", Value::IntValue(low.floor() as i64), unit)];
    if high.is_finite() {
        attributes.push(tables.attribute(
            "sampler.high",
            Value::IntValue(high.ceil() as i64),
            unit,
        ));
    }
    attributes.push(tables.attribute("sampler.samples", Value::IntValue(samples as i64), ""));
    Some(Sample { stack_index: stack, attribute_indices: attributes, values: vec![value] })
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }) }
}

/// The description of the profile: method, totals, losses, cost, notes.
fn header(profile: &profile::Profile) -> Vec<KeyValue> {
    let text = |key: &str, text: &str| attribute(key, Value::StringValue(text.into()));
    let number = |key: String, number: f64| attribute(&key, Value::DoubleValue(number));
    let count = |key: &str, count: u64| attribute(key, Value::IntValue(count as i64));
    let mut header = vec![
        text("sampler.kind", profile.kind.name()),
        text("sampler.estimator", profile.estimator_name()),
        text("sampler.strategy", &profile.strategy_names()),
        number("sampler.confidence".into(), profile.confidence.level()),
        count("sampler.samples", profile.samples),
    ];
    for (index, (name, _)) in SAMPLE_TYPES.iter().enumerate() {
        let Estimate { value, low, high, .. } = quantity(&profile.totals, index).estimate;
        header.push(number(format!("sampler.total.{name}"), value));
        header.push(number(format!("sampler.total.{name}.low"), low));
        if high.is_finite() {
            header.push(number(format!("sampler.total.{name}.high"), high));
        }
    }
    if let Some(exact) = profile.exact {
        header.push(count("sampler.exact.alloc_objects", exact.alloc_objects));
        header.push(count("sampler.exact.alloc_space", exact.alloc_space));
    }
    for lost in profile.lost.iter().filter(|lost| lost.samples > 0) {
        header.push(count(&format!("sampler.lost.{}", lost.outcome), lost.samples));
    }
    header.extend(profile.cost.iter().map(|cost| text("sampler.cost", &cost.text())));
    for (index, note) in profile.notes.iter().enumerate() {
        header.push(text(&format!("sampler.note.{index}"), &note.to_string()));
    }
    header
}

#[cfg(test)]
mod tests;
