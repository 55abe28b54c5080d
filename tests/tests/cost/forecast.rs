//! The forecast of the cost of uprobes after a process's first second, with the cost of an
//! injection for comparison.

use crate::own::range;
use anyhow::{Context, Result, ensure};
use sampler_tests::child::Child;
use sampler_tests::inject::Subject;
use sampler_tests::{Daemon, Workload, build, wait};
use serde_json::Value;
use std::process::Command;

/// The forecast of the only process.
fn forecast(daemon: &Daemon) -> Result<Value> {
    wait::until("a forecast", || {
        let status = daemon.status()?;
        Ok(status["forecasts"].as_array().and_then(|of| of.first()).cloned())
    })
}

/// The forecast of a waiting process. The log and the text of `status` must have it, too.
fn forecast_of(pid: u32, arguments: &[&str]) -> Result<(Value, String)> {
    let daemon = Daemon::start(&[pid], arguments)?;
    let forecast = forecast(&daemon)?;
    let text = daemon.sampler(&["status"])?.success("status")?.stdout;
    let text = String::from_utf8(text)?;
    let log = daemon.log();
    daemon.stop()?;
    let line = log.lines().find(|line| line.contains("probe hits each second"));
    let line = line.with_context(|| log.clone())?.to_owned();
    ensure!(line.contains(&format!("{pid}")) && text.contains("forecast"), "{line} {text}");
    Ok((forecast, line))
}

/// For a program that allocates all the time, the forecast is hits times their price, with an
/// interval.
#[test]
fn the_cost_forecast_of_a_busy_program_is_right() -> Result<()> {
    let program = build::compile("injected.c", &[])?;
    let mut child = Child::start("injected.c", Command::new(program).args(["1", "busy"]))?;
    ensure!(child.line()? == "waiting", "it does not wait");
    let daemon = Daemon::start(&[child.pid()], &[])?;
    let forecast = forecast(&daemon)?;
    let (spent, low, high) = range(&forecast["spent_ns_per_second"], "spent")?;
    let hits = forecast["hits_per_second"].as_f64().context("no hits")?;
    ensure!(hits > 1_000.0 && 0.0 < low && low < spent && spent < high, "{forecast}");
    // A hit takes 0.1 to 100 µs on any machine.
    ensure!((100.0..1e5).contains(&(spent / hits)), "{forecast}");
    ensure!(forecast["seconds"].as_f64() >= Some(1.0), "{forecast}");
    ensure!(forecast["inject"] == "possible" && forecast["why"].is_null(), "{forecast}");
    let log = daemon.log();
    ensure!(log.contains("--inject would cost 2 to 7 %"), "{log}");
    daemon.stop()?;
    child.send("exit")?;
    ensure!(child.wait()?.success(), "it has seen something wrong");
    Ok(())
}

/// The reason replaces the forecast of an injection if the injection would be refused.
#[test]
fn the_forecast_names_why_a_program_cannot_be_injected() -> Result<()> {
    let program = build::compile("family.c", &["-static"])?;
    let program = Subject::spawn("family.c", &mut Command::new(program))?;
    let (forecast, line) = forecast_of(program.pid(), &[])?;
    ensure!(forecast["inject"] == "refused", "{forecast}");
    ensure!(line.contains("--inject cannot be used: its libc is not glibc"), "{line}");
    let (forecast, line) = forecast_of(program.pid(), &["--probe-engine", "perf"])?;
    ensure!(forecast["inject"] == "refused" && line.contains("perf probes"), "{line}");
    Ok(())
}

/// A process without uprobes gets no forecast, and nobody waits for it.
#[test]
fn an_injected_program_has_no_forecast() -> Result<()> {
    let mut workload = Workload::edge(&["keep", "1000"])?;
    let daemon = Daemon::start(&[workload.pid()], &["--inject"])?;
    let uptime = || Ok(daemon.status()?["uptime_ns"].as_u64().filter(|ns| *ns > 2_000_000_000));
    wait::until("two seconds", uptime)?;
    ensure!(daemon.status()?["forecasts"] == serde_json::json!([]), "{}", daemon.status()?);
    workload.go()?;
    workload.truth()?;
    workload.exit()?;
    daemon.stop()
}
