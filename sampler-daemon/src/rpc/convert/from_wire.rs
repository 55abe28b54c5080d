//! From the protocol, checked: an index out of range or a number that is none is an error that names it.

use super::METHODS;
use crate::rpc::v1;
use sampler_common::estimate::{Confidence, Estimate, Moments};
use sampler_common::profile::{
    Exact, Kind, Line, Location, Lost, Mapping, Profile, Quantities, Quantity, Stack,
};
use std::collections::HashSet;

/// By how much an end of an interval may lie on the wrong side of its estimate, relative to it:
/// rounding of another implementation, no more.
const TOLERANCE: f64 = 1e-9;

/// A profile from the protocol; what came over the network is checked (indices, numbers).
///
/// The error is one line for people. Every [`Estimate`] gets the profile's confidence and its moments'
/// number of samples.
pub fn from_wire(profile: v1::Profile) -> Result<Profile, String> {
    let kind = match profile.kind() {
        v1::Kind::Alloc => Kind::Alloc,
        v1::Kind::Live => Kind::Live,
        v1::Kind::Unspecified => {
            return Err(format!("kind {} is neither alloc nor live", profile.kind));
        }
    };
    let confidence = Confidence::new(profile.confidence).map_err(|error| error.to_string())?;
    let totals = profile.totals.ok_or("the profile has no totals")?;
    let totals = quantities_from_wire(&totals, confidence).within("totals")?;
    let exact = profile.exact.ok_or("the profile has no exact totals")?;
    let lost = lost(profile.lost, confidence)?;
    if profile.strings.first().is_none_or(|first| !first.is_empty()) {
        return Err("the first string is not empty".to_owned());
    }
    let mappings: Vec<Mapping> = profile
        .mappings
        .into_iter()
        .map(|of| Mapping { path: of.path, build_id: of.build_id })
        .collect();
    let locations =
        each(profile.locations, "location", |of| location(&of, &profile.strings, mappings.len()))?;
    let stacks = each(profile.stacks, "stack", |of| stack(of, locations.len(), confidence))?;
    Ok(Profile {
        kind,
        confidence,
        time_unix_ns: profile.time_unix_ns,
        duration_ns: profile.duration_ns,
        interval_bytes: profile.interval_bytes,
        totals,
        exact: Exact { alloc_objects: exact.alloc_objects, alloc_space: exact.alloc_space },
        samples: profile.samples,
        lost,
        mappings,
        locations,
        stacks,
        stacks_total: profile.stacks_total,
        notes: profile.notes,
    })
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

/// Says where in the profile an error lies.
trait Within<T> {
    fn within(self, place: &str) -> Result<T, String>;
}

impl<T> Within<T> for Result<T, String> {
    fn within(self, place: &str) -> Result<T, String> {
        self.map_err(|error| format!("{place}: {error}"))
    }
}

/// Converts a list; an error names the entry.
fn each<T, U>(
    list: Vec<T>,
    name: &str,
    convert: impl Fn(T) -> Result<U, String>,
) -> Result<Vec<U>, String> {
    let entries = list.into_iter().enumerate();
    entries.map(|(index, of)| convert(of).within(&format!("{name} {index}"))).collect()
}

fn check_index(name: &str, index: u32, length: usize) -> Result<(), String> {
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
    let string = |index: u32| -> Result<String, String> {
        check_index("string", index, strings.len())?;
        Ok(strings[index as usize].clone())
    };
    let lines = of.lines.iter().map(|line| {
        Ok(Line { function: string(line.function)?, file: string(line.file)?, line: line.line })
    });
    Ok(Location {
        mapping: of.mapping,
        address: of.address,
        lines: lines.collect::<Result<_, String>>()?,
    })
}

fn stack(of: v1::Stack, locations: usize, confidence: Confidence) -> Result<Stack, String> {
    for index in &of.locations {
        check_index("location", *index, locations)?;
    }
    let quantities = of.quantities.as_ref().ok_or("it has no quantities")?;
    Ok(Stack {
        pid: of.pid,
        locations: of.locations,
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
    // They are the keys of an object in json.
    match lost.iter().find(|of| !outcomes.insert(of.outcome.as_str())) {
        Some(twice) => Err(format!("lost: outcome {} is listed twice", twice.outcome)),
        None => Ok(lost),
    }
}

/// A number of a profile: finite and not negative.
fn number(name: &str, value: f64) -> Result<f64, String> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(format!("{name} {value} is not a finite number of 0 or more"))
    }
}

fn quantity(of: &v1::Quantity, confidence: Confidence) -> Result<Quantity, String> {
    let value = number("value", of.value)?;
    let (low, high) = (number("low", of.low)?, number("high", of.high)?);
    let slack = TOLERANCE * value.max(1.0);
    if low > value + slack || high < value - slack {
        return Err(format!("value {value} lies outside its interval {low} to {high}"));
    }
    let method = METHODS.iter().find(|(_, name)| *name == of.method);
    let (method, _) = method.ok_or_else(|| {
        format!("method {:?} is unknown (is this sampler older than samplerd?)", of.method)
    })?;
    let moments = moments(of.moments.as_ref().ok_or("it has no moments")?)?;
    let estimate = Estimate {
        value,
        low: low.min(value),
        high: high.max(value),
        confidence,
        samples: moments.samples,
        method: *method,
    };
    Ok(Quantity { estimate, moments })
}

fn moments(of: &v1::Moments) -> Result<Moments, String> {
    if !(0.0..=1.0).contains(&of.largest_inclusion) {
        return Err(format!("largest_inclusion {} is no probability", of.largest_inclusion));
    }
    Ok(Moments {
        samples: of.samples,
        sum: number("sum", of.sum)?,
        variance: number("variance", of.variance)?,
        largest: number("largest", of.largest)?,
        largest_inclusion: of.largest_inclusion,
        own: number("own", of.own)?,
    })
}
