//! Byte sizes and durations as people write and read them, one grammar for both programs.
//!
//! Sizes are powers of 1024 (`KiB`, or `K` for short). `KB` is refused rather than guessed: half of
//! the world means 1000 by it.

use std::time::Duration;

/// Largest sampling interval: 2^32 bytes, 4 GiB.
pub const MAX_INTERVAL_BYTES: u64 = 1 << 32;

/// Text that is no size or duration, or one out of range; the message is one line with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError(String);

impl std::fmt::Display for UnitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnitError {}

fn error<T>(message: String) -> Result<T, UnitError> {
    Err(UnitError(message))
}

/// Splits `12.5 KiB` into 12.5 and `KiB`. Only digits and one point: no sign, exponent, `inf` or `nan`.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim_matches(' ');
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Some((number.parse().ok()?, unit.trim_start_matches(' ')))
}

/// Whether `text` is a number below zero: a mistake that deserves its own words.
fn negative(text: &str) -> bool {
    text.trim().strip_prefix('-').is_some_and(|rest| split(rest).is_some())
}

/// Bytes of `512KiB`, `1MiB`, `64k`, `1G`, `4096` or `0.5MiB`; at least 1, at most 2^53.
///
/// Units, in any case: none or `B`; `K` or `KiB`, `M` or `MiB`, `G` or `GiB`, `T` or `TiB`. A fraction is
/// rounded to whole bytes.
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
    // Beyond 2^53 neighbouring whole numbers are no longer told apart.
    if bytes > (1u64 << 53) as f64 {
        return error(format!("size {shown} is too large (at most 8192TiB)"));
    }
    Ok(bytes as u64)
}

/// An interval as whole bytes within its domain: a rate in fixed point is a little off the one that was asked for.
pub fn whole_interval(interval_bytes: f64) -> u64 {
    (interval_bytes.round() as u64).clamp(1, MAX_INTERVAL_BYTES)
}

/// Checks that a sampling interval lies in 1 … 2^32 bytes.
pub fn check_interval(bytes: u64) -> Result<u64, UnitError> {
    if (1..=MAX_INTERVAL_BYTES).contains(&bytes) {
        Ok(bytes)
    } else {
        error(format!("interval of {bytes} bytes is not between 1 and 4GiB (try 512KiB)"))
    }
}

/// A sampling interval: [`parse_bytes`] within [`check_interval`].
pub fn parse_interval(text: &str) -> Result<u64, UnitError> {
    check_interval(parse_bytes(text)?)
}

/// `500ms`, `1s`, `1.5s`, `2m`; a bare number is seconds. Longer than zero, at most 2^32 ms (49 days).
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

/// Three significant digits and the largest unit that keeps the number at 1 or more; at most 4
/// digits, since 1000 … 1023 of a unit are not yet one of the next.
fn scaled(value: f64, base: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    // 999.5 and more would round to four digits: with base 1000 that is one of the next unit.
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

/// `0 B`, `512 B`, `64.0 KiB`, `1.25 GiB`: three digits that matter, at most 8 columns below 1024 EiB.
pub fn human_bytes(bytes: f64) -> String {
    scaled(bytes, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

/// `7`, `999`, `12.3k`, `8.51M`, `1.20G`: a count with three digits that matter.
pub fn human_count(count: f64) -> String {
    scaled(count, 1000.0, &["", "k", "M", "G", "T", "P"])
}

/// A byte size as [`parse_bytes`] reads it back exactly: `512KiB`, `1MiB`, `1000B`.
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

/// An exact count with its thousands set apart: `8,512,345`.
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

/// `350 ms`, `12.3 s`, `4 m 05 s`, `3 h 12 m`, `2 d 3 h`: a length of time in its two largest units.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("512KiB", 512 << 10),
            ("1MiB", 1 << 20),
            ("64k", 64 << 10),
            ("1G", 1 << 30),
            ("4GiB", 1 << 32),
            ("4096", 4096),
            ("4096B", 4096),
            ("0.5MiB", 512 << 10),
            (" 2 kib ", 2048),
            ("1", 1),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            " ",
            "0",
            "0KiB",
            "-1",
            "-1KiB",
            "abc",
            "KiB",
            "1KB",
            "1e9",
            "inf",
            "nan",
            "1.2.3",
            ".5K",
            "1 2",
            "٣",
            "0.1",
            "99999999999999999999",
            "1\nK",
            "--",
            "+4",
        ] {
            let message = parse_bytes(text).unwrap_err().to_string();
            assert!(!message.contains('\n') && message.ends_with(')'), "{text}: {message}");
        }
        assert!(parse_bytes("-4").unwrap_err().to_string().contains("negative"));
    }

    #[test]
    fn intervals_have_a_range() {
        assert_eq!(parse_interval("1"), Ok(1));
        assert_eq!(parse_interval("4GiB"), Ok(1 << 32));
        assert!(parse_interval("5GiB").unwrap_err().to_string().contains("between 1 and 4GiB"));
        assert!(parse_interval("0").is_err());
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(parse_duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for text in ["", "0", "0s", "-1s", "1y", "s", "1e3s", "99999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(human_duration(Duration::from_millis(350)), "350 ms");
        assert_eq!(human_duration(Duration::from_millis(59_999)), "59.9 s");
        assert_eq!(human_duration(Duration::from_secs(245)), "4 m 05 s");
        assert_eq!(human_duration(Duration::from_secs(90_000)), "1 d 1 h");
    }

    #[test]
    fn people_read() {
        assert_eq!(human_bytes(0.0), "0 B");
        assert_eq!(human_bytes(512.0), "512 B");
        assert_eq!(human_bytes(1023.6), "1.00 KiB");
        assert_eq!(human_bytes(1010.0 * 1024.0), "1010 KiB");
        assert_eq!(human_bytes(1.25 * 1024f64.powi(3)), "1.25 GiB");
        assert_eq!(human_count(999.0), "999");
        assert_eq!(human_count(999.6), "1.00k");
        assert_eq!(human_count(12_345.0), "12.3k");
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(8_512_345), "8,512,345");
        assert_eq!(exact_bytes(512 << 10), "512KiB");
        assert_eq!(exact_bytes(1000), "1000B");
    }

    proptest! {
        #[test]
        fn exact_sizes_are_read_back(bytes in 1u64..1 << 53) {
            prop_assert_eq!(parse_bytes(&exact_bytes(bytes)), Ok(bytes));
        }

        #[test]
        fn sizes_fit_a_column(bytes in 0f64..1e18) {
            prop_assert!(human_bytes(bytes).len() <= 8, "{}", human_bytes(bytes));
            prop_assert!(human_count(bytes).len() <= 5, "{}", human_count(bytes));
        }

        #[test]
        fn garbage_never_panics(text in ".*") {
            let _ = (parse_bytes(&text), parse_duration(&text));
        }
    }
}
