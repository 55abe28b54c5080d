//! `samplerd --export`: a collector receives once what the API answers, whatever the collector
//! does. Every allocation is sampled, so that sums are equal.

mod tls;

use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;
use prost::Message as _;
use sampler_common::encode::pprof::message as pprof;
use sampler_tests::collector::{AnswerMode, Collector, Taken};
use sampler_tests::{Daemon, Workload, build, http, wait};
use serde_json::Value;
use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A daemon that exports every second.
fn exporting(pids: &[u32], url: &str, extra: &[&str]) -> Result<Daemon> {
    let arguments = ["--interval", "1", "--export", url, "--export-every", "1s"];
    Daemon::start(pids, &[&arguments, extra].concat())
}

/// The counters of the only destination in `status`.
fn counts(daemon: &Daemon) -> Result<Value> {
    let status = daemon.status()?;
    let exports = status["exports"].as_array().context("no exports")?;
    ensure!(exports.len() == 1, "{exports:?}");
    Ok(exports[0].clone())
}

fn number(of: &Value, key: &str) -> Result<u64> {
    of[key].as_u64().with_context(|| format!("no {key} in {of}"))
}

/// Checks that the counters add up: no request has vanished.
fn adds_up(of: &Value) -> Result<()> {
    let ends = ["sent", "refused", "dropped", "waiting"].map(|key| number(of, key));
    let sum = ends.into_iter().sum::<Result<u64>>()?;
    ensure!(sum == number(of, "made")?, "{of}");
    ensure!(of["missed_ns"] == 0, "{of}");
    Ok(())
}

/// Waits until `holds` is true of the destination's counters.
fn counts_where(daemon: &Daemon, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
    wait::until(what, || {
        let counts = counts(daemon)?;
        adds_up(&counts)?;
        Ok(Some(counts).filter(|counts| holds(counts)))
    })
}

/// A program that allocates 100 bytes each millisecond.
fn ticking() -> Result<Workload> {
    let mut workload = Workload::edge(&["ticks"])?;
    workload.go()?;
    workload.truth()?;
    Ok(workload)
}

/// Checks that every allocation of an idle program has arrived once.
fn all_arrived(daemon: &Daemon, collector: &Collector, function: &str) -> Result<Taken> {
    let counts = daemon.profile("alloc", &[])?;
    let row = counts.row(function);
    let [bytes, objects] =
        [row.alloc_space.sum, row.alloc_objects.sum].map(|sum| sum.round() as u64);
    ensure!(bytes > 0, "nothing was allocated");
    let arrived = |taken: &Taken| taken.sum("alloc_space", function) >= bytes;
    let taken = collector.taken_where("the last window", arrived)?;
    let sums = ["alloc_space", "alloc_objects"].map(|of| taken.sum(of, function));
    ensure!(sums == [bytes, objects], "{sums:?} arrived of {bytes} bytes, {objects} objects");
    Ok(taken)
}

#[test]
fn windows_follow_each_other_and_add_up_to_everything() -> Result<()> {
    let collector = Collector::start()?;
    let workload = ticking()?;
    let daemon = exporting(&[workload.pid()], &collector.url(), &["--export-label", "env=test"])?;
    let windows = |taken: &Taken| taken.windows("alloc_space").map_or(0, |of| of.len());
    let early = collector.taken_where("three windows", |taken| windows(taken) >= 3)?;
    collector.taken_where("eight windows", |taken| windows(taken) >= 8)?;
    workload.stop()?;
    let taken = all_arrived(&daemon, &collector, "ticking")?;
    let windows = taken.windows("alloc_space")?;
    ensure!(windows.iter().all(|(_, length)| *length >= 1_000_000_000), "{windows:?}");
    ensure!(taken.series() == early.series(), "series come with pushes: {:?}", taken.series());
    // Blocks are held for a moment only, so pushes add no series.
    ensure!(early.series().len() <= 4, "{:?}", early.series());
    let service = &taken.profiles[0].service;
    ensure!(
        service["env"] == "test" && service["process.executable.name"] == service["service.name"]
    );
    for received in collector.received() {
        ensure!(received.line == "POST /v1development/profiles HTTP/1.1", "{}", received.line);
        for (header, value) in
            [("content-type", "application/x-protobuf"), ("content-encoding", "gzip")]
        {
            ensure!(received.headers[header] == value, "{:?}", received.headers);
        }
    }
    let counts = counts(&daemon)?;
    adds_up(&counts)?;
    ensure!(counts["retried"] == 0 && counts["last_error"].is_null(), "{counts}");
    daemon.stop()
}

