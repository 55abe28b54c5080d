//! The built `sampler` against a mock samplerd: every verb and format, and every mistake.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod diff;
mod estimators;
mod formats;
mod leaks;
mod manual;
mod many;
mod mistakes;
mod mock;
mod output;
mod plan;
mod ps;
mod recorded;

use mock::{Mock, PID};
use serde_json::Value;
use std::process::{Command, Stdio};

const SAMPLER: &str = env!("CARGO_BIN_EXE_sampler");

struct Ran {
    code: i32,
    stdout: Vec<u8>,
    stderr: String,
}

impl Ran {
    fn text(&self) -> &str {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""));
        std::str::from_utf8(&self.stdout).unwrap()
    }

    fn json(&self) -> Value {
        assert_eq!(self.text().matches('\n').count(), 1);
        serde_json::from_str(self.text()).unwrap()
    }

    /// The one line of a failure.
    fn failure(&self, code: i32) -> &str {
        assert_eq!(self.code, code, "{}", self.stderr);
        assert!(self.stdout.is_empty());
        if code == 1 {
            assert_eq!(self.stderr.matches('\n').count(), 1, "{}", self.stderr);
            assert!(self.stderr.starts_with("sampler: "), "{}", self.stderr);
        }
        assert!(self.stderr.lines().count() <= 6, "{}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        &self.stderr
    }
}

