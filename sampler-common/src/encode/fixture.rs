//! Profiles for the tests of every format: a fixed one, a hostile one and an empty one.
//!
//! The intervals of the fixed profile are constants of this file, so that a golden file changes
//! only with its format. The text table also sums moments and calls the estimator.

use super::Encode;
use crate::comparison::Question;
use crate::cost::{Range, Report};
use crate::estimate::{
    Confidence, Estimate, Estimator, Method, Moments, Reference, Row, RowMoments, Stratum, Trials,
};
use crate::profile::{
    Exact, Kind, Line, Location, Lost, Mapping, ProcessName, Profile, Quantities, Quantity, Stack,
};
use crate::sampling::{Design, Strategy, class};
use crate::source::{SampleSource, SourceGroup};
use std::path::Path;

pub(crate) const INTERVAL_BYTES: u64 = 512 << 10;
/// Length of the longest name of [`hostile`]; names of C++ templates reach such sizes.
pub(crate) const LONG_NAME_BYTES: usize = 20_000;

/// The question of what changed between a saved profile and that of a running process.
pub(crate) fn question<'a>(a: &'a Profile, b: &'a Profile) -> Question<'a> {
    Question {
        a_name: "before.json",
        a,
        b_name: "pid 4121",
        b,
        confidence: Confidence::DEFAULT,
        per_second: false,
        independent: true,
    }
}

/// Writes a profile in one format.
pub(crate) fn encoded(format: &dyn Encode, profile: &Profile) -> Vec<u8> {
    let mut out = Vec::new();
    format.encode(profile, &mut out).unwrap();
    out
}

/// Compares `text` with `golden/NAME`; `UPDATE_GOLDEN=1` writes the file anew, for review in the
/// diff.
pub(crate) fn golden(name: &str, text: String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/encode/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{name} changed (UPDATE_GOLDEN=1 accepts it):\n{text}");
}

/// `samples` samples of `size` bytes each, of which `held` are still held.
#[derive(Clone, Copy)]
struct Samples {
    size: u64,
    samples: u64,
    held: u64,
}

fn quantity(samples: u64, own: f64, size: u64) -> Quantity {
    let inclusion = 1.0 - (1.0 - 1.0 / INTERVAL_BYTES as f64).powf(size as f64);
    let (n, weight) = (samples as f64, own / inclusion);
    let moments = Moments {
        samples,
        sum: n * weight,
        variance: n * weight * weight * (1.0 - inclusion),
        largest: if samples == 0 { 0.0 } else { weight * (1.0 - inclusion) },
        largest_inclusion: if samples == 0 { 1.0 } else { inclusion },
        own: n * own,
    };
    interval(moments)
}

fn interval(moments: Moments) -> Quantity {
    let half = 1.96 * moments.variance.sqrt();
    let estimate = Estimate {
        value: moments.sum,
        low: (moments.sum - half).max(moments.own).min(moments.sum),
        high: moments.sum + half,
        confidence: Confidence::DEFAULT,
        samples: moments.samples,
        method: Method::Weighted,
    };
    Quantity { estimate, moments }
}

fn quantities(row: Samples) -> Quantities {
    let size = row.size as f64;
    Quantities {
        alloc_objects: quantity(row.samples, 1.0, row.size),
        alloc_space: quantity(row.samples, size, row.size),
        inuse_objects: quantity(row.held, 1.0, row.size),
        inuse_space: quantity(row.held, size, row.size),
    }
}

fn summed<'a>(quantities: impl Iterator<Item = &'a Quantity>) -> Quantity {
    let mut sum = Moments { largest_inclusion: 1.0, ..Moments::default() };
    for Quantity { moments, .. } in quantities {
        sum.samples += moments.samples;
        sum.sum += moments.sum;
        sum.variance += moments.variance;
        sum.own += moments.own;
        if moments.largest > sum.largest {
            (sum.largest, sum.largest_inclusion) = (moments.largest, moments.largest_inclusion);
        }
    }
    interval(sum)
}

