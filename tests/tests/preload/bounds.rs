//! Cost of the library for a process, and its behaviour at its bounds.

use anyhow::{Context, Result, ensure};
use sampler_daemon::inspect::process::preloaded::Preloaded;
use sampler_tests::{Daemon, preload};
use std::fs::{self, File};

/// Slots of the table in sampler-preload.
const SLOTS: u64 = 349_184;

/// Bytes of the library that are private to the process: pages of its image that were written.
fn private_bytes(pid: u32) -> Result<u64> {
    let numbers = mapped(pid)?.into_iter().filter(|(name, _)| name == "Private_Dirty");
    numbers.map(|(_, value)| kibibytes(&value)).sum()
}

/// The lines of `smaps` (proc(5)) for the mappings of the library.
fn mapped(pid: u32) -> Result<Vec<(String, String)>> {
    let library = preload::library()?;
    let name = library.file_name().and_then(|name| name.to_str()).context("its name")?;
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).context("read smaps")?;
    let (mut is_ours, mut follows, mut lines) = (false, 0, Vec::new());
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if first.contains('-') && !first.ends_with(':') {
            // Memory without a name that follows the last page of the file belongs to the library,
            // too.
            let start = u64::from_str_radix(first.split('-').next().unwrap_or_default(), 16)?;
            let end = u64::from_str_radix(first.split('-').nth(1).unwrap_or_default(), 16)?;
            let has_name = line.split_whitespace().count() > 5;
            is_ours = line.ends_with(name) || (!has_name && start == follows);
            follows = if is_ours { end } else { 0 };
        } else if let Some((name, value)) = line.split_once(':').filter(|_| is_ours) {
            lines.push((name.to_owned(), value.trim().to_owned()));
        }
    }
    Ok(lines)
}

/// Bytes of a value such as `8 kB`.
fn kibibytes(value: &str) -> Result<u64> {
    let number = value.split(' ').next().unwrap_or_default();
    Ok(number.parse::<u64>().with_context(|| value.to_owned())? * 1024)
}

/// The tables do not get pages of two megabytes, even where that is the rule for all memory.
#[test]
fn tables_get_no_huge_pages() -> Result<()> {
    let mut workload = preload::workload("edges.c", &["keep", "1"], 1)?;
    let (mut size, mut sum) = (0, 0);
    for (name, value) in mapped(workload.pid())? {
        match name.as_str() {
            "Size" => size = kibibytes(&value)?,
            // MADV_NOHUGEPAGE
            "VmFlags" if value.split(' ').any(|flag| flag == "nh") => sum += size,
            _ => {}
        }
    }
    println!("{sum} bytes");
    ensure!(sum >= 8 * SLOTS, "{sum} bytes");
    workload.go()?;
    workload.truth()?;
    workload.exit()
}

/// With 10,000 live samples the library uses at most 1 MiB.
#[test]
fn memory_is_bounded() -> Result<()> {
    let mut workload = preload::workload("edges.c", &["keep", "10000"], 1)?;
    let daemon = Daemon::start(&[workload.pid()], &["--ring", "256MiB"])?;
    let before = private_bytes(workload.pid())?;
    workload.go()?;
    workload.truth()?;
    ensure!(daemon.profile("live", &[])?.samples >= 9_900);
    let after = private_bytes(workload.pid())?;
    println!("{before} bytes before, {after} bytes with 10,000 live samples");
    ensure!(before < 128 << 10 && before < after && after <= 1 << 20, "{before} … {after} bytes");
    workload.exit()?;
    daemon.stop()
}

