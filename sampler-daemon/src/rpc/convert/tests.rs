mod any;

use super::*;
use crate::rpc::v1;
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn profiles_arrive_as_sent(profile in any::profile()) {
        let bytes = to_wire(profile.clone()).encode_to_vec();
        let arrived = from_wire(v1::Profile::decode(&bytes[..]).unwrap());
        prop_assert_eq!(arrived, Ok(profile));
    }

    /// A foreign socket may send a client anything: the result is an error, never a panic.
    #[test]
    fn damaged_messages_are_refused_or_sound(
        profile in any::profile(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = to_wire(profile.clone()).encode_to_vec();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(wire) = v1::Profile::decode(&bytes[..])
            && let Ok(profile) = from_wire(wire)
        {
            for stack in &profile.stacks {
                prop_assert!(profile.frames(stack).count() >= stack.locations.len());
            }
        }
    }
}

fn sound() -> v1::Profile {
    let number = |value: f64| {
        let moments = v1::Moments { largest_inclusion: 1.0, ..v1::Moments::default() };
        let method = "weighted".to_owned();
        Some(v1::Quantity { value, low: value, high: value, method, moments: Some(moments) })
    };
    let quantities = v1::Quantities {
        alloc_objects: number(1.0),
        alloc_space: number(2.0),
        inuse_objects: number(3.0),
        inuse_space: number(4.0),
    };
    let stratum = v1::Stratum {
        size_class: 3,
        alloc_space: Some(v1::Moments::default()),
        ..v1::Stratum::default()
    };
    v1::Profile {
        kind: v1::Kind::Live.into(),
        confidence: 0.95,
        totals: Some(quantities.clone()),
        exact: Some(v1::Exact::default()),
        strings: vec![String::new(), "f".to_owned()],
        mappings: vec![v1::Mapping::default()],
        locations: vec![v1::Location {
            mapping: 0,
            address: 1,
            lines: vec![v1::Line { function: 1, file: 0, line: 0 }],
        }],
        stacks: vec![v1::Stack {
            pid: 1,
            locations: vec![0],
            quantities: Some(quantities),
            strata: vec![stratum],
            clusters: vec![v1::ClusterSum { process: 0, group: 0, bytes: 1.0, objects: 1.0 }],
        }],
        estimator: "weighted".to_owned(),
        strategy: "geometric,poisson".to_owned(),
        reference: Some(v1::Reference {
            pids: vec![1],
            strata: vec![v1::StratumTotals {
                sampled: Some(stratum),
                ..v1::StratumTotals::default()
            }],
            interval_bytes: 1.0,
            clusters: vec![v1::Clusters {
                groups: vec![v1::Cluster::default()],
                ..v1::Clusters::default()
            }],
            held_unknown: true,
            allocations_unseen: true,
        }),
        ..v1::Profile::default()
    }
}

