//! `sampler top` in a real terminal, with a real samplerd: its numbers, its keys, and the state of
//! the terminal at its end.

use anyhow::{Context, Result, ensure};
use sampler_common::estimate::{Confidence, Estimate, Method, plus_minus};
use sampler_common::units::human_bytes;
use sampler_tests::child::{finish, kill};
use sampler_tests::terminal::Terminal;
use sampler_tests::{Daemon, Workload, build};
use serde_json::Value;
use std::process::Command;

/// Room for all samples of a run, however late the daemon reads them.
const RING: &str = "256MiB";

/// A workload that has allocated and is idle, so that its numbers do not change.
fn at_rest() -> Result<(Workload, Daemon)> {
    let mut workload = Workload::start("truth.c", &["4711", "1", "32768"])?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "32KiB", "--ring", RING])?;
    workload.go()?;
    workload.truth()?;
    Ok((workload, daemon))
}

fn top(address: &str, size: (u16, u16), more: &[&str]) -> Result<Terminal> {
    let program = build::program("sampler")?;
    let program = program.to_str().context("a path")?;
    Terminal::start(size, &[&[program, "--connect", address, "top"], more].concat())
}

/// The words of the only line that begins with this pid.
fn line_of(screen: &str, pid: u32) -> Option<Vec<String>> {
    let pid = pid.to_string();
    let lines = screen.lines().map(|line| line.split_whitespace().map(str::to_owned).collect());
    let mut found = lines.filter(|words: &Vec<String>| words.first() == Some(&pid));
    found.next().filter(|_| found.next().is_none())
}

/// The held bytes of `ps --json`, as the screen prints them.
fn held(process: &Value) -> Result<[String; 2]> {
    let space = &process["totals"]["inuse_space"];
    let number = |name: &str| space[name].as_f64().with_context(|| format!("{name} of {space}"));
    let estimate = Estimate {
        value: number("value")?,
        low: number("low")?,
        high: number("high")?,
        confidence: Confidence::DEFAULT,
        samples: 0,
        method: Method::Weighted,
    };
    Ok([human_bytes(estimate.value), plus_minus(&estimate)])
}

#[test]
fn top_shows_the_numbers_of_ps_and_leads_to_the_code() -> Result<()> {
    let (mut workload, daemon) = at_rest()?;
    let pid = workload.pid();
    let mut terminal = top(&daemon.address, (160, 40), &["--period", "200ms"])?;
    // The second refresh has a rate of 0: nothing is allocated any more.
    let screen = terminal.until("the process at rest", |screen| {
        line_of(screen, pid)
            .is_some_and(|words| words.get(1..4).is_some_and(|of| of == ["0", "B", "0"]))
    })?;
    let listed = daemon.json("ps")?;
    let process = listed["processes"].as_array().and_then(|all| all.first()).context("ps")?;
    let line = line_of(&screen, pid).context("its line")?.join(" ");
    let exact = process["exact"]["alloc_space"].as_f64().context("exact")?;
    for expected in [held(process)?.join(" "), format!(" {} ", human_bytes(exact))] {
        ensure!(line.contains(&expected), "no {expected:?} in {line}\n{screen}");
    }
    ensure!(line.rsplit(" ").next().is_some_and(|name| name.starts_with("truth")), "{line}");
    ensure!(screen.contains("lost nothing") && screen.contains("overhead "), "{screen}");

    // A small terminal shows fewer columns, which fit.
    terminal.resize((80, 24))?;
    let screen = terminal.until("80 columns", |screen| {
        screen.contains("qQuit") && !screen.contains("INTERVAL") && line_of(screen, pid).is_some()
    })?;
    let line = line_of(&screen, pid).context("its line")?.join(" ");
    ensure!(line.contains(&held(process)?.join(" ")), "{screen}");

    terminal.keys("\r")?;
    terminal.keys("www")?;
    let screen = terminal.until("its functions", |screen| {
        screen.contains("since attach") && screen.contains(" alloc_small ")
    })?;
    ensure!(screen.contains(": functions, ") && screen.contains(" grow_buffer "), "{screen}");
    terminal.keys("\\grow_b\r")?;
    terminal.until("a filter", |screen| {
        screen.contains("only \"grow_b\"") && !screen.contains("alloc_small")
    })?;
    terminal.keys("\r")?;
    terminal.until("stacks", |screen| screen.contains("stacks through grow_buffer"))?;
    terminal.keys("\r")?;
    let screen = terminal.until("a stack", |screen| screen.contains("the allocating one first"))?;
    ensure!(
        screen.contains("   0 realloc") && screen.contains(" grow_buffer  truth.c:"),
        "{screen}"
    );
    terminal.keys("q")?;
    ensure!(terminal.code()? == 0);
    terminal.check_restored()?;
    workload.exit()?;
    daemon.stop()
}

