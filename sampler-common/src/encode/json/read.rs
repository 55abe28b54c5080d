//! Reading back what the json format holds: saved profiles, to be compared.
//!
//! All numbers come back as they were. Mappings, file offsets and lines are not in the format: every function is a
//! location of its own. Keys that are not known are passed over; what files of older versions lack has a default.

use super::cost::CostObject;
use crate::estimate::{
    Confidence, Estimate, Estimator, Method, Moments, Reference, Row, RowMoments, Stratum,
    StratumTotals, Trials,
};
use crate::limits::CLASSES;
use crate::profile::{
    Exact, Kind, Line, Location, Lost, Mapping, Profile, Quantities, Quantity, Stack, Window,
};
use crate::sampling::Strategy;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Text that is no profile; the message is one line with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no profile in json: {0} (save one: sampler profile --json -o FILE)")]
pub struct ReadError(String);

/// The profile that `text`, one object, holds.
///
/// # Errors
/// If it is no json, lacks something, or holds a number that makes no sense.
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

#[derive(Clone, Copy, Deserialize)]
struct ExactObject {
    alloc_objects: u64,
    alloc_space: u64,
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
}

#[derive(Deserialize)]
struct QuantitiesObject {
    alloc_space: QuantityObject,
    alloc_objects: QuantityObject,
    inuse_space: QuantityObject,
    inuse_objects: QuantityObject,
}

#[derive(Deserialize)]
struct QuantityObject {
    value: f64,
    low: f64,
    #[serde(deserialize_with = "or_infinite")]
    high: f64,
    #[serde(default = "weighted")]
    method: Method,
    moments: MomentsObject,
}

#[derive(Deserialize)]
struct MomentsObject {
    samples: u64,
    sum: f64,
    #[serde(deserialize_with = "or_infinite")]
    variance: f64,
    #[serde(deserialize_with = "or_infinite")]
    largest: f64,
    largest_inclusion: f64,
    own: f64,
}

#[derive(Deserialize)]
struct StratumObject {
    process: u32,
    class: u8,
    alloc_space: Option<MomentsObject>,
    alloc_objects: Option<MomentsObject>,
    inuse_space: Option<MomentsObject>,
    inuse_objects: Option<MomentsObject>,
    alloc_trials: Option<TrialsObject>,
    inuse_trials: Option<TrialsObject>,
}

#[derive(Deserialize)]
struct TrialsObject {
    #[serde(deserialize_with = "or_infinite")]
    failures: f64,
    #[serde(deserialize_with = "or_infinite")]
    variance: f64,
    tail: f64,
}

#[derive(Deserialize)]
struct ReferenceObject {
    pids: Vec<u32>,
    #[serde(deserialize_with = "or_infinite")]
    interval_bytes: f64,
    strata: Vec<TotalsObject>,
}

#[derive(Deserialize)]
struct TotalsObject {
    #[serde(flatten)]
    sampled: StratumObject,
    exact: Option<ExactObject>,
    #[serde(deserialize_with = "or_infinite")]
    unseen_objects: f64,
    #[serde(deserialize_with = "or_infinite")]
    unseen_bytes: f64,
}

/// json has no infinite numbers: they are `null`.
fn or_infinite<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

/// Files without a method are from before there were others.
fn weighted() -> Method {
    Method::Weighted
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
            // Written root first.
            locations: stack.frames.into_iter().rev().map(|name| frames.location(name)).collect(),
            row: row(stack.strata, &reference).map_err(within)?,
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
        // Where a process was sampled by stride the name is that of none.
        estimator: of
            .estimator
            .and_then(|name| Estimator::from_name(&name))
            .unwrap_or(Estimator::Weighted),
        strategies: strategies.collect::<Result<_, String>>()?,
        pids,
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
        stacks,
        notes: of.notes,
        cost: of
            .cost
            .map(CostObject::report)
            .transpose()
            .map_err(|error| format!("cost: {error}"))?,
        reference,
    })
}

/// Functions as locations, each once.
#[derive(Default)]
struct Frames {
    locations: Vec<Location>,
    indices: HashMap<String, u32>,
}