#[test]
fn a_program_has_the_service_name_that_it_was_given() -> Result<()> {
    let collector = Collector::start()?;
    let program = build::compile("edges.c", &[])?;
    let mut command = Command::new(program);
    command.arg("ticks").env("OTEL_SERVICE_NAME", "cart");
    let mut workload = Workload::spawn("edges.c", &mut command)?;
    let daemon = exporting(&[workload.pid()], &collector.url(), &[])?;
    workload.go()?;
    let taken = collector.taken_where("a window", |taken| !taken.profiles.is_empty())?;
    for profile in &taken.profiles {
        ensure!(profile.service["service.name"] == "cart", "{:?}", profile.service);
        let executable = &profile.service["process.executable.name"];
        ensure!(executable.starts_with("edges"), "{:?}", profile.service);
    }
    daemon.stop()
}

#[test]
fn exported_held_bytes_are_a_snapshot() -> Result<()> {
    let collector = Collector::start()?;
    let mut workload = Workload::start("windows.c", &[])?;
    let daemon = exporting(&[workload.pid()], &collector.url(), &[])?;
    for function in ["first", "second", "third"] {
        workload.go()?;
        let truth = workload.truth()?;
        let of = truth.function(function)?;
        let held = |taken: &Taken| taken.newest("inuse_space", function) == of.live.bytes;
        let taken = collector.taken_where("what is held", held)?;
        ensure!(taken.newest("inuse_objects", function) == of.live.objects);
        all_arrived(&daemon, &collector, function)?;
    }
    daemon.stop()
}

#[test]
fn a_failed_collector_later_gets_all_profiles() -> Result<()> {
    let collector = Collector::start()?;
    let workload = ticking()?;
    let daemon = exporting(&[workload.pid()], &collector.url(), &[])?;
    let some = |taken: &Taken| !taken.profiles.is_empty();
    collector.taken_where("a window", some)?;
    for mode in [
        AnswerMode::Refuse(503, None),
        AnswerMode::Garbage,
        AnswerMode::HangUp,
        AnswerMode::Swallow,
        AnswerMode::Silence,
    ] {
        let before = number(&counts(&daemon)?, "retried")?;
        let samples = daemon.profile("alloc", &[])?.samples;
        collector.behave(mode);
        let failed = |counts: &Value| counts["retried"].as_u64() > Some(before + 1);
        let counts =
            counts_where(&daemon, "two failures", failed).with_context(|| format!("{mode:?}"))?;
        ensure!(
            counts["waiting"].as_u64() > Some(0) && counts["last_error"].is_string(),
            "{counts}"
        );
        ensure!(!counts["last_error"].to_string().contains("\\u001b"), "{counts}");
        // Ingestion does not wait for the collector.
        ensure!(daemon.profile("alloc", &[])?.samples > samples, "{mode:?} holds up ingestion");
        collector.behave(AnswerMode::Take);
        counts_where(&daemon, "an empty queue", |counts| counts["waiting"] == 0)?;
    }
    workload.stop()?;
    let taken = all_arrived(&daemon, &collector, "ticking")?;
    taken.windows("alloc_space")?;
    ensure!(taken.repeated > 0, "what was swallowed did not come again");
    let keys = collector.received().into_iter().map(|of| of.headers["idempotency-key"].clone());
    let keys: Vec<String> = keys.collect();
    let once: HashSet<&String> = keys.iter().collect();
    ensure!(once.len() < keys.len(), "no request came twice by its key");
    daemon.stop()
}

