//! Processes are chosen by name for `sampler set` and `sampler diff` too, not by pid alone.

use anyhow::{Context, Result, ensure};
use sampler_tests::{Daemon, Profile, Workload, build};
use serde_json::Value;
use std::fs;

/// Two copies of a workload under names of the test's own, which have allocated, and their daemon.
struct Two {
    alpha: Workload,
    beta: Workload,
    daemon: Daemon,
    programs: tempfile::TempDir,
}

fn two() -> Result<Two> {
    build::require_root()?;
    let programs = tempfile::tempdir()?;
    let start = |name: &str, seed: &str| {
        let path = programs.path().join(name);
        fs::copy(build::compile("truth.c", &[])?, &path).context("copy the program")?;
        Workload::start_program(&path, &[seed, "1", "32768"])
    };
    let [mut alpha, mut beta] = [start("sel-alpha", "4001")?, start("sel-beta", "4002")?];
    let daemon = Daemon::start(&[alpha.pid(), beta.pid()], &["--interval", "32KiB"])?;
    for workload in [&mut alpha, &mut beta] {
        workload.go()?;
        workload.truth()?;
    }
    Ok(Two { alpha, beta, daemon, programs })
}

fn json(daemon: &Daemon, arguments: &[&str]) -> Result<Value> {
    let out = daemon.sampler(&[arguments, &["--json"]].concat())?.success("sampler")?;
    serde_json::from_slice(&out.stdout).with_context(|| format!("parse {arguments:?}"))
}

impl Two {
    fn refused(&self, arguments: &[&str], words: &str) -> Result<()> {
        let refused = self.daemon.sampler(arguments)?;
        let said = &refused.stderr;
        let is_one = refused.code() == 1 && said.lines().count() == 1;
        ensure!(is_one && said.contains(words), "{arguments:?}: {}: {said}", refused.code());
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        self.alpha.exit()?;
        self.beta.exit()?;
        self.daemon.stop()
    }
}

#[test]
fn sampling_is_set_by_name() -> Result<()> {
    let two = two()?;
    let set = json(&two.daemon, &["set", "--comm", "sel-al*", "--interval", "64KiB"])?;
    let [set] = set["intervals"].as_array().map_or(&[][..], Vec::as_slice) else {
        anyhow::bail!("one process, not {set}");
    };
    ensure!(set["pid"] == two.alpha.pid() && set["interval_bytes"] == 64 << 10, "{set}");
    let listed = json(&two.daemon, &["ps"])?;
    for (pid, interval) in [(two.alpha.pid(), 64 << 10), (two.beta.pid(), 32 << 10)] {
        let mut all = listed["processes"].as_array().into_iter().flatten();
        let of = all.find(|of| of["pid"] == pid).with_context(|| format!("{pid}: {listed}"))?;
        ensure!(of["interval_bytes"] == interval, "{pid}: {of} is not {interval}");
    }
    two.refused(
        &["set", "--comm", "sel-gamma", "--interval", "1MiB"],
        "comm:sel-gamma: no process",
    )?;
    let beta = two.beta.pid().to_string();
    let both = ["set", "--pid", &beta, "--exe", "sel-alpha", "--interval", "1MiB"];
    two.refused(&both, "exe:sel-alpha: no process that runs is that")?;
    two.end()
}

