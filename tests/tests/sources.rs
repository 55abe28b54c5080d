//! Sources of the samples of a process: listed for each process in `ps` and `status`, and in the
//! head of each profile.

use anyhow::{Context, Result, ensure};
use sampler_tests::{Daemon, Workload, build, preload, wait};
use serde_json::{Value, json};

/// The entry of a process in a list.
fn of(list: &Value, pid: u32) -> Result<Value> {
    let mut entries = list.as_array().into_iter().flatten();
    let entry = entries.find(|entry| entry["pid"] == pid);
    entry.cloned().with_context(|| format!("no {pid} in {list}"))
}

/// Checks that all outputs name these sources for the only process.
fn has(daemon: &Daemon, pid: u32, sources: &[&str]) -> Result<()> {
    let (expected, words) = (json!(sources), sources.join(" and "));
    // A library that is loaded late is found when the daemon next reads the process.
    wait::until(&format!("sources {words} in ps"), || {
        let found = of(&daemon.json("ps")?["processes"], pid)?["sources"].clone();
        Ok((found == expected).then_some(()))
    })?;
    let in_status = of(&daemon.status()?["intervals"], pid)?["sources"].clone();
    ensure!(in_status == expected, "status: {in_status}");
    let profile = daemon.profile("alloc", &[])?.json["sources"].clone();
    ensure!(profile == json!([{ "sources": sources, "processes": 1 }]), "profile: {profile}");
    for (verb, label) in [("ps", "source:"), ("status", "source"), ("profile", "source")] {
        let text = daemon.sampler(&[verb])?.success(verb)?.stdout;
        let text = String::from_utf8(text)?;
        let mut lines = text.lines().filter(|line| line.starts_with(label));
        let line = lines.next().with_context(|| text.clone())?;
        let is_named = verb == "profile" || line.contains(&format!("{pid}"));
        ensure!(line.contains(&words) && is_named, "{verb}: {line}");
    }
    Ok(())
}

/// Checks the sources of a workload that has allocated, under a samplerd with these arguments.
fn says(mut workload: Workload, arguments: &[&str], sources: &[&str]) -> Result<()> {
    let daemon = Daemon::start(&[workload.pid()], arguments)?;
    workload.go()?;
    workload.truth()?;
    has(&daemon, workload.pid(), sources).with_context(|| daemon.log())?;
    workload.exit()?;
    daemon.stop()
}

fn keeping() -> Result<Workload> {
    Workload::edge(&["keep", "1000"])
}

#[test]
fn probed_processes_have_the_source_uprobes() -> Result<()> {
    says(keeping()?, &[], &["uprobes"])
}

#[test]
fn windowed_processes_have_the_source_windows() -> Result<()> {
    says(keeping()?, &["--windows", "1%"], &["windows"])
}

#[test]
fn injected_processes_have_the_source_injected() -> Result<()> {
    says(keeping()?, &["--inject"], &["injected"])
}

#[test]
fn preloaded_processes_have_the_source_preloaded() -> Result<()> {
    says(preload::workload("edges.c", &["keep", "1000"], 4096)?, &[], &["preloaded"])
}

/// An arena that samples itself, in a program that also uses glibc's malloc. The second case probes
/// nothing else.
#[test]
fn both_sources_of_a_process_are_reported() -> Result<()> {
    let library = build::compile("otelarena.c", &["-shared", "-fPIC"])?;
    let library = library.to_str().context("path is not UTF-8")?;
    let workload = || Workload::start("otel.c", &[library, "early", "plain"]);
    says(workload()?, &[], &["uprobes", "otel_memory"])?;
    says(workload()?, &["--samplers-only"], &["otel_memory"])
}

/// A profile of several processes.
#[test]
fn a_profile_counts_processes_by_source() -> Result<()> {
    let mut all = [keeping()?, preload::workload("edges.c", &["keep", "1000"], 4096)?];
    let pids: Vec<u32> = all.iter().map(Workload::pid).collect();
    let daemon = Daemon::start(&pids, &[])?;
    for workload in &mut all {
        workload.go()?;
        workload.truth()?;
    }
    let expected = json!([
        { "sources": ["uprobes"], "processes": 1 },
        { "sources": ["preloaded"], "processes": 1 }
    ]);
    let profile = daemon.profile("alloc", &[])?.json["sources"].clone();
    ensure!(profile == expected, "profile: {profile}");
    let groups = daemon.sampler(&["ps", "--json", "--by", "comm"])?.success("ps")?.stdout;
    let groups: Value = serde_json::from_slice(&groups)?;
    ensure!(groups["groups"][0]["sources"] == expected, "{groups}");
    for workload in &mut all {
        workload.exit()?;
    }
    daemon.stop()
}