#[test]
fn the_retry_delay_of_a_collector_is_kept() -> Result<()> {
    const SECONDS: u64 = 5;
    let collector = Collector::start()?;
    collector.behave(AnswerMode::Refuse(429, Some(SECONDS)));
    let workload = ticking()?;
    let daemon = exporting(&[workload.pid()], &collector.url(), &[])?;
    let attempts = wait::until("two attempts", || {
        Ok(Some(collector.attempts()).filter(|attempts| attempts.len() > 1))
    })?;
    let between = attempts[1].duration_since(attempts[0]);
    ensure!(between >= Duration::from_secs(SECONDS), "asked again after {between:?}");
    collector.behave(AnswerMode::Take);
    counts_where(&daemon, "an empty queue", |counts| counts["waiting"] == 0)?;
    daemon.stop()
}

#[test]
fn permanently_refused_requests_are_counted_not_retried() -> Result<()> {
    let collector = Collector::start()?;
    collector.behave(AnswerMode::Refuse(400, None));
    let workload = ticking()?;
    let arguments = ["--http", "127.0.0.1:0"];
    let mut daemon = exporting(&[workload.pid()], &collector.url(), &arguments)?;
    let line = daemon.child().line()?;
    let url = line.strip_prefix("http http://").and_then(|url| url.strip_suffix('/'));
    let address: SocketAddr = url.with_context(|| format!("no URL in {line:?}"))?.parse()?;
    let refused = |counts: &Value| counts["refused"].as_u64() > Some(2);
    let counts = counts_where(&daemon, "three refusals", refused)?;
    ensure!(counts["retried"] == 0 && counts["last_error"] == "400 Bad Request: busy", "{counts}");
    let page = http::get(address, "/metrics")?;
    let page = page.text()?;
    let series = format!(
        "sampler_export_requests_total{{destination=\"{}\",outcome=\"refused\"}} ",
        collector.url()
    );
    let line = page.lines().find_map(|line| line.strip_prefix(&series));
    let shown: f64 = line.with_context(|| format!("no {series} in {page}"))?.parse()?;
    ensure!(shown >= 3.0, "{shown}");
    let text = String::from_utf8(daemon.sampler(&["status"])?.success("status")?.stdout)?;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(text.contains("refused; last error: 400 Bad Request: busy"), "{text}");
    daemon.stop()
}

#[test]
fn the_last_window_is_sent_at_the_end() -> Result<()> {
    let collector = Collector::start()?;
    let mut workload = Workload::start("windows.c", &[])?;
    let arguments = ["--interval", "1", "--export", &collector.url(), "--export-every", "100s"];
    let daemon = Daemon::start(&[workload.pid()], &arguments)?;
    workload.go()?;
    let bytes = workload.truth()?.function("first")?.alloc.bytes;
    // The time slot of the allocations has ended. It ended earlier than any sample may be late.
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    daemon.profile_where("a border", "alloc", &["--last", "1ms"], |profile| {
        let of = |key: &str| profile.json["window"][key].as_u64().unwrap_or_default();
        let (start, end) = (of("start_unix_ns"), of("end_unix_ns"));
        start > now && end - start > 300_000_000
    })?;
    ensure!(collector.received().is_empty(), "it is early");
    daemon.stop()?;
    ensure!(collector.taken()?.sum("alloc_space", "first") == bytes);
    Ok(())
}

#[test]
fn profiles_are_exported_over_grpc() -> Result<()> {
    let collector = Collector::start_grpc()?;
    collector.behave(AnswerMode::Refuse(503, None));
    let workload = ticking()?;
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("headers");
    fs::write(&path, "Authorization: Bearer abc\n")?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    let path = path.display().to_string();
    let arguments = ["--export-header-file", &path];
    let daemon = exporting(&[workload.pid()], &collector.url(), &arguments)?;
    let failed = |counts: &Value| counts["retried"].as_u64() > Some(1);
    let counts = counts_where(&daemon, "two failures", failed)?;
    ensure!(counts["last_error"] == "Unavailable: busy", "{counts}");
    collector.behave(AnswerMode::Refuse(400, None));
    let refused = |counts: &Value| counts["refused"].as_u64() > Some(0);
    let counts = counts_where(&daemon, "a refusal", refused)?;
    ensure!(counts["last_error"] == "InvalidArgument: no", "{counts}");
    collector.behave(AnswerMode::Take);
    collector.taken_where("two windows", |taken| {
        taken.windows("alloc_space").is_ok_and(|windows| windows.len() > 1)
    })?;
    ensure!(collector.received()[0].headers["authorization"] == "Bearer abc");
    daemon.stop()
}

