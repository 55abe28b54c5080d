//! The json format: everything that a profile holds, one object on one line.
//!
//! The keys are stable; `docs/formats.md` is the schema. Frames are whole function names, root
//! first, inlined frames included. json has no infinite numbers. So an infinite upper end or
//! variance, as of strategy stride, is `null`.

mod cost;
mod read;
mod strata;

pub use cost::cost;
pub use read::{ReadError, read};

use super::Encode;
use crate::estimate::{Method, Moments, Row};
use crate::note::Note;
use crate::profile::{Exact, ProcessName, Profile, Quantities, Quantity, Stack};
use crate::source::{SampleSource, SourceGroup};
use serde::Serialize;
use serde::ser::Serializer;
use std::io::{self, Write};

/// Writes the json format and a final newline.
pub struct Json;

impl Encode for Json {
    fn encode(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, &profile_object(profile))?;
        out.write_all(b"\n")
    }
}

/// The four quantities in the form that the json format has under `totals`.
pub fn quantities(of: &Quantities) -> impl Serialize + use<> {
    QuantitiesObject::from(of)
}

/// A profile without its processes, its stacks and the reference of its estimates, in the form of
/// the json format.
pub fn head(profile: &Profile) -> Head<'_> {
    Head {
        kind: profile.kind.name(),
        confidence: profile.confidence.level(),
        interval_bytes: profile.interval_bytes,
        time_unix_ns: profile.time_unix_ns,
        duration_ns: profile.duration_ns,
        window: profile.window.map(|of| WindowObject {
            start_unix_ns: of.start_unix_ns,
            end_unix_ns: of.end_unix_ns,
        }),
        estimator: profile.estimator_name(),
        strategy: profile.strategy_names(),
        sources: sources(&profile.sources),
        totals: (&profile.totals).into(),
        exact: profile.exact.map(Into::into),
        samples: profile.samples,
        lost: profile,
        stacks_total: profile.stacks_total,
        notes: &profile.notes,
        cost: profile.cost.as_ref().map(cost::CostObject::from),
    }
}

/// Processes grouped by the sources of their samples, in the form that the json format has under
/// `sources`.
pub fn sources(groups: &[SourceGroup]) -> Vec<SourcesObject> {
    let object = |of: &SourceGroup| SourcesObject {
        sources: of.sources.iter().map(SampleSource::name).collect(),
        processes: of.processes,
    };
    groups.iter().map(object).collect()
}

/// Processes that have the same sources, see [`sources()`].
#[derive(Serialize)]
pub struct SourcesObject {
    sources: Vec<&'static str>,
    processes: u64,
}

#[derive(Serialize)]
struct ProfileObject<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    #[serde(serialize_with = "processes")]
    processes: &'a Profile,
    #[serde(serialize_with = "strata::reference")]
    reference: &'a Profile,
    #[serde(serialize_with = "stacks")]
    stacks: &'a Profile,
}

/// The head of a profile, see [`head()`].
#[derive(Serialize)]
pub struct Head<'a> {
    kind: &'static str,
    confidence: f64,
    interval_bytes: u64,
    time_unix_ns: u64,
    duration_ns: u64,
    window: Option<WindowObject>,
    estimator: &'static str,
    strategy: String,
    sources: Vec<SourcesObject>,
    totals: QuantitiesObject,
    exact: Option<ExactObject>,
    samples: u64,
    #[serde(serialize_with = "lost")]
    lost: &'a Profile,
    stacks_total: u64,
    notes: &'a [Note],
    cost: Option<cost::CostObject>,
}

#[derive(Serialize)]
struct ProcessObject<'a> {
    pid: u32,
    comm: &'a str,
    exe: &'a str,
}

#[derive(Serialize)]
struct WindowObject {
    start_unix_ns: u64,
    end_unix_ns: u64,
}

#[derive(Serialize)]
struct ExactObject {
    alloc_objects: u64,
    alloc_space: u64,
}

#[derive(Serialize)]
struct LostObject {
    samples: u64,
    alloc_space: Option<QuantityObject>,
    alloc_objects: Option<QuantityObject>,
}

#[derive(Serialize)]
struct StackObject<'a> {
    pid: u32,
    frames: Vec<&'a str>,
    #[serde(flatten)]
    quantities: QuantitiesObject,
    #[serde(serialize_with = "strata::row")]
    strata: &'a Row,
    /// Process, group of windows, bytes and objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    clusters: Vec<(u32, u16, [f64; 2])>,
}

#[derive(Serialize)]
struct QuantitiesObject {
    alloc_space: QuantityObject,
    alloc_objects: QuantityObject,
    inuse_space: QuantityObject,
    inuse_objects: QuantityObject,
}

#[derive(Serialize)]
struct QuantityObject {
    value: f64,
    low: f64,
    high: f64,
    method: Method,
    moments: MomentsObject,
}

#[derive(Serialize)]
struct MomentsObject {
    samples: u64,
    sum: f64,
    variance: f64,
    largest: f64,
    largest_inclusion: f64,
    own: f64,
}

fn profile_object(profile: &Profile) -> ProfileObject<'_> {
    ProfileObject { head: head(profile), processes: profile, reference: profile, stacks: profile }
}

/// Writes row by row, so that a profile of many stacks is not held in memory a second time.
fn stacks<S: Serializer>(profile: &Profile, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(profile.stacks.iter().map(|stack| stack_object(profile, stack)))
}

fn processes<S: Serializer>(profile: &Profile, serializer: S) -> Result<S::Ok, S::Error> {
    let named = profile.process_names.iter();
    serializer.collect_seq(named.map(|(pid, ProcessName { comm, exe })| ProcessObject {
        pid: *pid,
        comm,
        exe,
    }))
}

