//! `samplerd --export clickhouse+http://…`: what arrives, put into ClickHouse's tables, gives the
//! answers of the Parquet files of the same daemon. Requests that arrive twice count once.

use super::simulated::same;
use anyhow::{Context as _, Result, ensure};
use sampler_tests::collector::{AnswerMode, Collector, Received};
use sampler_tests::fleet::{Row, ask, played, python};
use sampler_tests::{Daemon, Workload, wait};
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Name of the database in the URL.
const DATABASE: &str = "fleet";
/// Tables that a window has always.
const EACH_WINDOW: [&str; 3] = ["alloc", "live", "coverage"];

/// An insertion that arrived.
struct Insertion {
    table: String,
    token: String,
    body: Vec<u8>,
    is_taken: bool,
}

impl Insertion {
    fn of(received: &Received) -> Result<Insertion> {
        let query = received.line.strip_prefix("POST /?").context("no insertion")?;
        let query = query.strip_suffix(" HTTP/1.1").context("no HTTP/1.1")?;
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let pairs: HashMap<&str, String> = pairs.map(|(key, value)| (key, plain(value))).collect();
        let of = |key: &str| pairs.get(key).cloned().with_context(|| format!("no {key}: {query}"));
        ensure!(of("database")? == DATABASE && of("async_insert")? == "0", "{query}");
        let insert = of("query")?;
        let table =
            insert.strip_prefix("INSERT INTO ").and_then(|of| of.strip_suffix(" FORMAT Parquet"));
        let table = table.with_context(|| insert.clone())?.to_owned();
        ensure!(received.body.starts_with(b"PAR1"), "no Parquet in {table}");
        let token = of("insert_deduplication_token")?;
        let is_taken = matches!(received.mode, AnswerMode::Take | AnswerMode::Swallow);
        Ok(Insertion { table, token, body: received.body.clone(), is_taken })
    }
}

/// A text without its escapes.
fn plain(text: &str) -> String {
    let mut parts = text.split('%');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at(2);
        plain.push(char::from(u8::from_str_radix(code, 16).unwrap_or(b'?')));
        plain += rest;
    }
    plain
}

fn insertions(collector: &Collector) -> Result<Vec<Insertion>> {
    collector.received().iter().map(Insertion::of).collect()
}

/// The counters of the server among the destinations of a daemon.
fn counts(daemon: &Daemon) -> Result<Value> {
    let status = daemon.status()?;
    let exports = status["exports"].as_array().context("no exports")?;
    let is_server = |of: &&Value| of["destination"].to_string().contains("clickhouse");
    exports.iter().find(is_server).cloned().context("no server")
}

/// Waits until the counters of the server hold.
fn counts_where(daemon: &Daemon, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
    wait::until(what, || Ok(Some(counts(daemon)?).filter(|counts| holds(counts))))
}

/// Puts the insertions that the server took into real tables, and runs statements.
fn answers(python: &Path, taken: &[Insertion], statements: &[&str]) -> Result<Vec<Vec<Row>>> {
    let folder = tempfile::tempdir()?;
    let mut list = String::new();
    for (number, of) in taken.iter().enumerate() {
        fs::write(folder.path().join(number.to_string()), &of.body)?;
        list += &format!("{} {} {number}\n", of.table, of.token);
    }
    fs::write(folder.path().join("insertions"), list)?;
    played(python, folder.path(), statements)
}

#[test]
fn clickhouse_gets_every_window_once() -> Result<()> {
    let Some(python) = python()? else { return Ok(()) };
    let collector = Collector::start()?;
    let folder = tempfile::tempdir()?;
    let mut workload = Workload::edge(&["ticks"])?;
    let server = format!("clickhouse+http://{}/{DATABASE}", collector.address);
    let files = format!("parquet:{}", folder.path().display());
    let exports = ["--export", &server, "--export", &files, "--export-every", "1s"];
    let daemon =
        Daemon::start(&[workload.pid()], &[&["--interval", "512"][..], &exports].concat())?;
    workload.go()?;
    workload.truth()?;
    counts_where(&daemon, "a window", |counts| counts["sent"].as_u64() > Some(0))?;
    for mode in [AnswerMode::Swallow, AnswerMode::Refuse(500, None)] {
        let before = counts(&daemon)?["retried"].as_u64();
        collector.behave(mode);
        counts_where(&daemon, "a failure", |counts| counts["retried"].as_u64() > before)?;
        collector.behave(AnswerMode::Take);
        counts_where(&daemon, "an empty queue", |counts| counts["waiting"] == 0)?;
    }
    workload.stop()?;
    let samples = daemon.profile("alloc", &[])?.samples;
    let sent = counts(&daemon)?["sent"].as_u64().unwrap_or_default();
    counts_where(&daemon, "the last windows", |of| of["sent"].as_u64() > Some(sent + 3))?;
    // The last window goes to both places.
    daemon.stop()?;
    let all = insertions(&collector)?;
    let taken: Vec<Insertion> = all.into_iter().filter(|of| of.is_taken).collect();
    let mut times: HashMap<(&str, &str), usize> = HashMap::new();
    for of in &taken {
        *times.entry((&of.table, &of.token)).or_default() += 1;
    }
    ensure!(times.values().any(|times| *times > 1), "no insertion arrived twice");
    for table in EACH_WINDOW.into_iter().chain(["stacks", "frames", "symbols", "mappings"]) {
        ensure!(times.keys().any(|(of, _)| *of == table), "nothing of {table}");
    }
    let statements = ["by_service", "by_function", "growth"];
    let server = answers(&python, &taken, &statements)?;
    let files = ask(&python, folder.path(), "duckdb", &statements)?;
    for (statement, (server, files)) in statements.iter().zip(server.iter().zip(&files)) {
        same(server, files).context(*statement)?;
    }
    let counted = server[0][0]["samples"].as_u64().unwrap_or_default();
    ensure!(counted == samples, "{counted} samples in the tables of {samples}");
    Ok(())
}

#[test]
fn a_table_that_clickhouse_does_not_have_is_named() -> Result<()> {
    let collector = Collector::start()?;
    collector.behave(AnswerMode::Refuse(404, None));
    let mut workload = Workload::edge(&["ticks"])?;
    let server = format!("clickhouse+http://{}/{DATABASE}", collector.address);
    let arguments = ["--interval", "1", "--export", &server, "--export-every", "1s"];
    let daemon = Daemon::start(&[workload.pid()], &arguments)?;
    workload.go()?;
    workload.truth()?;
    let counts = counts_where(&daemon, "a refusal", |of| of["refused"].as_u64() > Some(0))?;
    let why = counts["last_error"].as_str().unwrap_or_default();
    ensure!(why.starts_with("table ") && why.contains("404 Not Found: busy"), "{counts}");
    daemon.stop()
}
