//! Our pprof files, opened by the tool that defines the format.

use sampler_common::encode::{Encode, pprof::Pprof};
use sampler_common::estimate::{Confidence, Estimator, Reference, Row, Sample, Stratum};
use sampler_common::profile::{
    Exact, Kind, Line, Location, Mapping, ProcessName, Profile, Quantities, Stack,
};
use sampler_common::sampling::{Rate, Strategy};
use std::collections::BTreeMap;
use std::process::Command;

const INTERVAL_BYTES: u64 = 4096;

/// `main` calls `keep` (inlined into `work`) and `waste`.
fn profile(kind: Kind) -> Profile {
    let rate = Rate::from_interval(INTERVAL_BYTES).expect("in range");
    let row = |size, samples, held| {
        let mut row = Row::default();
        let moments = row.stratum(Stratum { process: 0, class: 17 });
        (0..samples).for_each(|_| moments.add_allocation(&Sample::geometric(size, rate)));
        (0..held).for_each(|_| moments.add_live(&Sample::geometric(size, rate)));
        row
    };
    let rows = [row(1 << 20, 3, 3), row(1 << 20, 5, 0)];
    let mut reference = Reference { interval_bytes: INTERVAL_BYTES as f64, ..Reference::default() };
    rows.iter().for_each(|row| reference.add(row));
    let make =
        |row: &Row| Quantities::of_row(row, &reference, Estimator::Weighted, Confidence::DEFAULT);
    let [kept, wasted] = &rows;
    let stack = |row: &Row, function| Stack {
        pid: 7,
        locations: vec![0, function, 3],
        row: row.clone(),
        quantities: make(row),
    };
    let line = |function: &str, line| Line { function: function.into(), file: "a.c".into(), line };
    let location = |mapping, address, lines| Location { mapping, address, lines };
    Profile {
        kind,
        confidence: Confidence::DEFAULT,
        time_unix_ns: 1_795_180_057_000_000_000,
        duration_ns: 1_000_000_000,
        interval_bytes: INTERVAL_BYTES,
        estimator: Estimator::Weighted,
        strategies: vec![Strategy::Geometric],
        sources: vec![],
        pids: vec![7],
        process_names: BTreeMap::from([(
            7,
            ProcessName { comm: "demo".into(), exe: String::new() },
        )]),
        totals: make(&reference.row()),
        window: None,
        exact: Some(Exact { alloc_objects: 8, alloc_space: 8 << 20 }),
        samples: 8,
        lost: vec![],
        mappings: vec![
            Mapping { path: "/usr/bin/demo".into(), build_id: "00ff".into(), code: None },
            Mapping { path: "/usr/lib/libc.so.6".into(), build_id: "c047".into(), code: None },
        ],
        locations: vec![
            location(1, 0x97880, vec![line("malloc", 1)]),
            location(0, 0x1000, vec![line("keep", 2), line("work", 3)]),
            location(0, 0x2000, vec![line("waste", 4)]),
            location(0, 0x3000, vec![line("main", 5)]),
        ],
        stacks: vec![stack(wasted, 2), stack(kept, 1)],
        reference,
        stacks_total: 2,
        notes: vec!["a note".into()],
        functions: None,
        cost: None,
    }
}

fn pprof(arguments: &[&str], file: &std::path::Path) -> String {
    let output = Command::new("go")
        .args(["tool", "pprof", "-symbolize=none"])
        .args(arguments)
        .arg(file)
        .output()
        .expect("run go tool pprof");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(!stderr.contains("malformed") && !stderr.contains("error"), "{stderr}");
    String::from_utf8(output.stdout).expect("pprof prints UTF-8")
}

/// The row of a function in `pprof -top`: flat and cumulative.
fn row<'a>(top: &'a str, function: &str) -> (&'a str, &'a str) {
    let line = top.lines().find(|line| line.split_whitespace().nth(5) == Some(function));
    let columns: Vec<&str> =
        line.unwrap_or_else(|| panic!("{function} in {top}")).split_whitespace().collect();
    (columns[0], columns[3])
}

#[test]
fn go_tool_pprof_reads_our_files() {
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("NOT TESTED: go tool pprof: no go in PATH (apt-get install golang-go)");
        return;
    }
    let directory = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = directory.join(format!("consumer.{}.pb.gz", std::process::id()));
    let write = |kind| {
        let mut contents = Vec::new();
        Pprof.encode(&profile(kind), &mut contents).expect("encode");
        std::fs::write(&file, contents).expect("write the profile");
    };
    write(Kind::Alloc);
    let top = pprof(&["-top", "-sample_index=alloc_space"], &file);
    assert!(top.contains("Type: alloc_space"), "{top}");
    // A request as large as 256 intervals is always sampled, with weight 1.
    assert_eq!(row(&top, "waste"), ("5MB", "5MB"));
    assert_eq!(row(&top, "keep"), ("3MB", "3MB"));
    assert_eq!(row(&top, "work"), ("0", "3MB"));
    assert!(!top.contains("malloc") && !top.contains("operator new"), "{top}");
    assert_eq!(row(&top, "main"), ("0", "8MB"));
    let objects = pprof(&["-top", "-sample_index=inuse_objects"], &file);
    assert_eq!(row(&objects, "keep"), ("3", "3"));

    write(Kind::Live);
    let top = pprof(&["-top"], &file);
    assert!(top.contains("Type: inuse_space"), "{top}");
    let raw = pprof(&["-raw"], &file);
    for words in ["/usr/bin/demo", "00ff", "pid:[7]", "comm:[demo]", "Period: 4096", "keep a.c:2"] {
        assert!(raw.contains(words), "{words} in\n{raw}");
    }
    assert!(pprof(&["-comments"], &file).contains("note: a note"));
    std::fs::remove_file(&file).expect("remove the profile");
}