fn stack_object<'a>(profile: &'a Profile, stack: &'a Stack) -> StackObject<'a> {
    StackObject {
        pid: stack.pid,
        frames: profile.frames(stack).map(|line| line.function.as_str()).collect(),
        quantities: (&stack.quantities).into(),
        strata: &stack.row,
        clusters: stack.row.clusters().collect(),
    }
}

fn lost<S: Serializer>(profile: &Profile, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(profile.lost.iter().map(|lost| {
        let object = LostObject {
            samples: lost.samples,
            alloc_space: lost.alloc_space.as_ref().map(Into::into),
            alloc_objects: lost.alloc_objects.as_ref().map(Into::into),
        };
        (&lost.outcome, object)
    }))
}

impl From<Exact> for ExactObject {
    fn from(Exact { alloc_objects, alloc_space }: Exact) -> Self {
        ExactObject { alloc_objects, alloc_space }
    }
}

impl From<&Quantities> for QuantitiesObject {
    fn from(of: &Quantities) -> Self {
        QuantitiesObject {
            alloc_space: (&of.alloc_space).into(),
            alloc_objects: (&of.alloc_objects).into(),
            inuse_space: (&of.inuse_space).into(),
            inuse_objects: (&of.inuse_objects).into(),
        }
    }
}

impl From<&Quantity> for QuantityObject {
    fn from(Quantity { estimate, moments }: &Quantity) -> Self {
        QuantityObject {
            value: estimate.value,
            low: estimate.low,
            high: estimate.high,
            method: estimate.method,
            moments: moments.into(),
        }
    }
}

impl From<&Moments> for MomentsObject {
    fn from(of: &Moments) -> Self {
        MomentsObject {
            samples: of.samples,
            sum: of.sum,
            variance: of.variance,
            largest: of.largest,
            largest_inclusion: of.largest_inclusion,
            own: of.own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use crate::profile::Kind;
    use serde_json::Value;

    fn written(profile: &Profile) -> String {
        String::from_utf8(fixture::encoded(&Json, profile)).unwrap()
    }

    #[test]
    fn golden() {
        let text = written(&fixture::profile(Kind::Alloc));
        let value: Value = serde_json::from_str(&text).unwrap();
        // Pretty-printed, so that a diff is readable.
        fixture::golden("alloc.json", serde_json::to_string_pretty(&value).unwrap() + "\n");
        assert_eq!(text.matches('\n').count(), 1);
    }

    #[test]
    fn json_has_the_documented_fields() {
        let profile = fixture::profile(Kind::Live);
        let value: Value = serde_json::from_str(&written(&profile)).unwrap();
        assert_eq!(value["kind"], "live");
        assert_eq!(value["confidence"], 0.95);
        for name in ["alloc_space", "alloc_objects", "inuse_space", "inuse_objects"] {
            for object in [&value["totals"][name], &value["stacks"][0][name]] {
                for key in ["value", "low", "high"] {
                    assert!(object[key].is_f64(), "{name}.{key}");
                }
                for key in ["samples", "sum", "variance", "largest", "largest_inclusion", "own"] {
                    assert!(object["moments"][key].is_number(), "{name}.moments.{key}");
                }
            }
        }
        assert_eq!(value["exact"]["alloc_space"], profile.exact.unwrap().alloc_space);
        assert!(value["lost"]["live_full"]["alloc_space"].is_null());
        assert!(value["lost"]["ring_full"]["alloc_space"]["low"].is_f64());
        assert_eq!(value["stacks"].as_array().unwrap().len(), profile.stacks.len());
    }

    #[test]
    fn strata_have_the_moments_of_their_stack() {
        let profile = fixture::profile(Kind::Alloc);
        let value: Value = serde_json::from_str(&written(&profile)).unwrap();
        let stack = &value["stacks"][2];
        let strata = stack["strata"].as_array().unwrap();
        assert_eq!((strata.len(), &strata[0]["class"]), (1, &5.into()));
        assert_eq!(strata[0]["alloc_space"], stack["alloc_space"]["moments"]);
        assert!(strata[0].get("inuse_space").is_none(), "nothing of it is held");
        assert!(strata[0]["alloc_trials"]["failures"].is_f64());
        let reference = &value["reference"];
        assert_eq!(reference["pids"], serde_json::json!([4121, 4122]));
        let totals = reference["strata"].as_array().unwrap();
        assert_eq!(totals.len(), profile.reference.strata.len());
        assert!(totals.iter().all(|of| of["exact"]["alloc_space"].is_u64()));
    }

    #[test]
    fn an_estimate_without_an_interval_has_no_upper_end() {
        let profile = fixture::stride();
        let value: Value = serde_json::from_str(&written(&profile)).unwrap();
        assert_eq!((&value["estimator"], &value["strategy"]), (&"points".into(), &"stride".into()));
        let space = &value["stacks"][0]["alloc_space"];
        assert!(space["low"].is_f64() && space["high"].is_null());
        assert_eq!(space["method"], "stride");
        assert!(space["moments"]["variance"].is_null());
    }

    #[test]
    fn frames_with_hostile_names_are_written_whole() {
        let profile = fixture::hostile();
        let value: Value = serde_json::from_str(&written(&profile)).unwrap();
        let frames = value["stacks"][0]["frames"].as_array().unwrap();
        assert_eq!(frames[0], "a;b");
        assert_eq!(frames[1], "c\nd");
        assert_eq!(frames[2].as_str().unwrap().len(), fixture::LONG_NAME_BYTES);
    }

    #[test]
    fn an_empty_profile_is_an_object() {
        let value: Value = serde_json::from_str(&written(&fixture::empty())).unwrap();
        assert_eq!(value["stacks"], Value::Array(vec![]));
        assert_eq!(value["lost"], Value::Object(Default::default()));
    }
}
