//! Two hundred simulated hosts, written by the product's own encoder: both engines give the same
//! answers, and the intervals cover what they promise. The seed is fixed.

use super::is_interval_of;
use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use sampler_common::encode::push::{CodeFile, Draw, Frame, Push, ServiceTotals, Stack};
use sampler_common::encode::tables::{WrittenRows, files};
use sampler_common::estimate::{Moments, RowMoments};
use sampler_common::profile::{Kind, Line};
use sampler_tests::fleet::{ENGINES, Row, ask, number, python, text, whole};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const SEED: u64 = 40;
const HOSTS: usize = 200;
/// Services for the coverage of intervals: each is a repetition.
const COVERED: usize = 200;
/// Services whose two builds are equal, and their functions. The share of 1,200 that is named by
/// chance has a standard deviation of 0.6 %.
const EQUAL: usize = 100;
const FUNCTIONS: usize = 12;
/// Service in which one function of the second build allocates half as much again.
const CHANGED: &str = "changed";
pub(crate) const INTERVAL_BYTES: f64 = 65536.0;
const START_NS: u64 = 1_764_421_200_000_000_000;
const MINUTE_NS: u64 = 60_000_000_000;

/// What really happened, and the moments of what was sampled, by name.
#[derive(Default)]
struct Truth {
    bytes: BTreeMap<String, u64>,
    moments: BTreeMap<String, Moments>,
    growth: BTreeMap<String, i64>,
}

impl Truth {
    fn add(&mut self, name: &str, bytes: u64, moments: &Moments) {
        *self.bytes.entry(name.to_owned()).or_default() += bytes;
        self.moments.entry(name.to_owned()).or_default().add(moments);
    }
}

/// Samples `blocks` blocks of `size` bytes, each with the probability of a geometric countdown.
pub(crate) fn sampled(rng: &mut Rng, blocks: u64, size: u64) -> Moments {
    let pass = -(size as f64) / INTERVAL_BYTES;
    let inclusion = -pass.exp_m1();
    // From one sampled block to the next.
    let gap = |rng: &mut Rng| ((1.0 - rng.f64()).ln() / pass).floor() as u64 + 1;
    let (mut at, mut count) = (gap(rng), 0);
    while at <= blocks {
        count += 1;
        at += gap(rng);
    }
    let mut moments = Moments::default();
    moments.add_samples(count, size as f64, inclusion);
    moments
}

/// A number around 1 that differs from host to host by a factor of `spread`.
pub(crate) fn host_factor(rng: &mut Rng, spread: f64) -> f64 {
    let normal = (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos();
    (spread * normal).exp()
}

/// The pushes of one host and window.
struct HostWindow {
    pushes: [Push; 2],
}

impl HostWindow {
    fn new(host: usize, window: u64) -> HostWindow {
        let push = |kind| Push {
            kind,
            start_unix_ns: START_NS + window * MINUTE_NS,
            duration_ns: if kind == Kind::Alloc { MINUTE_NS } else { 0 },
            interval_bytes: INTERVAL_BYTES as u64,
            draw: Draw::ALL,
            services: Vec::new(),
            totals: Vec::new(),
            files: vec![CodeFile {
                path: "/x".into(),
                build_id: "0f".into(),
                htlhash: "1f".into(),
            }],
            frames: Vec::new(),
            stacks: Vec::new(),
        };
        let mut of = HostWindow { pushes: [push(Kind::Alloc), push(Kind::Live)] };
        let main = Line { function: "main".into(), ..Line::default() };
        for push in &mut of.pushes {
            push.frames.push(Frame { code: Some((0, 1)), lines: vec![main.clone()] });
        }
        for name in services() {
            let attributes = [
                ("service.name", name),
                ("host.name", format!("host-{host}")),
                ("process.executable.build_id.gnu", ["aa", "bb"][host % 2].to_owned()),
            ];
            let attributes = attributes.map(|(key, value)| (key.to_owned(), value)).to_vec();
            for push in &mut of.pushes {
                push.services.push(attributes.clone());
                push.totals.push(ServiceTotals { processes: 1, exact: Some((0, 0)) });
            }
        }
        of
    }

    /// Adds a row of a function of a service, whose name is unique in the fleet.
    fn add(&mut self, kind: Kind, service: usize, function: &str, bytes: u64, moments: Moments) {
        let push = &mut self.pushes[usize::from(kind == Kind::Live)];
        if let (Kind::Alloc, Some((exact, _))) = (kind, &mut push.totals[service].exact) {
            *exact += bytes;
        }
        // Other stacks are not seen.
        if moments.samples == 0 {
            return;
        }
        let hash = |hash: u64, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte));
        let address = function.bytes().fold(7, hash);
        let line = Line { function: function.to_owned(), ..Line::default() };
        push.frames.push(Frame { code: Some((0, address)), lines: vec![line] });
        let frames = vec![push.frames.len() as u32 - 1, 0];
        let mut row = RowMoments::default();
        match kind {
            Kind::Alloc => row.alloc_space = moments,
            _ => row.inuse_space = moments,
        }
        push.stacks.push(Stack { service: service as u32, frames, moments: row });
    }

    /// Writes the tables as samplerd does.
    fn write(
        &self,
        folder: &Path,
        host: usize,
        window: u64,
        known: &mut WrittenRows,
    ) -> Result<()> {
        let written = files(&self.pushes, known)?;
        for file in written.files {
            let mut path = folder.join(file.table.name()).join("dt=2025-11-29");
            if !file.table.is_dictionary() {
                path.push("hour=13");
            }
            fs::create_dir_all(&path)?;
            let name = format!("host-{host}-20251129T13000{window}.000000Z.parquet");
            fs::write(path.join(name), file.bytes)?;
        }
        known.add(&written.new);
        Ok(())
    }
}