#[test]
fn profiles_are_compared_by_name() -> Result<()> {
    let two = two()?;
    let sum = |name: &str| -> Result<f64> {
        Ok(two.daemon.profile("alloc", &["--comm", name])?.totals.alloc_space.value)
    };
    let (alpha, beta) = (sum("sel-alpha")?, sum("sel-beta")?);
    let value = |arguments: &[&str]| -> Result<f64> {
        let diff = json(&two.daemon, &[&["diff"], arguments].concat())?;
        let value = diff["totals"]["space"]["value"].as_f64();
        value.with_context(|| format!("{arguments:?}: no value in {diff}"))
    };
    let is = |arguments: &[&str], expected: f64| -> Result<()> {
        let value = value(arguments)?;
        ensure!(
            (value - expected).abs() <= 1e-9 * (alpha + beta),
            "{arguments:?}: {value}, {expected}"
        );
        Ok(())
    };
    is(&["comm:sel-alpha", "exe:sel-b*"], beta - alpha)?;
    let beta_itself = format!("pid:{}", two.beta.pid());
    two.refused(&["diff", "comm:sel-*", &beta_itself], "comm sel-* and pid")?;
    let saved = two.programs.path().join("saved.json");
    let saved = saved.to_str().context("a path")?;
    let save = ["profile", "--comm", "sel-alpha", "--json", "-o", saved];
    two.daemon.sampler(&save)?.success("sampler profile")?;
    // All allocations are recent: an hour ago there were none.
    is(&["--comm", "sel-beta", saved, "1h"], beta - alpha)?;
    two.refused(&["diff", saved, saved, "--comm", "sel-beta"], "both profiles were saved")?;
    two.refused(&["diff", saved, "pid:1", "--comm", "x"], "pid 1: is not all processes")?;
    two.refused(&["diff", saved, "comm:sel-gamma"], "no profiled process is that")?;
    two.end()
}

#[test]
fn stacks_and_frames_are_chosen_by_name() -> Result<()> {
    let two = two()?;
    let choices: [&[&str]; 3] =
        [&[], &["--focus", "^alloc_(small|zeroed)$"], &["--hide", "^alloc_small$"]];
    let [whole, focused, hidden] = choices.map(|options| two.daemon.profile("alloc", options));
    let (whole, focused, hidden) = (whole?, focused?, hidden?);
    let has = |of: &Profile, name: &str| of.stacks_of(name).next().is_some();
    let bytes = |of: &Profile| -> f64 {
        of.stacks.iter().map(|stack| stack.quantities.alloc_space.value).sum()
    };
    let of = |name| -> f64 {
        whole.stacks_of(name).map(|stack| stack.quantities.alloc_space.value).sum()
    };
    let expected = of("alloc_small") + of("alloc_zeroed");
    let equal = |a: f64, b: f64| (a - b).abs() <= 1e-9 * bytes(&whole);
    ensure!(expected > 0.0 && equal(bytes(&focused), expected), "{}", focused.json);
    ensure!(!has(&focused, "grow_buffer") && has(&whole, "grow_buffer"));
    ensure!(focused.totals.alloc_space.value == whole.totals.alloc_space.value);
    ensure!(!has(&hidden, "alloc_small") && has(&hidden, "alloc_zeroed"));
    ensure!(equal(bytes(&hidden), bytes(&whole)), "hidden frames lose bytes");

    let text = |options: &[&str]| -> Result<String> {
        let out = two.daemon.sampler(&[&["profile"], options].concat())?.success("profile")?;
        Ok(String::from_utf8(out.stdout)?)
    };
    let none = text(&["--focus", "no_such_function"])?;
    ensure!(none.contains("no stack matches no_such_function"), "{none}");
    let some = text(&["--focus", "grow_buffer", "--top", "3"])?;
    ensure!(some.contains("only stacks with grow_buffer: ") && some.contains('±'), "{some}");
    ensure!(!some.contains("alloc_small"), "{some}");

    let svg = |options: &[&str]| -> Result<String> {
        let out = two.daemon.sampler(&[&["flamegraph"], options].concat())?.success("svg")?;
        Ok(String::from_utf8(out.stdout)?)
    };
    let picture = svg(&["--focus", "grow_buffer", "--hide", "libc"])?;
    ensure!(picture.contains("grow_buffer") && !picture.contains("alloc_small"), "{picture}");
    let wrong = two.daemon.sampler(&["profile", "--focus", "("])?;
    ensure!(wrong.code() == 2 && wrong.stderr.contains("unclosed group"), "{}", wrong.stderr);
    two.end()
}
