//! Points in time as people write and read them: UTC, as in RFC 3339.

use super::parse::{UnitError, parse_duration};
use humantime::{format_rfc3339_micros, format_rfc3339_millis, parse_rfc3339_weak};
use std::time::{Duration, UNIX_EPOCH};

const SECOND_NS: u64 = 1_000_000_000;
/// 2001-09-09. A smaller bare number is taken for a duration whose unit was forgotten.
const EARLIEST_UNIX_SECONDS: f64 = 1e9;

/// A point in time, as it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Duration before now.
    Ago(Duration),
    /// Nanoseconds since the Unix epoch.
    At(u64),
}

impl Time {
    /// Nanoseconds since the Unix epoch, if now is `now_unix_ns`.
    pub fn unix_ns(self, now_unix_ns: u64) -> u64 {
        match self {
            Time::Ago(ago) => now_unix_ns.saturating_sub(ago.as_nanos() as u64),
            Time::At(unix_ns) => unix_ns,
        }
    }
}

/// Parses a point in time:
/// - `5m` or `30s`: back from now;
/// - `2026-11-20T13:07:37Z`: RFC 3339, in UTC, with or without a fraction; a blank may replace the
///   T;
/// - `1795180057` or `1795180057.25`: seconds since the Unix epoch.
pub fn parse_time(text: &str) -> Result<Time, UnitError> {
    let text = text.trim();
    let wrong = |reason: &str| {
        let shown = text.escape_debug();
        UnitError::new(format!(
            "time {shown} {reason} (try 5m for five minutes ago, 2026-11-20T13:07:37Z, or Unix seconds)"
        ))
    };
    if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && !text.is_empty() {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let seconds: f64 = text.parse().map_err(|_| wrong("is no number"))?;
        if seconds < EARLIEST_UNIX_SECONDS {
            return Err(wrong("is before 2001, or a duration without its unit"));
        }
        let seconds = whole.parse().map_err(|_| wrong("is no time"))?;
        return at(seconds, fraction).ok_or_else(|| wrong("is out of range"));
    }
    if text.len() > 4 && text.as_bytes()[4] == b'-' {
        return civil(text).ok_or_else(|| wrong("is no date and time in UTC"));
    }
    Ok(Time::Ago(parse_duration(text).map_err(|_| wrong("is no time"))?))
}

/// `2026-11-20T13:07:37.250000Z`, to the microsecond.
pub fn utc_micros(unix_ns: u64) -> String {
    format_rfc3339_micros(UNIX_EPOCH + Duration::from_nanos(unix_ns)).to_string()
}

/// `2026-11-20T13:07:37.250Z`, to the millisecond.
pub fn utc(unix_ns: u64) -> String {
    format_rfc3339_millis(UNIX_EPOCH + Duration::from_nanos(unix_ns)).to_string()
}

/// The time of whole seconds since the Unix epoch and the digits of a fraction.
fn at(seconds: u64, fraction: &str) -> Option<Time> {
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanos: u64 = digits.parse().ok()?;
    Some(Time::At(seconds.checked_mul(SECOND_NS)?.checked_add(nanos)?))
}

/// Parses RFC 3339 in UTC.
fn civil(text: &str) -> Option<Time> {
    let text = text.to_ascii_uppercase();
    // A time without its Z could be local time anywhere. A point without digits behind it is a
    // typing mistake.
    if !text.ends_with('Z') || text.ends_with(".Z") {
        return None;
    }
    let time = parse_rfc3339_weak(&text).ok()?;
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    Some(Time::At(u64::try_from(since.as_nanos()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_parsed_or_refused() {
        let at = |seconds: u64, nanos| Ok(Time::At(seconds * SECOND_NS + nanos));
        for (text, expected) in [
            ("2026-11-20T13:07:37Z", at(1_795_180_057, 0)),
            ("2026-11-20 13:07:37.25z", at(1_795_180_057, 250_000_000)),
            ("1970-01-01T00:00:00Z", at(0, 0)),
            ("2024-02-29T00:00:00Z", at(1_709_164_800, 0)),
            ("1795180057", at(1_795_180_057, 0)),
            (" 1795180057.5 ", at(1_795_180_057, 500_000_000)),
            ("5m", Ok(Time::Ago(Duration::from_secs(300)))),
            ("500ms", Ok(Time::Ago(Duration::from_millis(500)))),
        ] {
            assert_eq!(parse_time(text), expected, "{text}");
        }
        for text in [
            "",
            "90",
            "1.2.3",
            "yesterday",
            "-5m",
            "0s",
            "99999999999999999999",
            "2026-11-20",
            "2026-11-20T13:07:37",
            "2026-11-20T13:07:37+01:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-20T24:00:00Z",
            "2026-11-20T13:07:37.Z",
            "2026-11-2T1:1:1Z",
            "9999-12-31T00:00:00Z",
            "2026-é1",
        ] {
            let message = parse_time(text).unwrap_err().to_string();
            assert!(!message.contains('\n') && message.ends_with("Unix seconds)"), "{message}");
        }
    }

    #[test]
    fn times_are_printed_in_utc() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(1_795_180_057 * SECOND_NS + 1_000_000), "2026-11-20T13:07:37.001Z");
        assert_eq!(Time::Ago(Duration::from_secs(2)).unix_ns(5 * SECOND_NS), 3 * SECOND_NS);
    }

    proptest! {
        #[test]
        fn printed_times_are_parsed_back(millis in 0u64..18_000_000_000_000) {
            let unix_ns = millis * 1_000_000;
            prop_assert_eq!(parse_time(&utc(unix_ns)), Ok(Time::At(unix_ns)));
        }

        #[test]
        fn garbage_never_panics(text in ".*") {
            let _ = parse_time(&text);
        }
    }
}
