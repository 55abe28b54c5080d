//! Byte sizes and durations as people write and read them, with one grammar for both programs.
//!
//! Sizes are powers of 1024 (`KiB`, or `K` for short). `KB` is refused rather than guessed, because
//! for many people it means 1000 bytes.

mod parse;
mod show;
mod time;

pub use parse::{UnitError, check_interval, parse_bytes, parse_duration, parse_interval};
pub use show::{
    exact_bytes, grouped, half_width, hex, human_bytes, human_count, human_cpu_time,
    human_duration, share, short_bytes, size_range,
};
pub use time::{Time, parse_time, utc, utc_micros};

/// Largest sampling interval: 2^32 bytes, 4 GiB.
pub const MAX_INTERVAL_BYTES: u64 = 1 << 32;

/// An interval as whole bytes within its domain. The interval of a rate in fixed point differs a
/// little from the requested one.
pub fn whole_interval(interval_bytes: f64) -> u64 {
    (interval_bytes.round() as u64).clamp(1, MAX_INTERVAL_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn sizes_are_parsed_or_refused() {
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
    fn durations_are_parsed_and_printed() {
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
    fn numbers_are_printed_for_people() {
        assert_eq!(human_bytes(0.0), "0 B");
        assert_eq!(human_bytes(512.0), "512 B");
        assert_eq!(human_bytes(1023.6), "1.00 KiB");
        assert_eq!(human_bytes(1010.0 * 1024.0), "1010 KiB");
        assert_eq!(human_bytes(1.25 * 1024f64.powi(3)), "1.25 GiB");
        assert_eq!(human_count(999.0), "999");
        assert_eq!(human_count(999.6), "1.00k");
        assert_eq!(human_count(12_345.0), "12.3k");
        let widths = [0.004, 0.12, 9.99, 9.996, 423.7, 999.7, 99e3, 1e9];
        assert_eq!(
            widths.map(|times| half_width(100.0, 99.9, 100.0 + 100.0 * times)),
            ["±0.4%", "±12%", "±999%", "±10×", "±424×", "±1k×", "±99k×", ">99k×"]
        );
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(8_512_345), "8,512,345");
        assert_eq!(exact_bytes(512 << 10), "512KiB");
        assert_eq!(exact_bytes(1000), "1000B");
        let short = [512 << 10, 1000, 215_078, 4_097 << 10, 1 << 32, 12_345 << 10].map(short_bytes);
        assert_eq!(short, ["512KiB", "1000B", "210KiB", "4097KiB", "4GiB", "12.1MiB"]);
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