fn totals(stacks: &[Stack]) -> Quantities {
    let of =
        |pick: fn(&Quantities) -> &Quantity| summed(stacks.iter().map(|s| pick(&s.quantities)));
    Quantities {
        alloc_objects: of(|q| &q.alloc_objects),
        alloc_space: of(|q| &q.alloc_space),
        inuse_objects: of(|q| &q.inuse_objects),
        inuse_space: of(|q| &q.inuse_space),
    }
}

/// Gives the functions with this beginning a source file of the program.
pub(crate) fn move_to_program(profile: &mut Profile, function: &str) {
    let lines = profile.locations.iter_mut().flat_map(|of| &mut of.lines);
    let lines = lines.filter(|line| line.function.starts_with(function));
    lines.for_each(|line| line.file = "table.cpp".into());
}

fn line(function: &str, file: &str, line: u32) -> Line {
    Line { function: function.into(), file: file.into(), line }
}

fn location(mapping: u32, address: u64, lines: Vec<Line>) -> Location {
    Location { mapping, address, lines }
}

fn stack(pid: u32, locations: &[u32], samples: Samples) -> Stack {
    let Quantities { alloc_objects, alloc_space, inuse_objects, inuse_space } = quantities(samples);
    let trials = |count: u64| Trials {
        failures: count as f64 * (INTERVAL_BYTES - 1) as f64,
        variance: count as f64 * (INTERVAL_BYTES * (INTERVAL_BYTES - 1)) as f64,
        tail: (count * samples.size / 2) as f64,
    };
    let mut row = Row::default();
    let stratum = Stratum { process: u32::from(pid == 4122), class: class(samples.size) as u8 };
    *row.stratum(stratum) = RowMoments {
        alloc_objects: alloc_objects.moments,
        alloc_space: alloc_space.moments,
        inuse_objects: inuse_objects.moments,
        inuse_space: inuse_space.moments,
        alloc_trials: trials(samples.samples),
        inuse_trials: trials(samples.held),
        ..RowMoments::default()
    };
    Stack { pid, locations: locations.to_vec(), row, quantities: quantities(samples) }
}

/// Exact totals are the estimates, in whole numbers.
fn reference(stacks: &[Stack]) -> Reference {
    let mut reference = Reference { interval_bytes: INTERVAL_BYTES as f64, ..Reference::default() };
    stacks.iter().for_each(|stack| reference.add(&stack.row));
    let design = Design::from_interval(Strategy::Geometric, INTERVAL_BYTES, 1.0).unwrap();
    for (stratum, totals) in &mut reference.strata {
        let exact = |moments: &Moments| moments.sum as u64;
        let sampled = &totals.sampled;
        totals.exact = Some((exact(&sampled.alloc_space), exact(&sampled.alloc_objects)));
        (totals.unseen_objects, totals.unseen_bytes) = design.unseen(usize::from(stratum.class));
    }
    reference
}

fn process_name() -> ProcessName {
    ProcessName { comm: "kvstore".into(), exe: "/usr/bin/kvstore".into() }
}

