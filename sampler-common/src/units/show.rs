//! Shows sizes, counts and durations as people read them.

use std::fmt::Write as _;
use std::time::Duration;

/// Three significant digits in the largest unit that keeps the number at 1 or more. At most 4
/// digits, since 1000 … 1023 of a unit are less than one of the next unit.
fn scaled(value: f64, base: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    // 999.5 and more would round to four digits: with base 1000 the next unit is used instead.
    let limit = if base > 1000.0 { base - 0.5 } else { 999.5 };
    while value >= limit && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let decimals = match value {
        _ if unit == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}{}", units[unit])
}

/// `0 B`, `512 B`, `64.0 KiB`, `1.25 GiB`: three significant digits, at most 8 columns below 1024
/// EiB.
pub fn human_bytes(bytes: f64) -> String {
    scaled(bytes, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

/// `7`, `999`, `12.3k`, `8.51M`, `1.20G`: a count with three significant digits.
pub fn human_count(count: f64) -> String {
    scaled(count, 1000.0, &["", "k", "M", "G", "T", "P"])
}

/// `581 ns`, `1.23 µs`, `104 ms`, `12.3 s`, `4 m 05 s`: CPU time in nanoseconds with three
/// significant digits.
pub fn human_cpu_time(ns: f64) -> String {
    if ns >= 60e9 {
        return human_duration(Duration::from_nanos(ns as u64));
    }
    scaled(ns, 1000.0, &[" ns", " µs", " ms", " s"])
}

/// A byte size as [`parse_bytes`](super::parse_bytes) reads it back exactly: `512KiB`, `1MiB`,
/// `1000B`.
pub fn exact_bytes(bytes: u64) -> String {
    let (shift, unit) = match bytes.trailing_zeros() {
        _ if bytes == 0 => (0, "B"),
        30.. => (30, "GiB"),
        20.. => (20, "MiB"),
        10.. => (10, "KiB"),
        _ => (0, "B"),
    };
    format!("{}{unit}", bytes >> shift)
}

/// [`exact_bytes`] if that is short, else three significant digits: `512KiB`, `1000B`, `210KiB`; at
/// most 7 columns.
pub fn short_bytes(bytes: u64) -> String {
    let exact = exact_bytes(bytes);
    let is_short = exact.len() <= 7 && (bytes < 10_000 || exact.ends_with("iB"));
    if is_short { exact } else { human_bytes(bytes as f64).replace(' ', "") }
}

/// `sizes from 513B to 8KiB`; a missing limit is left out.
pub fn size_range(smallest: Option<u64>, largest: Option<u64>) -> String {
    match (smallest.map(exact_bytes), largest.map(exact_bytes)) {
        (None, None) => "all sizes".to_owned(),
        (Some(low), None) => format!("sizes from {low} up"),
        (None, Some(high)) => format!("sizes up to {high}"),
        (Some(low), Some(high)) => format!("sizes from {low} to {high}"),
    }
}

/// Bytes in lower-case hex, without separators.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A share of a total in percent, at most five columns.
pub fn share(part: f64, whole: f64) -> String {
    match 100.0 * part / whole {
        _ if whole <= 0.0 => "0%".to_owned(),
        p if p >= 99.95 => "100%".to_owned(),
        p => format!("{p:.1}%"),
    }
}

/// The larger distance from a number above 0 to an end of its interval, in at most five columns:
/// `±0.4%`, `±12%`, and from ten times the number on `±14×`, `±3k×`, `>99k×`.
pub fn half_width(value: f64, low: f64, high: f64) -> String {
    let times = (high - value).max(value - low) / value;
    match 100.0 * times {
        percent if percent < 0.95 => format!("±{percent:.1}%"),
        percent if percent < 999.5 => format!("±{percent:.0}%"),
        _ if times < 999.5 => format!("±{times:.0}×"),
        _ if times < 99.5e3 => format!("±{:.0}k×", times / 1e3),
        _ => ">99k×".to_owned(),
    }
}

/// An exact count with separated thousands: `8,512,345`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `350 ms`, `12.3 s`, `4 m 05 s`, `3 h 12 m`, `2 d 3 h`: a duration in its two largest units.
pub fn human_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if duration.as_millis() < 1000 => format!("{} ms", duration.as_millis()),
        0..60 => format!("{:.1} s", duration.as_secs_f64().min(59.9)),
        60..3600 => format!("{} m {:02} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {:02} m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}
