//! Resource use of a process: processor time, memory.

use anyhow::{Context, Result, ensure};
use std::fs;

/// Default size of samplerd's ring buffer.
const RING_BYTES: u64 = 16 << 20;

/// User plus system time of a process. The sum is exact to a clock tick (10 ms), by the scheduler's
/// clock.
///
/// # Errors
/// If the process is gone.
pub fn processor_seconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    // The name may contain anything. Fields 14 and 15 are the 12th and 13th after its closing
    // bracket.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_ascii_whitespace());
    let ticks = fields.into_iter().flatten().skip(11).take(2).map(str::parse::<f64>);
    let ticks: Vec<f64> =
        ticks.collect::<Result<_, _>>().with_context(|| format!("parse {path}"))?;
    ensure!(ticks.len() == 2, "{path} is too short");
    // USER_HZ is 100 on every Linux that the tests run on.
    Ok(ticks.iter().sum::<f64>() / 100.0)
}

/// Number of open descriptors of a process.
///
/// # Errors
/// If the process is gone.
pub fn descriptors(pid: u32) -> Result<usize> {
    let path = format!("/proc/{pid}/fd");
    Ok(fs::read_dir(&path).with_context(|| format!("read {path}"))?.count())
}

/// Resident bytes of samplerd without its ring.
///
/// # Errors
/// If the process is gone.
pub fn resident_without_ring(pid: u32) -> Result<u64> {
    let (all, ring) = resident(pid)?;
    Ok(all - ring)
}

/// Resident bytes of a process, and how many of them belong to the two mappings of samplerd's ring.
///
/// # Errors
/// If the process is gone.
pub fn resident(pid: u32) -> Result<(u64, u64)> {
    let path = format!("/proc/{pid}/smaps");
    let smaps = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let (mut all, mut ring, mut is_ring) = (0, 0, false);
    for line in smaps.lines() {
        let kib = |text: &str| text.trim().trim_end_matches(" kB").parse::<u64>().ok();
        if let Some(size) = line.strip_prefix("Rss:").and_then(kib) {
            all += size << 10;
            ring += if is_ring { size << 10 } else { 0 };
        } else if let Some((range, rest)) = line.split_once(' ')
            && let Some((start, end)) = range.split_once('-')
        {
            let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
            let size = number(end).saturating_sub(number(start));
            // The pages after the header are mapped twice, one copy after the other.
            is_ring = rest.ends_with("anon_inode:bpf-map") && size >= 2 * RING_BYTES;
        }
    }
    Ok((all, ring))
}
