use super::*;
use crate::rpc::v1;
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;
use sampler_common::cost::{Range, Report};
use sampler_common::estimate::{
    Cluster, Clusters, Confidence, Correction, Epoch, Estimate, Estimator, Method, Moments,
    Reference, Row, RowMoments, Stratum, StratumTotals, Trials, Unseen,
};
use sampler_common::profile::{
    Exact, FunctionSum, Functions, Kind, Line, Location, Lost, Mapping, Profile, Quantities,
    Quantity, Stack, Window,
};
use sampler_common::sampling;

const NUMBER: std::ops::Range<f64> = 0.0..1e18;

fn moments() -> impl Strategy<Value = Moments> {
    (0..1u64 << 40, [NUMBER, NUMBER, NUMBER, NUMBER], 0.0..=1.0f64).prop_map(
        |(samples, [sum, variance, largest, own], largest_inclusion)| Moments {
            samples,
            sum,
            variance,
            largest,
            largest_inclusion,
            own,
        },
    )
}

fn quantity() -> impl Strategy<Value = Quantity> {
    (moments(), [NUMBER, NUMBER, NUMBER], 0..Method::ALL.len()).prop_map(
        |(mut moments, mut bounds, method)| {
            bounds.sort_by(f64::total_cmp);
            let [low, value, mut high] = bounds;
            let (method, samples) = (Method::ALL[method], moments.samples);
            if method == Method::Stride {
                (moments.variance, high) = (f64::INFINITY, f64::INFINITY);
            }
            let confidence = Confidence::DEFAULT;
            Quantity {
                estimate: Estimate { value, low, high, confidence, samples, method },
                moments,
            }
        },
    )
}

fn row_moments() -> impl Strategy<Value = RowMoments> {
    let trials = || {
        [NUMBER, NUMBER, NUMBER].prop_map(|[failures, variance, tail]| Trials {
            failures,
            variance,
            tail,
        })
    };
    ([moments(), moments(), moments(), moments()], trials(), any::<bool>()).prop_map(
        |([alloc_space, alloc_objects, mut inuse_space, inuse_objects], alloc_trials, stride)| {
            if stride {
                inuse_space.variance = f64::INFINITY;
            }
            let inuse_trials = Trials::default();
            RowMoments {
                alloc_space,
                alloc_objects,
                inuse_space,
                inuse_objects,
                alloc_trials,
                inuse_trials,
                alloc_rarest: if stride { f64::INFINITY } else { alloc_trials.tail },
                inuse_rarest: alloc_trials.variance,
            }
        },
    )
}

fn row() -> impl Strategy<Value = Row> {
    vec((0..2u32, 0..32u8, row_moments()), 0..3).prop_map(|strata| {
        let mut row = Row::default();
        for (process, class, moments) in strata {
            *row.stratum(Stratum { process, class }) = moments;
            if class % 3 == 0 {
                row.add_cluster(process, u16::from(class) % GROUPS, [f64::from(class), 0.5]);
            }
        }
        row
    })
}

/// Groups of windows of each process.
const GROUPS: u16 = 3;

/// The reference of the stacks' rows, every second stratum without exact totals.
fn reference(stacks: &[Stack], (numbers, interval_bytes): ([u64; 2], f64)) -> Reference {
    let mut reference =
        Reference { interval_bytes, held_unknown: numbers[0] % 2 == 0, ..Reference::default() };
    for (stratum, _) in stacks.iter().flat_map(|stack| stack.row.strata()) {
        let even = stratum.class % 2 == 0;
        let totals = StratumTotals {
            sampled: RowMoments::default(),
            exact: even.then_some((numbers[0], numbers[1])),
            at_most: (!even).then_some((numbers[1], numbers[0])),
            unseen_objects: if even { interval_bytes } else { f64::INFINITY },
            unseen_bytes: interval_bytes,
        };
        reference.strata.insert(stratum, totals);
        let groups =
            (0..GROUPS).map(|group| Cluster { length: 7.5, total: [f64::from(group), 1.0] });
        let correction = even.then_some(Correction {
            allocating_ns: 31.5,
            allocating_error_ns: 9.0,
            freeing_ns: 17.0,
            freeing_error_ns: 6.5,
            of_drag: 0.2,
            of_drag_below: 0.1,
            of_clock: 0.15,
            marks: 4_711,
            traffic_bytes: 815,
            tallied: 4_711,
            tally: 3,
            tallies: 2,
        });
        let groups = groups.collect();
        let clusters = Clusters { groups, windows: 11, errors: [0.125, 0.25], correction };
        reference.clusters.insert(stratum.process, clusters);
        if !even {
            let unseen = |bytes| Unseen { objects: f64::INFINITY, bytes };
            let (alloc, inuse) = (unseen(interval_bytes), unseen(interval_bytes + 1.0));
            let epoch = Epoch { bytes: numbers[0], objects: numbers[1], alloc, inuse };
            reference.epochs.insert(stratum, vec![epoch, Epoch::default()]);
        }
    }
    reference
}

fn quantities() -> impl Strategy<Value = Quantities> {
    [quantity(), quantity(), quantity(), quantity()].prop_map(
        |[alloc_objects, alloc_space, inuse_objects, inuse_space]| Quantities {
            alloc_objects,
            alloc_space,
            inuse_objects,
            inuse_space,
        },
    )
}

