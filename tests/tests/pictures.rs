//! Flame graphs of a real process: what a frame says is what the program says it did. Every allocation is sampled.

use anyhow::{Context, Result, ensure};
use roxmltree::Document;
use sampler_common::units::human_bytes;
use sampler_tests::{Daemon, Profile, Truth, Workload, wait};
use std::time::Duration;

/// A frame of a picture.
struct Frame {
    /// Start, value, and the ends of its interval.
    numbers: [f64; 4],
    title: String,
    /// Class of its box, which is its color.
    color: String,
}

/// The only frame of that function.
fn frame(svg: &str, function: &str) -> Result<Frame> {
    let document = Document::parse(svg)?;
    let mut found = document.descendants().filter_map(|node| {
        let [first, second] = [node.first_element_child()?, node.children().nth(1)?];
        let title = first.text().filter(|_| first.has_tag_name("title"))?;
        let is_named = title.lines().next() == Some(function);
        let numbers = node.attribute("data-v").filter(|_| is_named)?;
        Some((numbers.to_owned(), title.to_owned(), second.attribute("class")?.to_owned()))
    });
    let (numbers, title, color) = found.next().with_context(|| format!("no frame {function}"))?;
    ensure!(found.next().is_none(), "{function} is there twice");
    let all: Vec<f64> = numbers.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    Ok(Frame { numbers: all.try_into().ok().context("four numbers")?, title, color })
}

/// What `sampler` draws.
fn drawn(daemon: &Daemon, arguments: &[&str]) -> Result<String> {
    Ok(String::from_utf8(daemon.sampler(arguments)?.success("sampler")?.stdout)?)
}

/// The bytes of a function are these, and certain.
fn says(of: &Frame, bytes: u64) -> Result<()> {
    let (own, text) = (bytes as f64, human_bytes(bytes as f64));
    ensure!(of.numbers[1..] == [own; 3], "{:?}, not {own}", of.numbers);
    ensure!(of.title.contains(&format!("{text} ±0.0% ({text} … {text})")), "{}", of.title);
    Ok(())
}

/// A program after two phases, what it has done by then, and the profiles behind each.
fn two_phases() -> Result<(Workload, Daemon, Truth, [Profile; 2])> {
    let mut workload = Workload::start("windows.c", &[])?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "1"])?;
    let mut phase = || {
        workload.go()?;
        anyhow::Ok((workload.truth()?, daemon.profile("alloc", &[])?))
    };
    let (_, before) = phase()?;
    // Of two profiles the later one has to end later by more than clocks differ.
    wait::pass(Duration::from_millis(200));
    let (truth, after) = phase()?;
    Ok((workload, daemon, truth, [before, after]))
}

#[test]
fn frames_say_what_the_program_did() -> Result<()> {
    let (mut workload, daemon, truth, profiles) = two_phases()?;
    let (alloc, live) =
        (drawn(&daemon, &["flamegraph"])?, drawn(&daemon, &["flamegraph", "--kind", "live"])?);
    let space_time = ["flamegraph", "--measure", "byte-seconds"];
    let (earlier, later) = (drawn(&daemon, &space_time)?, {
        wait::pass(Duration::from_millis(50));
        drawn(&daemon, &space_time)?
    });
    for name in ["first", "second"] {
        let of = truth.function(name)?;
        says(&frame(&alloc, name)?, of.alloc.bytes)?;
        says(&frame(&live, name)?, of.live.bytes)?;
        // What is held costs the more the longer it is: by its bytes for each second at least of what was waited.
        let grown = frame(&later, name)?.numbers[1] - frame(&earlier, name)?.numbers[1];
        ensure!(grown >= 0.05 * of.live.bytes as f64 - 2.0, "{name}: grown by {grown}");
    }
    // What came in between two profiles is more for certain, and the rest has not changed.
    let directory = tempfile::tempdir()?;
    let [a, b] = ["a.json", "b.json"].map(|name| directory.path().join(name));
    for (path, profile) in [&a, &b].into_iter().zip(&profiles) {
        std::fs::write(path, profile.json.to_string())?;
    }
    let [a, b] = [a, b].map(|path| path.display().to_string());
    let difference = drawn(&daemon, &["diff", &a, &b, "--svg"])?;
    let (old, new) = (frame(&difference, "first")?, frame(&difference, "second")?);
    ensure!(old.color == "same" && old.title.contains("nothing seen in between"), "{}", old.title);
    let came = format!("+{}", human_bytes(truth.function("second")?.alloc.bytes as f64));
    ensure!(new.color == "up" && new.title.contains(&came), "{} {}", new.color, new.title);
    // It has a third phase before it ends.
    workload.go()?;
    workload.truth()?;
    workload.exit()?;
    daemon.stop()
}
