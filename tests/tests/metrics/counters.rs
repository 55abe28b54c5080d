//! Counters and histograms of `/metrics`.

use super::{Served, ticking};
use anyhow::{Context, Result, ensure};
use sampler_tests::exposition::Exposition;
use sampler_tests::{Workload, build, daemon, wait};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

/// A program's allocations, to the byte and the sample. They equal those of `status` and `ps`.
#[test]
fn metrics_equal_status_and_ps() -> Result<()> {
    let mut workload = Workload::edge(&["realloc"])?;
    let served = Served::start(&[workload.pid()], &["--interval", "1"])?;
    workload.go()?;
    let truth = workload.truth()?.total();
    let status = served.daemon.status()?;
    let page = served.metrics()?;
    let pid = workload.pid().to_string();
    let listed = served.daemon.json("ps")?;
    let process = &listed["processes"][0];
    let comm = process["comm"].as_str().context("no comm")?;
    let labels = [("pid", pid.as_str()), ("comm", comm)];
    let number = |name: &str| page.value(name, &[]);

    ensure!(number("sampler_allocated_bytes_total")? == truth.alloc.bytes as f64);
    ensure!(number("sampler_allocations_total")? == truth.alloc.objects as f64);
    ensure!(number("sampler_live_samples")? == truth.live.objects as f64);
    let samples = daemon::outcome(&status, "sampled") as f64;
    ensure!(samples >= truth.alloc.objects as f64 && number("sampler_samples_total")? == samples);
    ensure!(page.value("sampler_process_samples_total", &labels)? == samples);
    ensure!(number("sampler_sample_delay_seconds_count")? == samples);
    for (name, count) in status["outcomes"].as_object().context("no outcomes")? {
        let reported = page.value("sampler_outcomes_total", &[("outcome", name)])?;
        ensure!(Some(reported) == count.as_f64(), "{name}: {reported} is not {count}");
    }
    ensure!(page.value("sampler_process_interval_bytes", &labels)? == 1.0);
    ensure!(number("sampler_ring_size_bytes")? == status["ring_bytes"].as_f64().unwrap_or(0.0));
    ensure!(number("sampler_ring_fill_ratio_count")? > 0.0);
    ensure!(number("process_cpu_seconds_total")? > 0.0);
    ensure!(number("process_resident_memory_bytes")? > 1e6);
    let question =
        |name: &str| page.value("sampler_answer_duration_seconds_count", &[("question", name)]);
    ensure!(question("metrics")? == 0.0, "the answer that is being made is not made yet");
    ensure!(question("status")? == 1.0 && question("profile")? == 0.0);
    let next = served.metrics()?;
    for (name, count) in [("metrics", 1.0), ("status", 1.0), ("processes", 1.0)] {
        let labels = [("question", name)];
        ensure!(next.value("sampler_answer_duration_seconds_count", &labels)? == count, "{name}");
    }
    let histograms = status["histograms"].as_array().context("no histograms")?;
    ensure!(histograms[0]["count"].as_f64() == Some(samples), "{}", histograms[0]);
    ensure!(status["daemon_rss_bytes"].as_f64() > Some(1e6), "{status}");
    let text = served.daemon.sampler(&["status"])?.success("status")?.stdout;
    ensure!(String::from_utf8_lossy(&text).contains("samples stored within"));
    promtool(&served)?;
    workload.exit()?;
    served.daemon.stop()?;
    // Nobody has allocated since, so the costs agree to all common digits.
    let cost = &process["cost"]["spent_ns"];
    for (end, name) in [
        ("value", "probe_cpu_seconds_total"),
        ("low", "probe_cpu_low_seconds_total"),
        ("high", "probe_cpu_high_seconds_total"),
    ] {
        let said = cost[end].as_f64().context("no cost")? / 1e9;
        let reported = page.value(&format!("sampler_process_{name}"), &labels)?;
        let all = number(&format!("sampler_{name}"))?;
        ensure!(
            said > 0.0 && (reported / said - 1.0).abs() < 1e-9,
            "{name}: {reported} is not {said}"
        );
        ensure!(reported == all, "{name}: {reported} of {all}");
    }
    Ok(())
}