fn services() -> Vec<String> {
    let covered = (0..COVERED).map(|of| format!("covered-{of}"));
    let equal = (0..EQUAL).map(|of| format!("equal-{of}"));
    covered.chain(equal).chain([CHANGED.to_owned()]).collect()
}

/// Simulates all hosts.
fn simulate(folder: &Path) -> Result<Truth> {
    let mut rng = Rng::with_seed(SEED);
    let mut truth = Truth::default();
    let names = services();
    for host in 0..HOSTS {
        let mut known = WrittenRows::default();
        let windows = [0, 1].map(|window| HostWindow::new(host, window));
        for (window, mut of) in (0..).zip(windows) {
            for (service, name) in names.iter().enumerate() {
                match name.split('-').next() {
                    Some("covered") => {
                        covered(&mut rng, &mut of, service, name, window, &mut truth)
                    }
                    _ if window == 0 => builds(&mut rng, &mut of, service, name, host, &mut truth),
                    _ => {}
                }
            }
            of.write(folder, host, window, &mut known)?;
        }
    }
    Ok(truth)
}

/// Three functions with from 5 to 200 samples in the whole fleet. Most hosts have none of them.
fn covered(
    rng: &mut Rng,
    of: &mut HostWindow,
    service: usize,
    name: &str,
    window: u64,
    truth: &mut Truth,
) {
    for (number, size) in [(0, 4096), (1, 32768), (2, 131_072)] {
        let function = format!("{name}-{number}");
        let wanted = [8.0, 25.0, 100.0][(service + number) % 3] / (2 * HOSTS) as f64;
        let blocks = wanted * INTERVAL_BYTES / size as f64 * host_factor(rng, 0.5);
        // A fraction of a block is a block on some hosts.
        let blocks = (blocks + rng.f64()).floor() as u64;
        let moments = sampled(rng, blocks, size);
        truth.add(name, blocks * size, &moments);
        truth.add(&function, blocks * size, &moments);
        of.add(Kind::Alloc, service, &function, blocks * size, moments);
        let held = blocks * (window + 1);
        let sign = if window == 0 { -1 } else { 1 };
        *truth.growth.entry(function.clone()).or_default() += sign * (held * size) as i64;
        let moments = sampled(rng, held, size);
        of.add(Kind::Live, service, &function, held * size, moments);
    }
}

/// Functions whose shares differ from host to host, and not by build.
fn builds(
    rng: &mut Rng,
    of: &mut HostWindow,
    service: usize,
    name: &str,
    host: usize,
    truth: &mut Truth,
) {
    for number in 0..FUNCTIONS {
        let function = format!("{name}-{number}");
        let more = if name == CHANGED && number == 0 && host % 2 == 1 { 1.5 } else { 1.0 };
        let blocks = (64.0 * more * host_factor(rng, 0.36)) as u64;
        let moments = sampled(rng, blocks, 8192);
        truth.add(name, blocks * 8192, &moments);
        truth.add(&function, blocks * 8192, &moments);
        of.add(Kind::Alloc, service, &function, blocks * 8192, moments);
    }
}

/// Checks the share of intervals that cover the truth.
pub(crate) fn cover(
    rows: &[&Row],
    column: &str,
    truth: impl Fn(&str) -> Option<f64>,
) -> Result<f64> {
    let mut covered = 0;
    for row in rows {
        let name = text(row, column)?;
        let truth = truth(name).with_context(|| format!("nothing of {name}"))?;
        covered += usize::from(number(row, "low")? <= truth && truth <= number(row, "high")?);
    }
    let share = covered as f64 / rows.len() as f64;
    eprintln!("{covered} of {} intervals by {column} cover the truth", rows.len());
    Ok(share)
}

fn intervals_hold(by_service: &[Row], by_function: &[Row], truth: &Truth) -> Result<()> {
    for (rows, column, count) in
        [(by_service, "service", COVERED), (by_function, "function", 3 * COVERED)]
    {
        let of = |row: &&Row| row[column].as_str().is_some_and(|name| name.starts_with("covered"));
        let rows: Vec<&Row> = rows.iter().filter(of).collect();
        ensure!(rows.len() + 6 >= count, "{} rows by {column}", rows.len());
        for row in &rows {
            let moments = &truth.moments[text(row, column)?];
            ensure!(whole(row, "samples")? as u64 == moments.samples, "{row:?} {moments:?}");
            is_interval_of(row, moments)?;
        }
        let share = cover(&rows, column, |name| truth.bytes.get(name).map(|of| *of as f64))?;
        ensure!((0.93..=0.98).contains(&share), "{column}: {share}");
    }
    let counted: f64 = by_service.iter().map(|row| number(row, "counted")).sum::<Result<f64>>()?;
    let exact = truth.bytes.iter().filter(|(name, _)| services().contains(name));
    ensure!(counted == exact.map(|(_, bytes)| *bytes as f64).sum::<f64>(), "{counted}");
    Ok(())
}