#[test]
fn errors_name_the_place() {
    type Damage = fn(&mut v1::Profile);
    fn clusters(p: &mut v1::Profile) -> &mut v1::Clusters {
        &mut p.reference.as_mut().unwrap().clusters[0]
    }
    fn function(function: u32) -> Option<v1::Functions> {
        let row = v1::FunctionSum { function, ..v1::FunctionSum::default() };
        Some(v1::Functions { rows: vec![row], ..v1::Functions::default() })
    }
    let cases: [(Damage, &str); 36] = [
        (|p| p.stacks[0].clusters[0].group = 1, "stack 0: group of windows 1 is out of"),
        (|p| p.stacks[0].clusters[0].bytes = f64::NAN, "stack 0: bytes NaN"),
        (|p| clusters(p).process = 5, "windows: process 5 is out of"),
        (|p| clusters(p).groups[0].traps = f64::INFINITY, "windows: traps inf"),
        (|p| clusters(p).groups = vec![v1::Cluster::default(); 140], "windows: 140 groups"),
        (|p| p.kind = 7, "kind 7"),
        (|p| p.functions = function(9), "functions: function 0: string 9 is out of range"),
        (|p| p.functions = function(1), "functions: function 0: it has no total"),
        (|p| p.confidence = 1.0, "confidence 1 "),
        (|p| p.confidence = f64::NAN, "confidence NaN"),
        (|p| p.totals = None, "no totals"),
        (|p| p.window_start_unix_ns = 5, "ends before it begins"),
        (|p| p.strings.clear(), "first string"),
        (|p| p.locations[0].mapping = 1, "location 0: mapping 1 is out of range"),
        (|p| p.locations[0].lines[0].function = 2, "location 0: string 2 is out of range"),
        (|p| p.locations[0].lines.clear(), "location 0: it has no line"),
        (|p| p.stacks[0].locations.push(1), "stack 0: location 1 is out of range"),
        (|p| p.stacks[0].quantities = None, "stack 0: it has no quantities"),
        (|p| space(p).value = f64::INFINITY, "stack 0: inuse_space: value inf"),
        (|p| space(p).low = 5.0, "outside its interval"),
        (|p| space(p).method = "guessed".into(), "method \"guessed\" is unknown"),
        (
            |p| (space(p).method, space(p).high) = ("failed-trials".into(), f64::INFINITY),
            "high inf is not a finite number",
        ),
        (|p| space(p).moments.as_mut().unwrap().variance = f64::INFINITY, "variance inf"),
        (|p| p.estimator = "exactly".into(), "estimator \"exactly\" is unknown"),
        (|p| p.estimator.clear(), "estimator \"\" is unknown"),
        (|p| p.estimator = "points".into(), "not one for these strategies"),
        (|p| p.strategy = "stride".into(), "not one for these strategies"),
        (|p| p.strategy = "poisson,every".into(), "strategy \"every\" is unknown"),
        (|p| p.strategy = "poisson,poisson".into(), "listed twice"),
        (|p| p.reference = None, "reference: it is missing"),
        (|p| strata(p)[0].sampled.as_mut().unwrap().process = 1, "stratum 0: process 1 is out of"),
        (|p| strata(p)[0].unseen_bytes = f64::NAN, "reference: stratum 0: unseen_bytes NaN"),
        (|p| strata(p).extend_from_within(..), "process 0, class 3 is listed twice"),
        (|p| p.stacks[0].strata[0].size_class = 32, "stack 0: stratum 0: class 32 is out of range"),
        (|p| p.stacks[0].strata[0].size_class = 4, "class 4 is not in the reference"),
        (
            |p| p.stacks[0].strata[0].alloc_space.as_mut().unwrap().samples = u64::MAX,
            "more than there can be",
        ),
    ];
    from_wire(sound()).unwrap();
    for (damage, words) in cases {
        let mut profile = sound();
        damage(&mut profile);
        let error = from_wire(profile).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

fn strata(profile: &mut v1::Profile) -> &mut Vec<v1::StratumTotals> {
    &mut profile.reference.as_mut().unwrap().strata
}

fn space(profile: &mut v1::Profile) -> &mut v1::Quantity {
    profile.stacks[0].quantities.as_mut().unwrap().inuse_space.as_mut().unwrap()
}

/// Only numbers of a stride may have no upper end.
#[test]
fn a_stride_has_no_interval() {
    let mut profile = sound();
    (profile.strategy, profile.estimator) = ("stride".into(), "points".into());
    let quantity = space(&mut profile);
    (quantity.method, quantity.high) = ("stride".into(), f64::INFINITY);
    quantity.moments.as_mut().unwrap().variance = f64::INFINITY;
    let profile = from_wire(profile).unwrap();
    assert_eq!(profile.stacks[0].quantities.inuse_space.estimate.high, f64::INFINITY);
    assert_eq!(profile.estimator_name(), "points");
}

#[test]
fn bounds_off_by_rounding_are_corrected() {
    let mut profile = sound();
    space(&mut profile).low = 4.0 + 1e-12;
    let profile = from_wire(profile).unwrap();
    let estimate = profile.stacks[0].quantities.inuse_space.estimate;
    assert_eq!((estimate.low, estimate.value), (4.0, 4.0));
}
