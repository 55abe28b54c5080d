//! Parses sizes and durations as people write them.

use super::MAX_INTERVAL_BYTES;
use std::time::Duration;

/// The error for text that is no size or duration, or for one out of range. The message is one line
/// with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError(String);

impl UnitError {
    pub(super) fn new(message: String) -> UnitError {
        UnitError(message)
    }
}

impl std::fmt::Display for UnitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnitError {}

fn error<T>(message: String) -> Result<T, UnitError> {
    Err(UnitError(message))
}

/// Splits `12.5 KiB` into 12.5 and `KiB`. A number has only digits and at most one point: no sign,
/// exponent, `inf` or `nan`.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim_matches(' ');
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Some((number.parse().ok()?, unit.trim_start_matches(' ')))
}

/// Whether `text` is a number below zero, a mistake that gets a message of its own.
fn negative(text: &str) -> bool {
    text.trim().strip_prefix('-').is_some_and(|rest| split(rest).is_some())
}

/// Bytes of `512KiB`, `1MiB`, `64k`, `1G`, `4096` or `0.5MiB`; at least 1, at most 2^53.
///
/// Units, in any case: none or `B`; `K` or `KiB`, `M` or `MiB`, `G` or `GiB`, `T` or `TiB`. A
/// fraction is rounded to whole bytes.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let shown = text.escape_debug();
    if negative(text) {
        return error(format!("size {shown} is negative (try 512KiB)"));
    }
    let Some((number, unit)) = split(text) else {
        return error(format!("\"{shown}\" is no size in bytes (try 512KiB, 1MiB or 4096)"));
    };
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => {
            let unit = unit.escape_debug();
            return error(format!(
                "size {shown}: unknown unit \"{unit}\" (use B, KiB, MiB or GiB, or K, M or G: powers of 1024)"
            ));
        }
    };
    let bytes = (number * (1u64 << shift) as f64).round();
    if bytes < 1.0 {
        return error(format!("size {shown} is less than 1 byte (try 512KiB)"));
    }
    // Beyond 2^53 an `f64` no longer tells neighbouring whole numbers apart.
    if bytes > (1u64 << 53) as f64 {
        return error(format!("size {shown} is too large (at most 8192TiB)"));
    }
    Ok(bytes as u64)
}

/// Checks that a sampling interval lies in 1 … 2^32 bytes.
pub fn check_interval(bytes: u64) -> Result<u64, UnitError> {
    if (1..=MAX_INTERVAL_BYTES).contains(&bytes) {
        Ok(bytes)
    } else {
        error(format!("interval of {bytes} bytes is not between 1 and 4GiB (try 512KiB)"))
    }
}

/// Parses a sampling interval: a size ([`parse_bytes`]) that [`check_interval`] accepts.
pub fn parse_interval(text: &str) -> Result<u64, UnitError> {
    check_interval(parse_bytes(text)?)
}

/// Duration of `500ms`, `1s`, `1.5s` or `2m`; a bare number is seconds. Longer than zero, at most
/// 2^32 ms (49 days).
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let shown = text.escape_debug();
    if negative(text) {
        return error(format!("duration {shown} is negative (try 1s)"));
    }
    let Some((number, unit)) = split(text) else {
        return error(format!("\"{shown}\" is no duration (try 500ms or 1s)"));
    };
    let seconds = match unit {
        "ms" => number / 1e3,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => {
            let unit = unit.escape_debug();
            return error(format!("duration {shown}: unknown unit \"{unit}\" (use ms, s, m or h)"));
        }
    };
    if seconds < 1e-9 {
        return error(format!("duration {shown} is not longer than zero (try 1s)"));
    }
    if seconds > 4294967.295 {
        return error(format!("duration {shown} is too long (at most 49 days)"));
    }
    Ok(Duration::from_secs_f64(seconds))
}