const MAPPINGS: usize = 3;
const LOCATIONS: usize = 6;

fn locations() -> impl Strategy<Value = Vec<Location>> {
    let line = ("[a-c]{0,2}", "[a-c]{0,2}", any::<u32>()).prop_map(|(function, file, line)| Line {
        function,
        file,
        line,
    });
    let location = (0..MAPPINGS as u32, any::<u64>(), vec(line, 1..4))
        .prop_map(|(mapping, address, lines)| Location { mapping, address, lines });
    vec(location, LOCATIONS)
}

fn stacks() -> impl Strategy<Value = Vec<Stack>> {
    let stack = (any::<u32>(), vec(0..LOCATIONS as u32, 0..9), row(), quantities())
        .prop_map(|(pid, locations, row, quantities)| Stack { pid, locations, row, quantities });
    vec(stack, 0..5)
}

fn lost() -> impl Strategy<Value = Vec<Lost>> {
    let of = (any::<u64>(), proptest::option::of(quantity()), proptest::option::of(quantity()));
    vec(of, 0..4).prop_map(|list| {
        let each = list.into_iter().enumerate();
        each.map(|(index, (samples, alloc_space, alloc_objects))| Lost {
            outcome: format!("outcome_{index}"),
            samples,
            alloc_space,
            alloc_objects,
        })
        .collect()
    })
}

fn profile() -> impl Strategy<Value = Profile> {
    let numbers =
        [any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()];
    let mapping =
        (".{0,8}", "[0-9a-f]{0,40}").prop_map(|(path, build_id)| Mapping { path, build_id });
    let tables = (vec(mapping, MAPPINGS), locations(), stacks(), vec(".{0,8}", 0..3));
    let made = (0..3usize, any::<bool>(), [any::<u64>(), any::<u64>()], NUMBER);
    (any::<bool>(), numbers, made, quantities(), lost(), tables).prop_map(
        |(live, numbers, made, totals, lost, (mappings, locations, stacks, notes))| {
            let (estimator, stride, exact, interval) = made;
            let [time_unix_ns, duration_ns, interval_bytes, alloc_objects, alloc_space, samples] =
                numbers;
            let function = |of: &Location| FunctionSum {
                line: of.lines[0].clone(),
                module: "/usr/bin/program".to_owned(),
                own: stride.then_some(interval),
                total: totals.alloc_space,
            };
            let functions = live.then(|| Functions {
                rows: locations.iter().map(function).collect(),
                total: samples,
                pids: vec![5],
            });
            Profile {
                kind: if live { Kind::Peak } else { Kind::Alloc },
                window: live
                    .then_some(Window { start_unix_ns: 7, end_unix_ns: 7 + duration_ns / 2 }),
                confidence: Confidence::DEFAULT,
                time_unix_ns,
                duration_ns,
                interval_bytes,
                estimator: if stride { Estimator::default() } else { Estimator::ALL[estimator] },
                strategies: if stride {
                    vec![sampling::Strategy::Geometric, sampling::Strategy::Stride]
                } else {
                    vec![sampling::Strategy::Adaptive]
                },
                pids: vec![5, 6],
                reference: reference(&stacks, (exact, interval)),
                totals,
                exact: live.then_some(Exact { alloc_objects, alloc_space }),
                samples,
                lost,
                mappings,
                locations,
                stacks_total: stacks.len() as u64,
                functions,
                stacks,
                notes,
                cost: live.then(|| Report {
                    spent_ns: Range::checked(interval, interval / 2.0, interval * 2.0).ok(),
                    daemon_ns: samples,
                    unpriced: duration_ns,
                    ..Report::default()
                }),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_sent_is_what_arrives(profile in profile()) {
        let bytes = to_wire(&profile).encode_to_vec();
        let arrived = from_wire(v1::Profile::decode(&bytes[..]).unwrap());
        prop_assert_eq!(arrived, Ok(profile));
    }

    /// A client of a stranger's socket may be told anything: an error then, never a panic.
    #[test]
    fn damaged_messages_are_refused_or_sound(
        profile in profile(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = to_wire(&profile).encode_to_vec();
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
    let cases: [(Damage, &str); 37] = [
        (|p| p.stacks[0].clusters[0].group = 1, "stack 0: group of windows 1 is out of"),
        (|p| p.stacks[0].clusters[0].bytes = f64::NAN, "stack 0: bytes NaN"),
        (|p| clusters(p).process = 5, "windows: process 5 is out of"),
        (|p| clusters(p).error = -1.0, "windows: error -1"),
        (
            |p| {
                let of_clock = f64::INFINITY;
                clusters(p).correction = Some(v1::Correction { of_clock, ..Default::default() });
            },
            "windows: of_clock inf",
        ),
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

/// Only a stride's numbers may go without an upper end.
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
fn bounds_that_miss_by_rounding_are_moved() {
    let mut profile = sound();
    space(&mut profile).low = 4.0 + 1e-12;
    let profile = from_wire(profile).unwrap();
    let estimate = profile.stacks[0].quantities.inuse_space.estimate;
    assert_eq!((estimate.low, estimate.value), (4.0, 4.0));
}