impl Frames {
    fn location(&mut self, function: String) -> u32 {
        if let Some(index) = self.indices.get(&function) {
            return *index;
        }
        let index = self.locations.len() as u32;
        let line = Line { function: function.clone(), ..Line::default() };
        self.locations.push(Location { mapping: 0, address: u64::from(index), lines: vec![line] });
        self.indices.insert(function, index);
        index
    }
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

fn quantities(of: &QuantitiesObject, confidence: Confidence) -> Result<Quantities, String> {
    Ok(Quantities {
        alloc_objects: quantity(&of.alloc_objects, confidence)?,
        alloc_space: quantity(&of.alloc_space, confidence)?,
        inuse_objects: quantity(&of.inuse_objects, confidence)?,
        inuse_space: quantity(&of.inuse_space, confidence)?,
    })
}

fn quantity(of: &QuantityObject, confidence: Confidence) -> Result<Quantity, String> {
    let QuantityObject { value, low, high, method, .. } = *of;
    // json has no NaN.
    if !(0.0 <= low && low <= value && value <= high && value.is_finite()) {
        return Err(format!("value {value} lies outside its interval {low} to {high}"));
    }
    let moments = moments(&of.moments)?;
    let samples = moments.samples;
    Ok(Quantity { estimate: Estimate { value, low, high, confidence, samples, method }, moments })
}

fn moments(of: &MomentsObject) -> Result<Moments, String> {
    let MomentsObject { samples, sum, variance, largest, largest_inclusion, own } = *of;
    if !(0.0..=1.0).contains(&largest_inclusion) {
        return Err(format!("largest_inclusion {largest_inclusion} is no probability"));
    }
    for (name, number) in [("sum", sum), ("variance", variance), ("largest", largest), ("own", own)]
    {
        if number < 0.0 {
            return Err(format!("{name} {number} is negative"));
        }
    }
    Ok(Moments { samples, sum, variance, largest, largest_inclusion, own })
}

/// The moments of a stratum, and which.
fn stratum(of: &StratumObject) -> Result<(Stratum, RowMoments), String> {
    if usize::from(of.class) >= CLASSES {
        return Err(format!("class {} is not below {CLASSES}", of.class));
    }
    let moments = |of: &Option<MomentsObject>| {
        of.as_ref().map(moments).transpose().map(Option::unwrap_or_default)
    };
    let trials = |of: &Option<TrialsObject>| {
        let of = of.as_ref();
        of.map(|TrialsObject { failures, variance, tail }| Trials {
            failures: *failures,
            variance: *variance,
            tail: *tail,
        })
        .unwrap_or_default()
    };
    let row = RowMoments {
        alloc_space: moments(&of.alloc_space)?,
        alloc_objects: moments(&of.alloc_objects)?,
        inuse_space: moments(&of.inuse_space)?,
        inuse_objects: moments(&of.inuse_objects)?,
        alloc_trials: trials(&of.alloc_trials),
        inuse_trials: trials(&of.inuse_trials),
    };
    Ok((Stratum { process: of.process, class: of.class }, row))
}

fn row(strata: Vec<StratumObject>, reference: &Reference) -> Result<Row, String> {
    let mut row = Row::default();
    for of in &strata {
        let (at, moments) = stratum(of)?;
        if !reference.strata.contains_key(&at) {
            return Err(format!(
                "the reference has no class {} of process {}",
                at.class, at.process
            ));
        }
        row.stratum(at).add(&moments);
    }
    Ok(row)
}

/// The pids and the reference; of an older file only the interval.
fn reference(
    of: Option<ReferenceObject>,
    interval_bytes: u64,
) -> Result<(Vec<u32>, Reference), String> {
    let Some(of) = of else {
        let interval_bytes = interval_bytes as f64;
        return Ok((vec![], Reference { interval_bytes, ..Reference::default() }));
    };
    let mut reference = Reference { interval_bytes: of.interval_bytes, ..Reference::default() };
    for totals in &of.strata {
        let (at, sampled) =
            stratum(&totals.sampled).map_err(|error| format!("reference: {error}"))?;
        let exact = totals.exact.map(|of| (of.alloc_space, of.alloc_objects));
        let (unseen_objects, unseen_bytes) = (totals.unseen_objects, totals.unseen_bytes);
        let of = StratumTotals { sampled, exact, unseen_objects, unseen_bytes };
        reference.strata.insert(at, of);
    }
    Ok((of.pids, reference))
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture;
    use super::super::Json;
    use super::*;
    use proptest::prelude::{
        Strategy as Generate, any, prop, prop_assert, prop_assert_eq, proptest,
    };

    fn written(profile: &Profile) -> String {
        String::from_utf8(fixture::encoded(&Json, profile)).unwrap()
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        for profile in [
            fixture::profile(Kind::Alloc),
            fixture::profile(Kind::Live),
            fixture::hostile(),
            fixture::empty(),
            fixture::stride(),
        ] {
            let text = written(&profile);
            let back = read(&text).unwrap();
            assert_eq!(written(&back), text);
            assert_eq!((back.totals, &back.reference), (profile.totals, &profile.reference));
        }
    }

    #[test]
    fn broken_files_say_what_is_wrong() {
        let text = written(&fixture::profile(Kind::Alloc));
        let number = |key: &str, value: &str| {
            let start = text.find(key).unwrap() + key.len();
            let end = start + text[start..].find([',', '}']).unwrap();
            format!("{}{value}{}", &text[..start], &text[end..])
        };
        for (broken, words) in [
            (String::new(), "EOF while parsing"),
            ("{}".to_owned(), "missing field `kind`"),
            ("hello".to_owned(), "expected value at line 1"),
            (text[..text.len() / 2].to_owned(), "EOF while parsing"),
            (text.repeat(2), "trailing characters at line 2"),
            (text.replace("\"alloc\"", "\"both\""), "kind \"both\" is unknown"),
            (number("\"confidence\":", "1.5"), "confidence 1.5 is not between 0 and 1"),
            (number("\"value\":", "-3.0"), "outside its interval"),
            (number("\"own\":", "-3.0"), "own -3 is negative"),
            (number("\"class\":", "32"), "class 32 is not below 32"),
            (number("\"largest_inclusion\":", "2.0"), "is no probability"),
            (text.replace("\"geometric\"", "\"guess\""), "strategy \"guess\" is unknown"),
        ] {
            let error = read(&broken).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains('\n'), "{words}: {error}");
            assert!(error.ends_with("(save one: sampler profile --json -o FILE)"), "{error}");
        }
    }