#[test]
fn a_frozen_screen_stays_unchanged() -> Result<()> {
    let (mut workload, daemon) = at_rest()?;
    let pid = workload.pid();
    let mut terminal = top(&daemon.address, (80, 24), &["--period", "100ms", "--kind", "live"])?;
    terminal.until("the process", |screen| line_of(screen, pid).is_some())?;
    terminal.keys("z")?;
    terminal.until("FROZEN", |screen| screen.contains("FROZEN"))?;
    workload.exit()?;
    // The daemon has seen the exit. The paused screen has not changed.
    daemon.profile_where("the exit", "live", &[], |of| of.totals.inuse_space.value == 0.0)?;
    ensure!(line_of(&terminal.text(), pid).is_some(), "{}", terminal.text());
    terminal.keys("z")?;
    terminal.until("that it is gone", |screen| line_of(screen, pid).is_none())?;
    terminal.keys("\x1b[21~")?; // F10
    ensure!(terminal.code()? == 0);
    terminal.check_restored()?;
    daemon.stop()
}

#[test]
fn top_reports_a_dead_daemon_and_waits_for_the_next() -> Result<()> {
    let (workload, daemon) = at_rest()?;
    let pid = workload.pid();
    let place = tempfile::tempdir()?;
    let address = format!("unix:{}", place.path().join("socket").display());
    daemon.stop()?;
    let first = Daemon::start_at(&address, &[pid], &[])?;
    let mut terminal = top(&address, (80, 24), &["--period", "100ms"])?;
    terminal.until("the process", |screen| line_of(screen, pid).is_some())?;
    drop(first);
    let screen = terminal.until("that it is lost", |screen| screen.contains("no answer for "))?;
    ensure!(line_of(&screen, pid).is_some(), "the last numbers are gone:\n{screen}");
    // A killed samplerd leaves its socket behind.
    let left = place.path().join("socket");
    if left.exists() {
        std::fs::remove_file(left)?;
    }
    let second = Daemon::start_at(&address, &[pid], &[])?;
    terminal.until("the next one", |screen| !screen.contains("no answer for "))?;
    kill(terminal.pid()?, 15)?;
    ensure!(terminal.code()? == 143, "SIGTERM ends it as a shell expects");
    terminal.check_restored()?;
    drop(second);
    Ok(())
}

#[test]
fn top_without_a_terminal_is_refused_in_one_line() -> Result<()> {
    let refused = finish(Command::new(build::program("sampler")?).args(["top"]))?;
    let said = &refused.stderr;
    ensure!(refused.code() == 1 && said.lines().count() == 1, "{said}");
    ensure!(said.contains("top needs a terminal"), "{said}");
    let refused = finish(Command::new(build::program("sampler")?).args(["top", "--json"]))?;
    ensure!(refused.code() == 2, "{}", refused.stderr);
    let mut nobody = top("unix:/nonexistent/socket", (80, 24), &[])?;
    ensure!(nobody.code()? == 1);
    nobody.until("why", |screen| screen.contains("no samplerd listens there"))?;
    nobody.check_restored()
}
