//! The profiles that the mock serves.

use crate::mock::{PID, STRIDE_PID};
use sampler_common::estimate::{Confidence, Estimator, Reference, Row, Sample, Stratum};
use sampler_common::profile::{
    Exact, Kind, Line, Location, Lost, Mapping, Profile, Quantities, Stack, summed,
};
use sampler_common::sampling::{Design, Strategy, class};
use sampler_daemon::rpc::convert::to_wire;
use sampler_daemon::rpc::v1::{self, GetProfileRequest};
use std::collections::BTreeMap;
use tonic::Status;

pub(crate) const INTERVAL_BYTES: u64 = 512 << 10;

/// The profile that it serves: two stacks, lost samples, a note.
pub(crate) fn profile(question: &ProfileQuestion) -> Profile {
    let ProfileQuestion { kind, strategy, estimator, confidence, top, functions } = *question;
    let row = |size, samples, held| {
        let design = Design::from_interval(strategy, INTERVAL_BYTES, 1.0).expect("in range");
        let mut row = Row::default();
        let moments = row.stratum(Stratum { process: 0, class: class(size) as u8 });
        let sample = Sample { tail: Some(size / 2), ..Sample::new(size, design) };
        (0..samples).for_each(|_| moments.add_allocation(&sample));
        (0..held).for_each(|_| moments.add_live(&sample));
        row
    };
    let rows = [row(100_000, 300, 3), row(64, 40, 40)];
    let mut reference = Reference { interval_bytes: INTERVAL_BYTES as f64, ..Reference::default() };
    rows.iter().for_each(|row| reference.add(row));
    let make = |row: &Row| Quantities::of_row(row, &reference, estimator, confidence);
    let line = |function: &str, file: &str, line| Line {
        function: function.into(),
        file: file.into(),
        line,
    };
    let location = |mapping, address, line| Location { mapping, address, lines: vec![line] };
    let stack = |row: &Row, function| Stack {
        pid: PID,
        locations: vec![0, function, 2],
        row: row.clone(),
        quantities: make(row),
    };
    let stacks = vec![stack(&rows[0], 1), stack(&rows[1], 3)];
    let lost = make(&row(2000, 4, 0));
    let mut profile = Profile {
        kind,
        confidence,
        time_unix_ns: 1_795_180_057_000_000_000,
        duration_ns: 5_000_000_000,
        interval_bytes: INTERVAL_BYTES,
        estimator,
        strategies: vec![strategy],
        sources: vec![],
        pids: vec![PID],
        process_names: BTreeMap::new(),
        totals: make(&reference.row()),
        exact: Some(Exact { alloc_objects: 2_000, alloc_space: 180_000_000 }),
        window: None,
        samples: 340,
        lost: vec![Lost {
            outcome: "ring_full".into(),
            samples: 4,
            alloc_space: Some(lost.alloc_space),
            alloc_objects: Some(lost.alloc_objects),
        }],
        mappings: vec![
            Mapping { path: "/usr/lib/libc.so.6".into(), build_id: "c047".into(), code: None },
            Mapping { path: "/usr/bin/kvstore".into(), build_id: "8d3f".into(), code: None },
        ],
        locations: vec![
            location(0, 0x97880, line("malloc", "", 0)),
            location(1, 0x1000, line("load_file", "src/load.c", 12)),
            location(1, 0x2000, line("main", "src/main.c", 31)),
            location(1, 0x3000, line("evil\n;\u{1b}[2Jname", "", 0)),
        ],
        stacks_total: 2,
        functions: None,
        stacks,
        reference,
        notes: vec!["a note".into()],
        cost: None,
    };
    profile.functions = (functions > 0).then(|| summed(&profile, functions));
    profile.stacks.truncate(top);
    profile
}

/// What it says that probes cost.
pub(crate) fn cost() -> v1::Cost {
    let interval = |value: f64| Some(v1::Interval { value, low: 0.9 * value, high: 1.1 * value });
    v1::Cost {
        spent_ns: interval(1.23e9),
        processor_ns: interval(2e10),
        share: interval(0.0615),
        daemon_ns: 104_000_000,
        ..v1::Cost::default()
    }
}

/// What a profile is asked for, and how its process is sampled.
pub(crate) struct ProfileQuestion {
    pub(crate) kind: Kind,
    pub(crate) strategy: Strategy,
    pub(crate) estimator: Estimator,
    pub(crate) confidence: Confidence,
    pub(crate) top: usize,
    pub(crate) functions: usize,
}

/// What it answers who asks for a profile.
pub(crate) fn answer(request: &GetProfileRequest) -> Result<v1::Profile, Status> {
    if let Some(pid) = request.pids.iter().find(|pid| ![PID, STRIDE_PID].contains(pid)) {
        return Err(Status::not_found(format!("pid {pid} is not profiled (see: sampler ps)")));
    }
    let kind = match request.kind() {
        v1::Kind::Live => Kind::Live,
        _ => Kind::Alloc,
    };
    let confidence = Confidence::new(request.confidence);
    let confidence = confidence.map_err(|error| Status::invalid_argument(error.to_string()))?;
    let top = if request.top == 0 { usize::MAX } else { request.top as usize };
    let functions = request.functions as usize;
    let estimator = match request.estimator.as_str() {
        "" => Estimator::default(),
        name => Estimator::parse(name).map_err(Status::invalid_argument)?,
    };
    let stride = request.pids.contains(&STRIDE_PID);
    let strategy = if stride { Strategy::Stride } else { Strategy::Geometric };
    if !request.estimator.is_empty()
        && let Err(error) = estimator.check(strategy)
    {
        return Err(Status::invalid_argument(format!("pid {STRIDE_PID}: {error}")));
    }
    Ok(to_wire(profile(&ProfileQuestion { kind, strategy, estimator, confidence, top, functions })))
}
