//! `SAMPLER_INTERVAL`: mean bytes between samples, as people write it, and the rate of this
//! interval.

use crate::float::undisturbed;
use sampler_common::sampling::Rate;
use sampler_common::sampling::rate::{HAZARD_CERTAIN, HAZARD_ONE, MAX_INTERVAL_BYTES};

/// The interval without `SAMPLER_INTERVAL`, or if its value cannot be parsed: the default of
/// samplerd.
pub const DEFAULT_BYTES: u64 = 512 << 10;

/// Terms of the series of λ: at R = 2 the remainder is below 2⁻⁶⁰.
const SERIES_TERMS: u32 = 60;

/// Bytes of `4096`, `512KiB`, `64k` or `1MiB` (1 … 2^32); whole numbers only. `None`: anything
/// else.
pub fn parse(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = text.split_at_checked(digits)?;
    if number.is_empty() || number.len() > 10 {
        return None;
    }
    let number = number.iter().fold(0u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    let is = |names: [&[u8]; 2]| names.iter().any(|name| unit.eq_ignore_ascii_case(name));
    let shift = match () {
        () if is([b"", b"b"]) => 0,
        () if is([b"k", b"kib"]) => 10,
        () if is([b"m", b"mib"]) => 20,
        () if is([b"g", b"gib"]) => 30,
        () => return None,
    };
    let bytes = number << shift;
    (1..=MAX_INTERVAL_BYTES).contains(&bytes).then_some(bytes)
}

/// The rate λ = −ln(1 − 1/R) = Σ p^k/k, p = 1/R; at 1 byte every allocation is sampled. Within 1 of
/// [`Rate`]'s own result, whose logarithm needs a library.
pub fn rate(interval_bytes: u64) -> Rate {
    if interval_bytes <= 1 {
        return Rate::from_raw(HAZARD_CERTAIN);
    }
    let raw = undisturbed(series, [interval_bytes, 0, 0]);
    Rate::from_raw(if raw == 0 { 1 } else { raw })
}

/// The raw rate, computed by the series.
extern "C" fn series(interval_bytes: u64, _: u64, _: u64) -> u64 {
    let chance = 1.0 / interval_bytes as f64;
    // The smallest terms first: p(1 + p(1/2 + p(1/3 + …))).
    let mut sum = 0.0;
    let mut term = SERIES_TERMS;
    while term >= 1 {
        sum = 1.0 / f64::from(term) + chance * sum;
        term -= 1;
    }
    (chance * sum * HAZARD_ONE as f64 + 0.5) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_parsed_or_refused() {
        for (text, bytes) in [
            ("1", 1),
            ("4096", 4096),
            ("512KiB", 512 << 10),
            ("64k", 64 << 10),
            ("1MiB", 1 << 20),
            ("4g", 1 << 32),
            ("100B", 100),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(bytes), "{text}");
        }
        for text in ["", "0", "-1", "k", "1x", "1.5k", "5g", "99999999999", "1 k", "9999999999g"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn rates_equal_those_of_the_daemon() {
        for interval in [1, 2, 3, 5, 64, 1000, 4096, 512 << 10, 1 << 20, 1 << 31, 1 << 32] {
            let theirs = Rate::from_interval(interval).unwrap();
            assert!(rate(interval).raw().abs_diff(theirs.raw()) <= 1, "{interval}");
        }
    }
}