fn growth_holds(rows: &[Row], truth: &Truth) -> Result<()> {
    let of = |row: &&Row| row["function"] != "main";
    let rows: Vec<&Row> = rows.iter().filter(of).collect();
    let share = cover(&rows, "function", |name| truth.growth.get(name).map(|of| *of as f64))?;
    // These are normal intervals, of few samples too.
    ensure!((0.90..=0.99).contains(&share), "growth: {share}");
    Ok(())
}

fn builds_differ_as_they_do(rows: &[Row]) -> Result<()> {
    let is_equal = |row: &&Row| row["function"].as_str().is_some_and(|of| of.starts_with("equal"));
    let equal: Vec<&Row> = rows.iter().filter(is_equal).collect();
    ensure!(equal.len() == EQUAL * FUNCTIONS, "{} rows of equal builds", equal.len());
    let named = |column: &str, rows: &[&Row]| -> Result<usize> {
        let p = rows.iter().map(|row| number(row, column)).collect::<Result<Vec<f64>>>()?;
        Ok(p.into_iter().filter(|p| *p < 0.05).count())
    };
    let (by_chance, adjusted) = (named("p", &equal)?, named("p_adjusted", &equal)?);
    eprintln!("{by_chance} of {} equal functions have p < 0.05, {adjusted} adjusted", equal.len());
    ensure!(by_chance as f64 <= 0.06 * equal.len() as f64, "{by_chance} of {}", equal.len());
    ensure!(adjusted <= 3, "{adjusted}");
    let changed = rows.iter().find(|row| row["function"] == format!("{CHANGED}-0"));
    let changed = changed.context("no function that differs")?;
    ensure!(number(changed, "p_adjusted")? < 0.01 && number(changed, "low")? > 0.0, "{changed:?}");
    ensure!(text(changed, "build_1")? == "aa" && text(changed, "build_2")? == "bb", "{changed:?}");
    Ok(())
}

/// Checks that two engines give one answer. Sums of floats may be added in another order.
pub(crate) fn same(one: &[Row], other: &[Row]) -> Result<()> {
    ensure!(one.len() == other.len(), "{} and {} rows", one.len(), other.len());
    let key = |row: &Row| {
        format!(
            "{} {}",
            row.get("service").map_or("", |of| of.as_str().unwrap_or("")),
            row.get("function").map_or("", |of| of.as_str().unwrap_or(""))
        )
    };
    let by_name = |rows: &[Row]| -> BTreeMap<String, Row> {
        rows.iter().map(|row| (key(row), row.clone())).collect()
    };
    let (one, other) = (by_name(one), by_name(other));
    for ((name, a), (other_name, b)) in one.iter().zip(&other) {
        ensure!(name == other_name, "{name:?} {other_name:?}");
        for (column, value) in a {
            let numbers = value.as_f64().zip(b[column].as_f64());
            let is_same = match numbers {
                Some((a, b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-3),
                None => *value == b[column],
            };
            ensure!(is_same, "{column}: {a:?} {b:?}");
        }
    }
    Ok(())
}

#[test]
fn two_hundred_hosts_have_one_answer_that_holds() -> Result<()> {
    let Some(python) = python()? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    let truth = simulate(directory.path())?;
    let statements = ["by_service", "by_function", "growth", "builds"];
    let answers = ENGINES.map(|engine| ask(&python, directory.path(), engine, &statements));
    let [duckdb, clickhouse] = answers;
    let (duckdb, clickhouse) = (duckdb?, clickhouse?);
    for (statement, (one, other)) in statements.iter().zip(duckdb.iter().zip(&clickhouse)) {
        same(one, other).context(*statement)?;
    }
    intervals_hold(&duckdb[0], &duckdb[1], &truth)?;
    growth_holds(&duckdb[2], &truth)?;
    builds_differ_as_they_do(&duckdb[3])
}

/// Two executors, which are processes of their own.
#[test]
#[ignore = "takes minutes and Spark (cargo xtask test --fleet)"]
fn spark_has_the_same_answer() -> Result<()> {
    let Some(python) = python()? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    simulate(directory.path())?;
    let statements = ["by_service", "by_function", "growth", "builds"];
    let duckdb = ask(&python, directory.path(), "duckdb", &statements)?;
    let spark = ask(&python, directory.path(), "spark", &statements)?;
    for (statement, (one, other)) in statements.iter().zip(duckdb.iter().zip(&spark)) {
        same(one, other).context(*statement)?;
    }
    Ok(())
}