/// Bytes of a sample type in the requests to `/ingest`, at stacks with a function. Each request
/// counts once.
fn ingested(collector: &Collector, sample_type: &str, function: &str) -> Result<u64> {
    let (mut sum, mut keys) = (0, HashSet::new());
    for received in collector.received() {
        if !keys.insert(received.headers["idempotency-key"].clone()) {
            continue;
        }
        let mut bytes = Vec::new();
        GzDecoder::new(&received.body[..]).read_to_end(&mut bytes).context("unpack")?;
        let profile = pprof::Profile::decode(&bytes[..]).context("decode")?;
        let text = |index: i64| profile.string_table[index as usize].as_str();
        ensure!(!profile.sample.is_empty() && profile.sample.len() <= 16_000, "samples");
        let types: Vec<&str> = profile.sample_type.iter().map(|of| text(of.r#type)).collect();
        let is_window = profile.duration_nanos > 0;
        let prefix = if is_window { "alloc_" } else { "inuse_" };
        ensure!(types.iter().all(|of| of.starts_with(prefix)), "{types:?}");
        let Some(at) = types.iter().position(|of| *of == sample_type) else { continue };
        let has = |id: &u64| {
            let lines = &profile.location[*id as usize - 1].line;
            lines
                .iter()
                .any(|of| text(profile.function[of.function_id as usize - 1].name) == function)
        };
        let samples = profile.sample.iter().filter(|of| of.location_id.iter().any(has));
        sum += samples.map(|of| of.value[at] as u64).sum::<u64>();
    }
    Ok(sum)
}

#[test]
fn pyroscope_gets_a_pprof_for_each_service() -> Result<()> {
    let collector = Collector::start()?;
    let mut workload = Workload::start("windows.c", &[])?;
    let arguments = ["--export-label", "deployment.environment=a,b"];
    let daemon = exporting(&[workload.pid()], &collector.pyroscope_url(), &arguments)?;
    workload.go()?;
    let truth = workload.truth()?;
    let bytes = truth.function("first")?.alloc.bytes;
    wait::until("the first phase", || {
        Ok((ingested(&collector, "alloc_space", "first")? >= bytes).then_some(()))
    })?;
    ensure!(ingested(&collector, "alloc_space", "first")? == bytes);
    let held = || ingested(&collector, "inuse_space", "first");
    wait::until("what is held", || Ok((held()? > 0).then_some(())))?;
    let lines: HashSet<String> = collector.received().into_iter().map(|of| of.line).collect();
    for line in lines {
        ensure!(line.starts_with("POST /ingest?name=windows"), "{line}");
        ensure!(
            line.contains("deployment%5Fenvironment%3Da%5Fb") && line.contains("&format=pprof "),
            "{line}"
        );
        ensure!(line.contains("&from=") && line.contains("&until="), "{line}");
    }
    daemon.stop()
}

/// Checks that the daemon refuses in one line, before it attaches anything.
fn is_refused(arguments: &[&str], code: i32, says: &str) -> Result<()> {
    let pid = std::process::id().to_string();
    let all = [&["--pid", &pid], arguments].concat();
    let finished =
        sampler_tests::child::finish(Command::new(build::program("samplerd")?).args(all))?;
    let said = &finished.stderr;
    ensure!(finished.code() == code && said.contains(says), "{arguments:?}: {said}");
    ensure!((1..=6).contains(&said.lines().count()), "{said}");
    Ok(())
}

#[test]
fn invalid_export_options_are_refused_at_the_start() -> Result<()> {
    let url = "otlp+http://127.0.0.1:4318";
    let directory = tempfile::tempdir()?;
    let file = |mode: u32, text: &str| -> Result<String> {
        let path = directory.path().join("headers");
        fs::write(&path, text)?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        Ok(path.display().to_string())
    };
    for (arguments, says) in [
        (&["--export", "ftp://x"][..], "otlp+http://HOST:4318"),
        (&["--export", "otlp+http://me:secret@x"], "--export-header-file"),
        (&["--export", url, "--export", url], "given twice"),
        (&["--export", url, "--export-every", "500ms"], "1 s to 100 s"),
        (&["--export", url, "--export-every", "5m"], "1 s to 100 s"),
        (&["--export", url, "--windows", "1%"], "--windows"),
        (&["--export", url, "--export-label", "x"], "KEY=VALUE"),
        (&["--export", url, "--export-label", "a=b", "--export-label", "a=c"], "a is given twice"),
        (&["--export-label", "a=b"], "--export"),
    ] {
        is_refused(arguments, 2, says)?;
    }
    let path = file(0o644, "Authorization: Bearer x")?;
    let with_headers =
        |path: &str| is_refused(&["--export", url, "--export-header-file", path], 1, path);
    with_headers(&path)?;
    with_headers(&file(0o600, "no header")?)?;
    with_headers(&Path::new(&path).with_file_name("none").display().to_string())
}

#[test]
fn names_can_be_left_to_the_receiver() -> Result<()> {
    let workload = ticking()?;
    for collector in [Collector::start()?, Collector::start_grpc()?] {
        let arguments = ["--export-names", "server"];
        let daemon = exporting(&[workload.pid()], &collector.url(), &arguments)?;
        let received = wait::until("a profile", || Ok(collector.received().into_iter().next()))?;
        let dictionary = received.message()?.dictionary.context("no dictionary")?;
        let text = |index: i32| dictionary.string_table[index as usize].as_str();
        let in_files: Vec<_> =
            dictionary.location_table.iter().filter(|of| of.mapping_index > 0).collect();
        ensure!(in_files.len() > 2 && in_files.iter().all(|of| of.lines.is_empty()));
        ensure!(in_files.iter().all(|of| of.address > 0));
        for name in ["ticking", "main", "malloc"] {
            ensure!(!dictionary.string_table.iter().any(|of| of == name), "{name}");
        }
        for mapping in &dictionary.mapping_table[1..] {
            let keys = mapping
                .attribute_indices
                .iter()
                .map(|of| text(dictionary.attribute_table[*of as usize].key_strindex));
            let keys: Vec<&str> = keys.collect();
            for key in ["gnu", "htlhash"] {
                let key = format!("process.executable.build_id.{key}");
                ensure!(keys.contains(&key.as_str()), "{keys:?}");
            }
        }
        daemon.stop()?;
    }
    let url = "pyroscope+http://127.0.0.1:4040";
    let arguments = ["--export", url, "--export-names", "server"];
    is_refused(&arguments, 2, "--export-names server: pyroscope+http://127.0.0.1:4040 takes")
}

#[test]
fn headers_of_a_file_are_sent() -> Result<()> {
    let collector = Collector::start()?;
    let workload = ticking()?;
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("headers");
    fs::write(&path, "Authorization: Bearer abc\nX-Scope-OrgID: 7\n")?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    let path = path.display().to_string();
    let url = format!("{}/base/", collector.url());
    let daemon = exporting(&[workload.pid()], &url, &["--export-header-file", &path])?;
    collector.taken_where("a window", |taken| !taken.profiles.is_empty())?;
    let received = collector.received().remove(0);
    ensure!(received.line == "POST /base/v1development/profiles HTTP/1.1", "{}", received.line);
    let headers = ["authorization", "x-scope-orgid"].map(|name| received.headers[name].as_str());
    ensure!(headers == ["Bearer abc", "7"], "{headers:?}");
    ensure!(!daemon.log().contains("abc"), "a secret in the log");
    daemon.stop()
}