fn command() -> Command {
    let mut command = Command::new(SAMPLER);
    for name in ["SAMPLER_CONNECT", "COLUMNS", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs `sampler --connect ADDRESS ARGUMENTS`.
fn sampler(address: &str, arguments: &str) -> Ran {
    ran(command().args(["--connect", address]).args(arguments.split_whitespace()))
}

#[test]
fn status_prints_the_numbers_of_the_daemon() {
    let mock = Mock::unix();
    let status = sampler(&mock.address, "status --json").json();
    assert_eq!(status["probe_engine"], "session");
    assert_eq!(status["outcomes"]["sampled"], 12_345);
    assert_eq!(status["outcomes"]["failed"], 0);
    assert_eq!(status["max_samples_per_second"], 20_000.0);
    assert!(status["max_samples_per_process"].is_null());
    assert_eq!(status["intervals"][0]["pressure"]["limit"], "process");
    assert_eq!(status["intervals"][0]["pressure"]["ring_raises"], 70);
    assert_eq!(status["intervals"][0]["interval_bytes"], 524_288);
    assert_eq!(status["probes"][1]["symbols"][0], "free");
    assert_eq!(status["tables"]["stacks"]["bound"], 65_536);
    assert_eq!(status["process_events"]["lost"], 5);

    assert_eq!(
        (&status["coverage"][0]["processes"], &status["unseen_calls"]),
        (&7.into(), &5.into())
    );
    assert_eq!(status["excluded"][1]["criterion"], "comm:post*");

    let text = sampler(&mock.address, "status");
    let text = text.text();
    for words in [
        "samplerd 0.1.0, pid 812, up 1 m 05 s",
        "session probes, dwarf unwinding from 32.0 KiB snapshots",
        "43 of 262,144 sampled blocks",
        "one sample per 512KiB: pid 4121",
        "events    9,876 of processes, 5 lost (a survey of all processes repairs it)",
        "12,345  sampled",
        "limits    20,000 samples/s in all (--max-samples-per-second)",
        "raised    pid 4121: 11 times the interval that was asked for, above its limit",
        "push rbx",
        "single-stepped",
        "pid:1 (init), comm:post* 12 processes; 1,234 calls of theirs",
        "5 calls of processes that found no slot free (raise --max-processes)",
    ] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn profile_prints_every_format() {
    let mock = Mock::unix();
    let text = sampler(&mock.address, "profile");
    assert!(text.text().contains("load_file") && text.text().contains("load.c:12"));
    assert!(text.text().contains("note      a note"));
    assert!(!text.text().contains('\u{1b}'));
    assert!(text.text().lines().all(|line| line.chars().count() <= 80), "{}", text.text());

    let folded = sampler(&mock.address, "profile --format folded");
    let (stack, bytes) = folded.text().lines().next().unwrap().rsplit_once(' ').unwrap();
    assert_eq!(stack, "main;load_file;malloc");
    let bytes: f64 = bytes.parse().unwrap();

    let json =
        sampler(&mock.address, &format!("profile --json --pid {PID} --confidence 0.99")).json();
    assert_eq!(json["kind"], "alloc");
    assert_eq!(json["confidence"], 0.99);
    assert_eq!(json["stacks"][0]["frames"], serde_json::json!(["main", "load_file", "malloc"]));
    assert_eq!(json["stacks"][1]["frames"][1], "evil\n;\u{1b}[2Jname");
    assert_eq!(json["stacks"][0]["alloc_space"]["value"].as_f64().unwrap().round(), bytes);
    assert_eq!(json["lost"]["ring_full"]["samples"], 4);
    let same =
        sampler(&mock.address, &format!("profile --format json --pid {PID} --confidence 0.99"));
    assert_eq!(same.json(), json);

    let live = sampler(&mock.address, "profile --kind live --json --top 1").json();
    assert_eq!((&live["kind"], &live["stacks_total"]), (&"live".into(), &2.into()));
    assert_eq!(live["stacks"].as_array().unwrap().len(), 1);

    let pprof = sampler(&mock.address, "profile --format pprof");
    assert_eq!((pprof.code, &pprof.stdout[..2]), (0, &b"\x1f\x8b"[..]));

    let jeprof = sampler(&mock.address, "profile --format jeprof");
    assert!(jeprof.text().starts_with("heap profile: "), "{}", jeprof.text());
    assert!(jeprof.text().contains("\nMAPPED_LIBRARIES:\n"), "{}", jeprof.text());
}

#[test]
fn top_cuts_the_table_but_not_its_sums() {
    let mock = Mock::unix();
    let all = sampler(&mock.address, "profile");
    assert!(
        all.text().contains("--stacks") && !all.text().contains("\n    malloc"),
        "{}",
        all.text()
    );
    let one = sampler(&mock.address, "profile --top 1 --stacks");
    let row = |text: &str| text.lines().find(|line| line.contains("load_file ")).map(str::to_owned);
    assert_eq!(
        row(all.text()).unwrap().split_whitespace().next(),
        row(one.text()).unwrap().split_whitespace().next()
    );
    assert!(
        one.text().contains("more functions") && one.text().contains("1 more stack "),
        "{}",
        one.text()
    );
}

#[test]
fn watch_prints_a_profile_each_period() {
    let mock = Mock::unix();
    let two = sampler(&mock.address, "watch --period 100ms --count 2");
    assert_eq!(two.text().matches("2026-11-20 13:07:37 UTC\nMemory allocated").count(), 2);
    let lines = sampler(&mock.address, "watch --period 0.1s --count 3 --json --kind live");
    for line in lines.text().lines() {
        assert_eq!(serde_json::from_str::<Value>(line).unwrap()["kind"], "live");
    }
    assert_eq!(lines.text().lines().count(), 3);
    // The stream of the mock ends after three.
    let ended = sampler(&mock.address, "watch --period 100ms --json");
    assert_eq!((ended.code, ended.stdout.iter().filter(|byte| **byte == b'\n').count()), (1, 3));
    assert!(ended.stderr.ends_with("stopped\n"), "{}", ended.stderr);
}

#[test]
fn set_changes_interval_and_strategy() {
    let mock = Mock::unix();
    let text = sampler(&mock.address, "set --interval 64k");
    assert_eq!(text.text(), "pid 4121: one sample per 64KiB\n");
    let json = sampler(&mock.address, "set --interval 0.5MiB --pid 7 --pid 8 --json").json();
    let second = &json["intervals"][1];
    assert_eq!((&second["pid"], &second["interval_bytes"]), (&8.into(), &524_288.into()));
    let text = sampler(&mock.address, "set --strategy bernoulli --one-in 1000");
    assert_eq!(text.text(), "pid 4121: one sample in 1000 allocations, bernoulli\n");
    let json = sampler(&mock.address, "set --samples-per-second 50 --json").json();
    assert_eq!(json["intervals"][0]["samples_per_second"], 50.0);
}

#[test]
fn help_names_every_verb() {
    let help = ran(command().arg("--help"));
    for verb in ["status", "ps", "profile", "watch", "set", "--connect", "--json"] {
        assert!(help.text().contains(verb), "{verb}");
    }
}