/// Checks the page with Prometheus's own tool.
fn promtool(served: &Served) -> Result<()> {
    let started = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = started else {
        eprintln!("NOT TESTED: promtool check metrics: not in PATH (apt-get install prometheus)");
        return Ok(());
    };
    let page = served.page("/metrics")?;
    promtool.stdin.take().context("stdin is a pipe")?.write_all(&page.body)?;
    let output = promtool.wait_with_output()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    ensure!(output.status.success() && said.is_empty(), "promtool: {said}");
    Ok(())
}

/// A host outside of `--export-share` has a 0, and the exports have their counters.
#[test]
fn exports_are_counted() -> Result<()> {
    for (share, is_drawn) in [("100%", 1.0), ("0.00000001%", 0.0)] {
        let (workload, folder) = (Workload::edge(&["ticks"])?, tempfile::tempdir()?);
        let destination = format!("parquet:{}", folder.path().display());
        let export = ["--export", &destination, "--export-every", "1s", "--export-share", share];
        let served = Served::start(&[workload.pid()], &export)?;
        let labels = [("destination", destination.as_str()), ("outcome", "sent")];
        let page = wait::until("an export", || {
            let page = served.metrics()?;
            Ok((page.value("sampler_export_requests_total", &labels)? > 0.0).then_some(page))
        })?;
        let reported = page.value("sampler_export_drawn", &[])?;
        ensure!(reported == is_drawn, "{share}: {reported}");
        served.daemon.stop()?;
    }
    Ok(())
}

/// Every counter and histogram only grows. The processes sum up to the totals, also when one has
/// exited.
#[test]
fn counters_only_grow() -> Result<()> {
    let programs = (0..3).map(|_| Workload::edge(&["ticks"])).collect::<Result<Vec<_>>>();
    let mut programs = programs?;
    let pids: Vec<u32> = programs.iter().map(Workload::pid).collect();
    let served = Served::start(&pids, &["--interval", "1"])?;
    for program in &mut programs {
        program.go()?;
        program.truth()?;
    }
    let mut last = sampled(&served, &pids, |_| 0.0)?;
    let mut reported = [0.0; 3];
    for round in 0..6 {
        if round == 3 {
            // Dropping the program kills it.
            drop(programs.pop());
            reported = last_values_of(&served, &last, pids[2])?;
        }
        let running: Vec<u32> = programs.iter().map(Workload::pid).collect();
        let page = sampled(&served, &running, |pid| of_process(&last, "samples_total", pid) + 5.0)?;
        grown(&last, &page)?;
        last = page;
    }
    ensure!(last.of("sampler_process_samples_total").count() == 3, "two that run, and other");
    // Counts after the last reading of the exited process's series are in `other`.
    for (name, reported) in COUNTS.into_iter().zip(reported) {
        let each = last.sum(&format!("sampler_process_{name}")) + reported;
        let all = last.sum(&format!("sampler_{name}"));
        ensure!(reported > 0.0 && each == all, "{name}: {each}, all {all}");
    }
    served.daemon.stop()
}

/// Whole-number counters that exist both for each process and for all.
const COUNTS: [&str; 3] = ["samples_total", "allocations_total", "allocated_bytes_total"];

/// A counter of one process.
fn of_process(page: &Exposition, name: &str, pid: u32) -> f64 {
    let (name, pid) = (format!("sampler_process_{name}"), pid.to_string());
    let own = page.of(&name).filter(|(labels, _)| labels["pid"] == pid);
    own.map(|(_, value)| value).sum()
}

/// A page in which each process has more samples than `than` says. A process may have to wait for a
/// CPU.
fn sampled(served: &Served, pids: &[u32], than: impl Fn(u32) -> f64) -> Result<Exposition> {
    wait::until("samples of each process", || {
        let page = served.metrics()?;
        let has_more = |pid: &u32| of_process(&page, "samples_total", *pid) > than(*pid);
        Ok(pids.iter().all(has_more).then_some(page))
    })
}