fn profile_of(
    kind: Kind,
    mappings: Vec<Mapping>,
    locations: Vec<Location>,
    mut stacks: Vec<Stack>,
) -> Profile {
    let bytes = |stack: &Stack| stack.quantities.space(kind).estimate.value;
    stacks.sort_by(|a, b| bytes(b).total_cmp(&bytes(a)));
    let totals = totals(&stacks);
    Profile {
        kind,
        confidence: Confidence::DEFAULT,
        time_unix_ns: 1_790_000_000_123_456_789,
        duration_ns: 12_345_678_901,
        window: None,
        interval_bytes: INTERVAL_BYTES,
        estimator: Estimator::Weighted,
        strategies: vec![Strategy::Geometric],
        sources: SourceGroup::of([([SampleSource::Uprobes].into_iter().collect(), 2)]),
        pids: vec![4121, 4122],
        process_names: [4121, 4122].map(|pid| (pid, process_name())).into(),
        reference: reference(&stacks),
        totals,
        exact: Some(Exact { alloc_objects: 2_012_345, alloc_space: 1_381_670_912 }),
        samples: totals.alloc_space.moments.samples,
        lost: vec![],
        mappings,
        locations,
        stacks_total: stacks.len() as u64,
        functions: None,
        stacks,
        notes: vec![],
        cost: Some(Report {
            spent_ns: Some(Range { value: 1.23e9, low: 1.2e9, high: 1.26e9 }),
            processor_ns: Some(Range { value: 2.71e10, low: 2.708e10, high: 2.712e10 }),
            daemon_ns: 104_000_000,
            ..Report::default()
        }),
    }
}

/// A small server: C++ with inlined frames, recursion, a stripped library, lost stacks, two
/// processes.
pub(crate) fn profile(kind: Kind) -> Profile {
    let mapping = |path: &str, build_id: &str, code| Mapping {
        path: path.into(),
        build_id: build_id.into(),
        code,
    };
    let mappings = vec![
        mapping(
            "/usr/bin/kvstore",
            "8d3f2a90c1b4e7765544332211009988aabbccdd",
            Some(0x4310..0x9b42),
        ),
        mapping(
            "/usr/lib/x86_64-linux-gnu/libc.so.6",
            "c047672cae7964324658491e7dee26748ae5d2f8",
            Some(0x26000..0x17b000),
        ),
        mapping(
            "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30",
            "aa2a1b8e00cb8b56fd5f1ccd9d6f0a52d8d8a0c1",
            None,
        ),
        mapping("/opt/plugins/libcodec.so", "", Some(0x1000..0x1240)),
        mapping("[lost stacks]", "", None),
    ];
    let insert = "std::_Hashtable<std::string, std::pair<const std::string, Entry>>::_M_insert_unique_node(unsigned long, unsigned long)";
    let locations = vec![
        location(1, 0x97880, vec![line("malloc", "malloc.c", 3287)]),
        location(2, 0xa3f1c, vec![line("operator new(unsigned long)", "", 0)]),
        location(
            0,
            0x5a10,
            vec![
                line(
                    "std::allocator<Entry>::allocate(unsigned long)",
                    "/usr/include/c++/12/bits/new_allocator.h",
                    137,
                ),
                line(insert, "/usr/include/c++/12/bits/hashtable.h", 2048),
            ],
        ),
        location(
            0,
            0x6120,
            vec![line("Store::put(std::string_view, Value&&)", "src/store/store.cpp", 214)],
        ),
        location(0, 0x7008, vec![line("Server::handle(Connection&)", "src/server.cpp", 88)]),
        location(0, 0x7204, vec![line("parse_value(Parser*)", "src/parser.cpp", 61)]),
        location(0, 0x7260, vec![line("parse_value(Parser*)", "src/parser.cpp", 73)]),
        location(3, 0x11d4, vec![line("/opt/plugins/libcodec.so+0x11d4", "", 0)]),
        location(0, 0x4f00, vec![line("main", "src/main.cpp", 31)]),
        location(
            1,
            0x271ca,
            vec![line(
                "__libc_start_call_main",
                "./csu/../sysdeps/nptl/libc_start_call_main.h",
                58,
            )],
        ),
        location(4, 0, vec![line("[lost stacks]", "", 0)]),
        location(1, 0x97f20, vec![line("calloc", "malloc.c", 3610)]),
    ];
    let stacks = vec![
        stack(4121, &[0, 1, 2, 3, 4, 8, 9], Samples { size: 4096, samples: 1210, held: 61 }),
        stack(4121, &[0, 5, 6, 6, 4, 8, 9], Samples { size: 200, samples: 640, held: 0 }),
        stack(4121, &[11, 7, 4, 8, 9], Samples { size: 2 << 20, samples: 190, held: 12 }),
        stack(4122, &[0, 5, 4, 8, 9], Samples { size: 64, samples: 22, held: 22 }),
        stack(4121, &[10], Samples { size: 1024, samples: 10, held: 1 }),
    ];
    let lost = |outcome: &str, samples, known: Option<Quantities>| Lost {
        outcome: outcome.into(),
        samples,
        alloc_space: known.map(|q| q.alloc_space),
        alloc_objects: known.map(|q| q.alloc_objects),
    };
    let mut profile = profile_of(kind, mappings, locations, stacks);
    profile.lost = vec![
        lost("ring_full", 10, Some(quantities(Samples { size: 1024, samples: 10, held: 0 }))),
        lost("live_full", 2, None),
    ];
    profile.notes = vec![
        "live bytes are a lower bound: 2 sampled blocks found the live set full (raise --max-live)"
            .into(),
    ];
    profile
}

