//! Our `heap_v2` files, opened by the tools of the format: jemalloc's `jeprof`, gperftools'
//! `google-pprof` and `go tool pprof`. Totals and rows equal the profile's.

mod common;

use common::SplitMix;
use sampler_common::encode::{Encode, jeprof::Jeprof};
use sampler_common::estimate::{Confidence, Estimator, Reference, Row, Sample, Stratum};
use sampler_common::profile::{Kind, Line, Location, Mapping, Profile, Quantities, Stack};
use sampler_common::sampling::{self, Rate, Strategy};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const INTERVAL_BYTES: u64 = 512 << 10;
/// A library that has symbols, wherever the tests run.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";

/// Runs a tool that must be there.
fn run(tool: &str, package: &str, arguments: &[&str], file: &Path) -> String {
    let output = Command::new(tool).args(arguments).arg(file).output().unwrap_or_else(|error| {
        panic!("NOT TESTED: {tool}: {error} (apt-get install {package})");
    });
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool} {arguments:?}: {stderr}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Samples of mixed sizes, from 16 bytes to 4 MiB, a few to some hundred per stack, half of them
/// held.
fn row(random: &mut SplitMix) -> Row {
    let rate = Rate::from_interval(INTERVAL_BYTES).expect("in range");
    let mut row = Row::default();
    for _ in 0..1 + random.below(300) {
        let sample = Sample::geometric(16 << random.below(19), rate);
        let class = sampling::class(sample.size) as u8;
        let moments = row.stratum(Stratum { process: 0, class });
        moments.add_allocation(&sample);
        if random.below(2) == 0 {
            moments.add_live(&sample);
        }
    }
    row
}

/// Stacks with different leaves: `malloc` for the first, an address without a function for each
/// other.
fn profile(stacks: usize, malloc: u64) -> Profile {
    let mut random = SplitMix(20);
    let rows: Vec<Row> = (0..stacks).map(|_| row(&mut random)).collect();
    let mut reference = Reference { interval_bytes: INTERVAL_BYTES as f64, ..Reference::default() };
    rows.iter().for_each(|row| reference.add(row));
    let make =
        |row: &Row| Quantities::of_row(row, &reference, Estimator::Weighted, Confidence::DEFAULT);
    let location = |mapping, address| Location {
        mapping,
        address,
        lines: vec![Line { function: "f".into(), ..Line::default() }],
    };
    let nowhere = (0..stacks as u64).map(|index| location(1, 0x1000 * (index + 1)));
    let stack = |(index, row): (usize, &Row)| Stack {
        pid: 7,
        locations: vec![index as u32, stacks as u32],
        row: row.clone(),
        quantities: make(row),
    };
    Profile {
        kind: Kind::Alloc,
        confidence: Confidence::DEFAULT,
        time_unix_ns: 1_795_180_057_000_000_000,
        duration_ns: 1_000_000_000,
        interval_bytes: INTERVAL_BYTES,
        estimator: Estimator::Weighted,
        strategies: vec![Strategy::Geometric],
        sources: vec![],
        pids: vec![7],
        process_names: BTreeMap::new(),
        totals: make(&reference.row()),
        window: None,
        exact: None,
        samples: reference.row().total().alloc_space.samples,
        lost: vec![],
        mappings: vec![
            Mapping { path: LIBRARY.into(), ..Mapping::default() },
            Mapping { path: "/nowhere/libnone.so".into(), ..Mapping::default() },
        ],
        locations: std::iter::once(location(0, malloc)).chain(nowhere).collect(),
        stacks: rows.iter().enumerate().map(stack).collect(),
        stacks_total: stacks as u64,
        reference: reference.clone(),
        notes: vec![],
        functions: None,
        cost: None,
    }
}

/// File offset of `malloc`. In libc's code the offset equals the address.
fn malloc() -> u64 {
    let symbols = run("nm", "binutils", &["-D", "--defined-only"], Path::new(LIBRARY));
    let line = symbols.lines().find(|line| line.contains(" malloc@@")).expect("malloc");
    u64::from_str_radix(line.split(' ').next().expect("an address"), 16).expect("hex")
}

/// Writes a separate file for each test.
fn written(profile: &Profile, name: &str) -> PathBuf {
    let mut contents = Vec::new();
    Jeprof.encode(profile, &mut contents).expect("encode");
    let file =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.{}.heap", std::process::id()));
    std::fs::write(&file, contents).expect("write the profile");
    file
}