/// The last values of the series of an exiting process, from the previous page or from a page that
/// still had the series.
fn last_values_of(served: &Served, before: &Exposition, pid: u32) -> Result<[f64; 3]> {
    let of = |page: &Exposition| COUNTS.map(|name| of_process(page, name, pid));
    let mut reported = of(before);
    wait::until("the exit", || {
        let page = served.metrics()?;
        if page.value("sampler_processes", &[("state", "exited")])? == 1.0 {
            return Ok(Some(reported));
        }
        reported = of(&page);
        Ok(None)
    })
}

/// Checks that no counter has fallen. Unless a series has gone, the growth of the processes' series
/// equals that of the totals.
fn grown(before: &Exposition, after: &Exposition) -> Result<()> {
    for (series, value) in before.growing() {
        let Some(now) = after.series.get(series) else {
            ensure!(series.1.contains_key("pid"), "{series:?} has gone");
            continue;
        };
        ensure!(*now >= value, "{series:?} fell from {value} to {now}");
    }
    for name in COUNTS {
        let of_processes = format!("sampler_process_{name}");
        let kept = |of: &Exposition| {
            let series = of.of(&of_processes);
            let kept = series.filter(|(labels, _)| {
                let key = (of_processes.clone(), (*labels).clone());
                before.series.contains_key(&key) && after.series.contains_key(&key)
            });
            kept.map(|(_, value)| value).sum::<f64>()
        };
        let all = |of: &Exposition| of.sum(&format!("sampler_{name}"));
        let (each, all) = (kept(after) - kept(before), all(after) - all(before));
        ensure!(each <= all, "{name}: processes {each}, all {all}");
        let gone = before.of(&of_processes).count() > after.of(&of_processes).count();
        ensure!(gone || each == all, "{name}: processes {each}, all {all}");
    }
    Ok(())
}

/// A process's name stays the value of its label, whatever the name is.
#[test]
fn hostile_names_stay_in_their_quotes() -> Result<()> {
    let name = b"a\"b\\c\nd} 1\xff";
    let directory = tempfile::tempdir()?;
    let path = directory.path().join(OsStr::from_bytes(name));
    fs::copy(build::compile("edges.c", &[])?, &path)?;
    let mut workload = Workload::start_program(&path, &["realloc"])?;
    let served = Served::start(&[workload.pid()], &["--interval", "1"])?;
    workload.go()?;
    workload.truth()?;
    let page = served.metrics()?;
    let pid = workload.pid().to_string();
    let labels = [("pid", pid.as_str()), ("comm", "a\"b\\c\nd} 1\u{fffd}")];
    ensure!(page.value("sampler_process_samples_total", &labels)? > 0.0);
    promtool(&served)?;
    workload.exit()?;
    served.daemon.stop()
}

/// Histograms and back-pressure appear when they should.
#[test]
fn latencies_and_back_pressure_are_exported() -> Result<()> {
    let (_workload, served) = ticking()?;
    served.daemon.profile("alloc", &[])?;
    let count = |page: &Exposition| page.value("sampler_sample_delay_seconds_count", &[]);
    let page = wait::until("a sample", || {
        let page = served.metrics()?;
        Ok((count(&page)? > 0.0).then_some(page))
    })?;
    let labels = [("question", "profile")];
    ensure!(page.value("sampler_answer_duration_seconds_count", &labels)? == 1.0);
    ensure!(page.value("sampler_answer_duration_seconds_sum", &labels)? > 0.0);
    ensure!(page.value("sampler_back_pressure_ratio", &[])? == 1.0);
    let delays = page.value("sampler_sample_delay_seconds_sum", &[])?;
    let samples = count(&page)?;
    // The worker reads every 100 ms. A busy machine adds to that.
    ensure!(delays / samples > 1e-6 && delays / samples < 10.0, "{delays} s for {samples}");
    served.daemon.stop()
}