/// Names that would break a careless encoder.
pub(crate) fn hostile() -> Profile {
    let long = format!("ns::f<{}>", "T,".repeat(LONG_NAME_BYTES / 2 - 4)) + "!";
    assert_eq!(long.len(), LONG_NAME_BYTES);
    let mappings = vec![
        Mapping { path: "/tmp/a\nb \u{1b}[31m(deleted)".into(), ..Mapping::default() },
        Mapping { path: "//anon".into(), ..Mapping::default() },
    ];
    let locations = vec![
        location(0, 1, vec![line(&long, "", 0)]),
        location(0, 2, vec![line("c\nd", "x\ty\u{1b}]0;z", 7)]),
        location(0, 3, vec![line("a;b", "", 0)]),
        location(0, 4, vec![line("a:b", "", 0)]),
        location(1, 0x7fff_1234_5678, vec![line("", "", 0)]),
        location(1, 0xffff_ffff_ff60_0000, vec![line("\u{fffd}\u{fffd}é漢字\u{202e}", "", 0)]),
    ];
    let row = Samples { size: 4096, samples: 9, held: 9 };
    let stacks = vec![
        stack(1, &[0, 1, 2], Samples { samples: 11, ..row }),
        stack(2, &[0, 1, 3], row),
        stack(2, &[4, 5], row),
        stack(u32::MAX, &[], Samples { samples: 3, ..row }),
    ];
    let mut profile = profile_of(Kind::Alloc, mappings, locations, stacks);
    let comm = "=a;\"\n\u{1b}[2J\u{202e}".into();
    profile.process_names = [(2, ProcessName { comm, exe: "/x\ny;".into() })].into();
    profile
}

/// The fixed profile as sampled by a stride: without an interval.
pub(crate) fn stride() -> Profile {
    let mut profile = profile(Kind::Alloc);
    profile.strategies = vec![Strategy::Stride];
    let unbounded = |of: &mut Quantities| {
        let Quantities { alloc_objects, alloc_space, inuse_objects, inuse_space } = of;
        for quantity in [alloc_objects, alloc_space, inuse_objects, inuse_space] {
            if quantity.moments.samples > 0 {
                quantity.moments.variance = f64::INFINITY;
                let (low, high) = (quantity.moments.own, f64::INFINITY);
                let method = Method::Stride;
                quantity.estimate = Estimate { low, high, method, ..quantity.estimate };
            }
        }
    };
    unbounded(&mut profile.totals);
    profile.stacks.iter_mut().for_each(|stack| unbounded(&mut stack.quantities));
    profile
}

/// A process that has not allocated yet.
pub(crate) fn empty() -> Profile {
    let mut profile = profile_of(Kind::Live, vec![], vec![], vec![]);
    profile.exact = Some(Exact::default());
    profile
}
