//! `sampler diff`: saved profiles, processes, and what cannot be compared.

use super::mock::{Mock, PID};
use super::{Ran, command, ran, sampler};
use serde_json::Value;

/// A saved profile of the mock, changed.
fn saved(mock: &Mock, name: &str, change: impl Fn(&mut Value)) -> String {
    let mut profile = sampler(&mock.address, "profile --json").json();
    change(&mut profile);
    let path = mock.path(name);
    std::fs::write(&path, profile.to_string()).unwrap();
    path.display().to_string()
}

/// An hour earlier, so that no sample is shared.
fn earlier(profile: &mut Value) {
    profile["time_unix_ns"] =
        (profile["time_unix_ns"].as_u64().unwrap() - 3_600_000_000_000).into();
}

/// Without a samplerd.
fn files(arguments: &str) -> Ran {
    ran(command().args(arguments.split_whitespace()))
}

#[test]
fn saved_profiles_need_no_samplerd() {
    let mock = Mock::unix();
    let before = saved(&mock, "before.json", earlier);
    let after = saved(&mock, "after.json", |profile| {
        profile["stacks"].as_array_mut().unwrap().remove(0);
        profile["stacks_total"] = 1.into();
    });
    let (same, gone) = (
        files(&format!("diff {before} {before} --independent --json")),
        files(&format!("diff {before} {after} --json")),
    );
    let (same, gone) = (same.json(), gone.json());
    assert_eq!((&same["significant"], &same["samples"]), (&0.into(), &"independent".into()));
    assert_eq!(same["stacks"][0]["space"]["value"], 0.0);
    let first = &gone["stacks"][0];
    assert_eq!((&gone["significant"], &first["significant"]), (&1.into(), &true.into()));
    assert_eq!(first["frames"], serde_json::json!(["main", "load_file", "malloc"]));
    assert!(first["space"]["high"].as_f64().unwrap() < 0.0, "{first}");
    assert!(first["space"]["p_adjusted"].as_f64().unwrap() < 0.05, "{first}");

    let text = files(&format!("diff {before} {after}"));
    assert!(text.text().contains("load_file ← main"), "{}", text.text());
    assert!(text.text().contains("1 of 2 tested stacks"), "{}", text.text());
    assert!(text.text().lines().all(|line| line.chars().count() <= 80), "{}", text.text());
}

#[test]
fn processes_are_compared_with_saved_profiles() {
    let mock = Mock::unix();
    let before = saved(&mock, "before.json", earlier);
    let of = sampler(&mock.address, &format!("diff {before} pid:{PID} --json")).json();
    assert_eq!((&of["b"]["name"], &of["kind"]), (&"pid 4121".into(), &"alloc".into()));
    assert_eq!(of["totals"]["space"]["value"], 0.0);
    let live =
        sampler(&mock.address, &format!("diff pid:{PID} pid:{PID} --kind live --json")).json();
    assert_eq!((&live["kind"], &live["samples"]), (&"live".into(), &"shared".into()));
}

#[test]
fn incomparable_profiles_are_refused_in_one_line() {
    let mock = Mock::unix();
    let before = saved(&mock, "before.json", earlier);
    let shifted = saved(&mock, "shifted.json", |profile| {
        profile["time_unix_ns"] = (profile["time_unix_ns"].as_u64().unwrap() + 500_000_000).into();
    });
    let now = saved(&mock, "now.json", |_| ());
    let cut = saved(&mock, "cut.json", |profile| profile["stacks_total"] = 9.into());
    std::fs::write(mock.path("broken.json"), "{\"kind\":").unwrap();
    let broken = mock.path("broken.json").display().to_string();
    for (arguments, words) in [
        (
            format!("{before} /nowhere.json"),
            "read /nowhere.json: no such file or directory (give a saved",
        ),
        (format!("{before} {broken}"), "broken.json: no profile in json: EOF"),
        (format!("{before} {cut}"), "holds 2 of 9 stacks (make it without --top)"),
        (format!("{now} {shifted}"), "share samples: both are of pid 4121"),
        (format!("{before} pid:{PID} --kind live"), "give two of one kind"),
    ] {
        let ran = sampler(&mock.address, &format!("diff {arguments}"));
        assert!(ran.failure(1).contains(words), "{arguments}: {}", ran.stderr);
    }
    let none = sampler("unix:/nowhere.sock", &format!("diff {before} pid:1"));
    assert!(none.failure(1).contains("no samplerd listens there"));
    for arguments in ["diff a.json", "diff a.json pid:0", "diff a b --confidence 1"] {
        files(arguments).failure(2);
    }
}
