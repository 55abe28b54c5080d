//! Generates profiles for property tests.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sampler_common::cost::{Range, Report};
use sampler_common::estimate::{
    Cluster, Clusters, Confidence, Epoch, Estimate, Estimator, Method, Moments, Reference, Row,
    RowMoments, Stratum, StratumTotals, Trials, Unseen,
};
use sampler_common::note::Note;
use sampler_common::profile::{
    Exact, FunctionSum, Functions, Kind, Line, Location, Lost, Mapping, ProcessName, Profile,
    Quantities, Quantity, Stack, Window,
};
use sampler_common::sampling;
use sampler_common::source::{SampleSource, SourceGroup};

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
                alloc_max_unseen: if stride { f64::INFINITY } else { alloc_trials.tail },
                inuse_max_unseen: alloc_trials.variance,
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

/// The reference of the stacks' rows. Every second stratum has no exact totals.
fn reference(stacks: &[Stack], (numbers, interval_bytes): ([u64; 2], f64)) -> Reference {
    let mut reference =
        Reference { interval_bytes, held_unknown: numbers[0] % 2 == 0, ..Reference::default() };
    for (stratum, _) in stacks.iter().flat_map(|stack| stack.row.strata()) {
        let even = stratum.class % 2 == 0;
        let totals = StratumTotals {
            sampled: RowMoments::default(),
            exact: even.then_some((numbers[0], numbers[1])),
            upper_totals: (!even).then_some((numbers[1], numbers[0])),
            unseen_objects: if even { interval_bytes } else { f64::INFINITY },
            unseen_bytes: interval_bytes,
        };
        reference.strata.insert(stratum, totals);
        let group = |group| Cluster {
            length: 7.5,
            total: [f64::from(group), 1.0],
            own_ns: 1e6,
            traps: f64::from(group),
        };
        let clusters = Clusters { groups: (0..GROUPS).map(group).collect(), windows: 11 };
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

/// Any profile that can be sent.
pub(super) fn profile() -> impl Strategy<Value = Profile> {
    let numbers =
        [any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()];
    let code = option::of((0..u64::MAX, 1..9u64))
        .prop_map(|code| code.map(|(start, bytes)| start..start.saturating_add(bytes)));
    let mapping = (".{0,8}", "[0-9a-f]{0,40}", code).prop_map(|(path, build_id, code)| Mapping {
        path,
        build_id,
        code,
    });
    let tables =
        (vec(mapping, MAPPINGS), locations(), stacks(), vec(".{0,8}".prop_map(Note::from), 0..3));
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
                sources: SourceGroup::of([(SampleSource::ALL.into_iter().collect(), samples)]),
                pids: vec![5, 6],
                process_names: [(5, ProcessName { comm: "a".into(), exe: "/b".into() })].into(),
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
                    spent_ns: Some(Range {
                        value: interval,
                        low: interval / 2.0,
                        high: interval * 2.0,
                    }),
                    daemon_ns: samples,
                    unpriced: duration_ns,
                    ..Report::default()
                }),
            }
        },
    )
}
