//! Flame graphs of a real process: each frame has what the program reports. Every allocation is
//! sampled.

use anyhow::{Context, Result, ensure};
use roxmltree::Document;
use sampler_common::units::human_bytes;
use sampler_tests::{Daemon, Profile, Truth, Workload, wait};
use std::time::Duration;

/// A frame of a picture.
struct Frame {
    /// Start, value, and the ends of the value's interval.
    numbers: [f64; 4],
    title: String,
    /// Class of the frame's box, which is its color.
    color: String,
}

/// The only frame of `function`.
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

/// The picture that `sampler` draws.
fn drawn(daemon: &Daemon, arguments: &[&str]) -> Result<String> {
    Ok(String::from_utf8(daemon.sampler(arguments)?.success("sampler")?.stdout)?)
}

/// Checks that the frame has exactly `bytes`, without uncertainty.
fn says(of: &Frame, bytes: u64) -> Result<()> {
    let (own, text) = (bytes as f64, human_bytes(bytes as f64));
    ensure!(of.numbers[1..] == [own; 3], "{:?}, not {own}", of.numbers);
    ensure!(of.title.contains(&format!("{text} ±0.0% ({text} … {text})")), "{}", of.title);
    Ok(())
}

/// A program after two phases, its truth, and the profile after each phase.
fn two_phases() -> Result<(Workload, Daemon, Truth, [Profile; 2])> {
    let mut workload = Workload::start("windows.c", &[])?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "1"])?;
    let mut phase = || {
        workload.go()?;
        anyhow::Ok((workload.truth()?, daemon.profile("alloc", &[])?))
    };
    let (_, before) = phase()?;
    // The later of two profiles has to end later by more than the clocks differ.
    wait::pass(Duration::from_millis(200));
    let (truth, after) = phase()?;
    Ok((workload, daemon, truth, [before, after]))
}

#[test]
fn frames_have_the_totals_of_the_program() -> Result<()> {
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
        // The byte-seconds of held blocks grow with time: at least by their bytes for each second
        // of the pause.
        let grown = frame(&later, name)?.numbers[1] - frame(&earlier, name)?.numbers[1];
        ensure!(grown >= 0.05 * of.live.bytes as f64 - 2.0, "{name}: grown by {grown}");
    }
    // Growth between two profiles is certain, and the rest has not changed.
    let directory = tempfile::tempdir()?;
    let [a, b] = ["a.json", "b.json"].map(|name| directory.path().join(name));
    for (path, profile) in [&a, &b].into_iter().zip(&profiles) {
        std::fs::write(path, profile.json.to_string())?;
    }
    let [a, b] = [a, b].map(|path| path.display().to_string());
    let difference = drawn(&daemon, &["diff", &a, &b, "--svg"])?;
    let (old, new) = (frame(&difference, "first")?, frame(&difference, "second")?);
    ensure!(old.color == "same" && old.title.contains("nothing seen in between"), "{}", old.title);
    let added = format!("+{}", human_bytes(truth.function("second")?.alloc.bytes as f64));
    ensure!(new.color == "up" && new.title.contains(&added), "{} {}", new.color, new.title);
    // The program has a third phase before it ends.
    workload.go()?;
    workload.truth()?;
    workload.exit()?;
    daemon.stop()
}
