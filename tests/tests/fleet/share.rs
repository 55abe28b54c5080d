//! `--export-share`: totals of every host, stacks of some, and an estimate for all. The hosts are
//! simulated, and written by the product's own encoder. The seed is fixed.

use super::later_windows;
use super::simulated::{INTERVAL_BYTES, cover, host_factor, same, sampled};
use anyhow::{Result, ensure};
use fastrand::Rng;
use sampler_common::encode::push::{CodeFile, Draw, Frame, Push, ServiceTotals, Stack};
use sampler_common::encode::tables::{WrittenRows, files};
use sampler_common::estimate::RowMoments;
use sampler_common::profile::{Kind, Line};
use sampler_tests::fleet::{ENGINES, Row, ask, number, python, text, whole};
use sampler_tests::{Daemon, Workload};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const SEED: u64 = 43;
const HOSTS: u32 = 400;
const INCLUSION: f64 = 0.1;
/// Each service is a repetition.
const SERVICES: u32 = 200;
/// Sizes of the functions' blocks, and the samples that a host has of each on average.
const FUNCTIONS: [(u64, f64); 3] = [(4096, 3.0), (32_768, 0.3), (131_072, 10.0)];
const START_NS: u64 = 1_764_421_200_000_000_000;
const DAY: i32 = 20_421;

/// What all hosts have allocated, by function.
type Truth = BTreeMap<String, u64>;

/// The window of a host.
fn window(rng: &mut Rng, host: u32, truth: &mut Truth) -> Push {
    let is_drawn = rng.f64() < INCLUSION;
    let file = CodeFile { path: "/x".into(), build_id: "0f".into(), htlhash: "1f".into() };
    let mut push = Push {
        kind: Kind::Alloc,
        start_unix_ns: START_NS,
        duration_ns: 60_000_000_000,
        interval_bytes: INTERVAL_BYTES as u64,
        draw: Draw { inclusion: INCLUSION, day: DAY, is_drawn },
        services: Vec::new(),
        totals: Vec::new(),
        files: vec![file],
        frames: Vec::new(),
        stacks: Vec::new(),
    };
    for service in 0..SERVICES {
        let of = |key: &str, value: String| (key.to_owned(), value);
        let name = format!("service-{service}");
        push.services.push(vec![of("service.name", name), of("host.name", format!("host-{host}"))]);
        // Hosts differ in size, and a little in what they do.
        let size_of_host = host_factor(rng, 0.5);
        let mut exact = 0;
        for (number, (size, samples)) in FUNCTIONS.iter().enumerate() {
            let wanted = samples * size_of_host * host_factor(rng, 0.36);
            let blocks = (wanted * INTERVAL_BYTES / *size as f64 + rng.f64()).floor() as u64;
            exact += blocks * size;
            let function = format!("f{service}-{number}");
            *truth.entry(function.clone()).or_default() += blocks * size;
            let moments = sampled(rng, blocks, *size);
            if !is_drawn || moments.samples == 0 {
                continue;
            }
            let address = u64::from(service) * 8 + number as u64;
            let line = Line { function, ..Line::default() };
            push.frames.push(Frame { code: Some((0, address)), lines: vec![line] });
            let frames = vec![push.frames.len() as u32 - 1];
            let moments = RowMoments { alloc_space: moments, ..RowMoments::default() };
            push.stacks.push(Stack { service, frames, moments });
        }
        push.totals.push(ServiceTotals { processes: 1, exact: Some((exact, 0)) });
    }
    push
}

fn simulate(folder: &Path) -> Result<Truth> {
    let mut rng = Rng::with_seed(SEED);
    let mut truth = Truth::default();
    for host in 0..HOSTS {
        let push = window(&mut rng, host, &mut truth);
        for file in files(&[push], &WrittenRows::default())?.files {
            let mut path = folder.join(file.table.name()).join("dt=2025-11-29");
            if !file.table.is_dictionary() {
                path.push("hour=13");
            }
            fs::create_dir_all(&path)?;
            let name = format!("host-{host}-20251129T130000.000000Z.parquet");
            fs::write(path.join(name), file.bytes)?;
        }
    }
    Ok(truth)
}