/// More live samples than the library's table holds. Each is sent as an allocation, held bytes are
/// reported as a lower bound, and a counter has the number of blocks without a slot.
#[test]
fn a_full_table_is_counted() -> Result<()> {
    const BLOCKS: u64 = 400_000;
    let mut workload = preload::workload("edges.c", &["keep", &BLOCKS.to_string()], 1)?;
    let daemon = Daemon::start(&[workload.pid()], &[])?;
    // The library may send as many samples a second as it can.
    let path = preload::library()?;
    let library = Preloaded::find(&File::open(&path)?).context("it is ours")?;
    library.block(workload.pid(), &path.display().to_string())?.set_period(1, 0)?;
    workload.go()?;
    workload.truth()?;
    let full = daemon.outcome("library_full")?;
    ensure!((BLOCKS - SLOTS..BLOCKS).contains(&full), "{full} blocks found the table full");
    let notes = daemon.profile("live", &[])?.json["notes"].to_string();
    ensure!(notes.contains("held numbers are a lower bound"), "{notes}");
    let status = daemon.status()?;
    let probes = status["probes"].as_array().context("no probes")?;
    // Probes of one role in different functions have equal counts here.
    let hits = |role: &str| {
        let probe = probes.iter().find(|of| of["role"] == role);
        probe.and_then(|of| of["hits"]["value"].as_f64()).unwrap_or(0.0)
    };
    let [allocated, ended] = ["otel_alloc", "otel_free"].map(hits);
    ensure!((allocated / BLOCKS as f64 - 1.0).abs() < 0.05, "{allocated} of {BLOCKS} reported");
    ensure!((ended / full as f64 - 1.0).abs() < 0.1, "{ended} ended of {full}");
    workload.exit()?;
    daemon.stop()
}

/// Samples that cannot be sent are counted by a probe of their own, even the last ones of a process
/// that is killed.
#[test]
fn samples_that_were_not_reported_are_counted() -> Result<()> {
    for is_killed in [false, true] {
        let mut workload = preload::workload("edges.c", &["odd"], 1)?;
        let daemon = Daemon::start(&[workload.pid()], &[])?;
        let counts = || -> Result<Vec<u64>> {
            let all = ["library_empty", "library_failed", "library_full", "library_undelivered"];
            all.iter().map(|of| daemon.outcome(of)).collect()
        };
        let before = counts()?;
        ensure!(before == [0; 4], "{before:?} before anything has happened");
        workload.go()?;
        workload.truth()?;
        if is_killed {
            // The process dies before samplerd has read its counters.
            workload.child().signal(9)?;
            workload.wait()?;
        }
        // Three requests are for no bytes. Eleven ask for more than there is. One more is refused
        // because of its arguments.
        let counts = counts()?;
        ensure!(counts == [3, 11, 0, 0], "{counts:?}, killed: {is_killed}");
        if !is_killed {
            workload.exit()?;
        }
        daemon.stop()?;
    }
    Ok(())
}

/// Without a listener no block is kept.
#[test]
fn blocks_are_not_kept_without_a_listener() -> Result<()> {
    let mut workload = preload::workload("edges.c", &["keep", "10000"], 1)?;
    let before = private_bytes(workload.pid())?;
    workload.go()?;
    workload.truth()?;
    let after = private_bytes(workload.pid())?;
    ensure!(after == before, "{before} … {after} bytes");
    workload.exit()
}

/// The interval is changed while the process runs. From then on the library samples at the new
/// interval, and reports it.
#[test]
fn the_interval_can_be_set_from_outside() -> Result<()> {
    let mut workload = preload::workload("edges.c", &["keep", "9000"], 1 << 30)?;
    let daemon = Daemon::start(&[workload.pid()], &[])?;
    let set = daemon.sampler(&["set", "--interval", "64"])?.success("sampler set")?;
    let said = String::from_utf8(set.stdout)?;
    ensure!(said.contains("one sample per 64B, by the preloaded library"), "{said}");
    workload.go()?;
    let truth = workload.truth()?.total().alloc;
    let profile = daemon.profile("alloc", &["--confidence", "0.9999999"])?;
    // 64 bytes are sampled with 1 − (1 − 1/64)^64 = 0.635: 5,715 ± 46 of 9,000.
    ensure!((5_400..6_000).contains(&profile.samples), "{} samples", profile.samples);
    let space = &profile.totals.alloc_space;
    ensure!(space.low <= truth.bytes as f64 && truth.bytes as f64 <= space.high, "{space:?}");
    workload.exit()?;
    daemon.stop()
}