    #[test]
    fn files_without_strata_are_read() {
        let mut value: Value =
            serde_json::from_str(&written(&fixture::profile(Kind::Alloc))).unwrap();
        let object = value.as_object_mut().unwrap();
        for key in ["estimator", "strategy", "reference"] {
            object.remove(key);
        }
        for stack in object["stacks"].as_array_mut().unwrap() {
            stack.as_object_mut().unwrap().remove("strata");
        }
        object.insert("something new".to_owned(), Value::Null);
        let profile = read(&value.to_string()).unwrap();
        assert_eq!(profile.stacks.len(), 5);
        assert_eq!(profile.reference.interval_bytes, fixture::INTERVAL_BYTES as f64);
    }

    /// Numbers of every magnitude.
    fn number() -> impl Generate<Value = f64> {
        (0u64..1 << 53, -60i32..30).prop_map(|(digits, power)| digits as f64 * 2f64.powi(power))
    }

    proptest! {
        #[test]
        fn every_number_comes_back(
            numbers in prop::collection::vec(number(), 12),
            samples in any::<u64>(),
            inclusion in 0f64..=1.0,
            name in ".{0,20}",
        ) {
            let mut profile = fixture::profile(Kind::Live);
            profile.notes = vec![name];
            profile.samples = samples;
            for (stack, numbers) in profile.stacks.iter_mut().zip(numbers.chunks(3)) {
                let space = &mut stack.quantities.alloc_space;
                space.estimate.value = numbers[0];
                (space.estimate.low, space.estimate.high) = (0.0, numbers[0] + numbers[1]);
                space.moments = Moments {
                    samples,
                    sum: numbers[1],
                    variance: numbers[2],
                    largest: numbers[0],
                    largest_inclusion: inclusion,
                    own: numbers[2],
                };
                space.estimate.samples = samples;
            }
            let text = written(&profile);
            let back = read(&text).unwrap();
            prop_assert_eq!(written(&back), text);
            for (back, stack) in back.stacks.iter().zip(&profile.stacks) {
                prop_assert_eq!(back.quantities, stack.quantities);
                prop_assert_eq!(&back.row, &stack.row);
            }
        }

        #[test]
        fn garbage_is_an_error(at in any::<prop::sample::Index>(), byte in 0x20u8..0x7f) {
            let mut text = written(&fixture::profile(Kind::Alloc)).into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            if let Ok(profile) = read(std::str::from_utf8(&text).unwrap()) {
                prop_assert!(profile.stacks.iter().all(|stack| profile.frames(stack).count() == stack.locations.len()));
            }
        }
    }
}