/// Expected values: option of the tool, total, and the rows' values.
fn truths(profile: &Profile) -> [(&'static str, f64, Vec<f64>); 4] {
    let of = |pick: fn(&Quantities) -> f64| {
        (pick(&profile.totals), profile.stacks.iter().map(|of| pick(&of.quantities)).collect())
    };
    let with = |option, (total, rows)| (option, total, rows);
    [
        with("alloc_objects", of(|of| of.alloc_objects.estimate.value)),
        with("alloc_space", of(|of| of.alloc_space.estimate.value)),
        with("inuse_objects", of(|of| of.inuse_objects.estimate.value)),
        with("inuse_space", of(|of| of.inuse_space.estimate.value)),
    ]
}

fn check(tool: &str, of: &str, shown: &[f64], truth: &[f64]) {
    let total: f64 = truth.iter().sum();
    let got: f64 = shown.iter().sum();
    println!("{tool:14} {of:14} {got:.0} of {total:.0}");
    // Rounding to integers may cost a unit for each row.
    assert!((got - total).abs() <= truth.len() as f64, "{tool} {of}: {got} instead of {total}");
    let positive = |of: &[f64]| of.iter().copied().filter(|of| *of > 0.0).collect();
    let (mut shown, mut truth): (Vec<f64>, Vec<f64>) = (positive(shown), positive(truth));
    shown.sort_by(f64::total_cmp);
    truth.sort_by(f64::total_cmp);
    assert_eq!(shown.len(), truth.len(), "{tool} {of}");
    for (shown, truth) in shown.iter().zip(&truth) {
        assert!((shown - truth).abs() <= 1.5, "{tool} {of}: {shown} instead of {truth}");
    }
}

/// The perl tools print `flat flat% sum% cum cum% name`, after a total.
fn perl(tool: &str, package: &str) {
    let profile = profile(40, malloc());
    let file = written(&profile, tool);
    for (option, total, rows) in truths(&profile) {
        // Addresses distinguish stacks that have a function in common.
        let option_argument = format!("--{option}");
        let program = std::env::current_exe().expect("this program");
        let program = program.to_str().expect("UTF-8");
        let arguments = [
            "--text",
            "--show_bytes",
            "--addresses",
            "--nodecount=1000000",
            "--nodefraction=0",
            &option_argument,
            program,
        ];
        let text = run(tool, package, &arguments, &file);
        let shown = text.lines().next().and_then(|line| line.strip_prefix("Total: "));
        let shown = shown.and_then(|line| line.split(' ').next()).expect("a total");
        let shown: f64 = shown.parse().expect("a number");
        assert!(
            (shown - total).abs() <= rows.len() as f64 + 1.0,
            "{tool} {option}: {shown} {total}"
        );
        let flat: Vec<f64> = text
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().next()?.parse().ok())
            .collect();
        check(tool, option, &flat, &rows);
        let of_malloc = text.lines().find(|line| line.contains("malloc")).expect("malloc by name");
        let flat: f64 =
            of_malloc.split_whitespace().next().expect("flat").parse().expect("a number");
        assert!((flat - rows[0]).abs() <= 1.5, "{of_malloc}: {}", rows[0]);
    }
    std::fs::remove_file(&file).expect("remove the profile");
}

#[test]
fn jeprof_prints_the_true_figures() {
    perl("jeprof", "libjemalloc-dev");
}

#[test]
fn google_pprof_prints_the_true_figures() {
    perl("google-pprof", "google-perftools");
}

#[test]
fn go_tool_pprof_prints_the_true_figures() {
    let profile = profile(40, malloc());
    let file = written(&profile, "go");
    for (option, _, rows) in truths(&profile) {
        let index = format!("-sample_index={option}");
        let arguments = ["tool", "pprof", "-symbolize=none", "-raw", &index];
        let raw = run("go", "golang-go", &arguments, &file);
        let types = ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"];
        let column = types.iter().position(|of| *of == option).expect("one of four");
        let samples = raw.lines().skip_while(|line| !line.starts_with("Samples:")).skip(2);
        let shown: Vec<f64> = samples
            .take_while(|line| !line.starts_with("Locations"))
            .filter_map(|line| line.split(':').next()?.split_whitespace().nth(column)?.parse().ok())
            .collect();
        check("go tool pprof", option, &shown, &rows);
    }
    std::fs::remove_file(&file).expect("remove the profile");
}