#[test]
fn a_share_of_hosts_estimates_all_of_them() -> Result<()> {
    let Some(python) = python()? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    let truth = simulate(directory.path())?;
    let answers = ENGINES.map(|engine| ask(&python, directory.path(), engine, &["sampled_hosts"]));
    let [duckdb, clickhouse] = answers;
    let (rows, other) = (duckdb?.remove(0), clickhouse?.remove(0));
    same(&rows, &other)?;
    let drawn = whole(&rows[0], "drawn_hosts")?;
    ensure!(whole(&rows[0], "hosts")? == i64::from(HOSTS) && (20..60).contains(&drawn), "{drawn}");
    for (number, _) in FUNCTIONS.iter().enumerate() {
        let of =
            |row: &&Row| text(row, "function").is_ok_and(|of| of.ends_with(&format!("-{number}")));
        let rows: Vec<&Row> = rows.iter().filter(of).collect();
        ensure!(rows.len() as u32 > SERVICES - SERVICES / 20, "{} rows", rows.len());
        let share = cover(&rows, "function", |name| truth.get(name).map(|of| *of as f64))?;
        ensure!((0.92..=0.985).contains(&share), "function {number}: {share}");
    }
    // The interval is around the estimate, and no estimate is far off.
    for row in &rows {
        let [low, estimate, high] = ["low", "allocated", "high"].map(|of| number(row, of));
        let (low, estimate, high) = (low?, estimate?, high?);
        ensure!(0.0 < low && low < estimate && estimate < high, "{row:?}");
    }
    let sum: f64 = rows.iter().map(|row| number(row, "allocated")).sum::<Result<f64>>()?;
    let all: u64 = truth.values().sum();
    ensure!((sum / all as f64 - 1.0).abs() < 0.02, "{sum} estimated of {all}");
    Ok(())
}

/// Two executors, which are processes of their own.
#[test]
#[ignore = "takes minutes and Spark (cargo xtask test --fleet)"]
fn spark_has_the_same_estimates() -> Result<()> {
    let Some(python) = python()? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    simulate(directory.path())?;
    let of = |engine| ask(&python, directory.path(), engine, &["sampled_hosts"]);
    same(&of("duckdb")?[0], &of("spark")?[0])
}

/// Exports to a folder until a window is there. Returns the rows of a statement.
fn exported(share: &str, statement: &str) -> Result<(Vec<String>, String, Vec<Row>)> {
    let Some(python) = python()? else { return Ok(Default::default()) };
    let directory = tempfile::tempdir()?;
    let folder = format!("parquet:{}", directory.path().display());
    let mut workload = Workload::edge(&["ticks"])?;
    let arguments = ["--interval", "1", "--export", &folder, "--export-every", "1s"];
    let daemon =
        Daemon::start(&[workload.pid()], &[&arguments[..], &["--export-share", share]].concat())?;
    workload.go()?;
    workload.truth()?;
    daemon.profile_where("some samples", "alloc", &[], |profile| profile.samples > 100)?;
    workload.stop()?;
    later_windows(&daemon, 3)?;
    let is_left_out = share != "100%";
    let drawn = daemon.status()?["exports"][0]["drawn"].clone();
    ensure!(drawn == !is_left_out, "{drawn}");
    let text = daemon.sampler(&["status"])?.success("sampler status")?.stdout;
    let text = String::from_utf8(text)?.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(text.contains("was not drawn for today") == is_left_out, "{text}");
    let log = daemon.log();
    daemon.stop()?;
    let mut tables = Vec::new();
    for entry in fs::read_dir(directory.path())? {
        tables.push(entry?.file_name().to_string_lossy().into_owned());
    }
    tables.sort();
    let file = directory.path().join("statement.sql");
    fs::write(&file, statement)?;
    let file = file.display().to_string();
    // The script wants the table of moments, which a host that was not drawn does not have.
    fs::create_dir_all(directory.path().join("alloc"))?;
    let rows = match tables.contains(&"alloc".to_owned()) {
        true => ask(&python, directory.path(), "duckdb", &[&file])?.remove(0),
        false => Vec::new(),
    };
    Ok((tables, log, rows))
}

#[test]
fn a_host_that_is_not_drawn_sends_its_totals_only() -> Result<()> {
    if python()?.is_none() {
        return Ok(());
    }
    // One host in ten billion.
    let (tables, log, _) = exported("0.00000001%", "select 1 as one")?;
    ensure!(tables == ["coverage"], "{tables:?}");
    ensure!(log.contains("this host is not among the"), "{log}");
    let counted = "select sum(exact_bytes) as counted, min(drawn) as drawn from coverage where kind = 'alloc'";
    let (tables, log, rows) = exported("100%", counted)?;
    ensure!(
        tables.contains(&"alloc".to_owned()) && tables.contains(&"live".to_owned()),
        "{tables:?}"
    );
    ensure!(whole(&rows[0], "drawn")? == 1 && whole(&rows[0], "counted")? > 0, "{rows:?}");
    ensure!(!log.contains("among the"), "{log}");
    Ok(())
}
