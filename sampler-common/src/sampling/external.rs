//! Samples that a process takes by itself (OpenTelemetry's `otel_memory` probes).
//!
//! Plainly: the process reports a sampled allocation with its size (s) and the bytes that it stands
//! for (w, already unbiased). So the allocation was sampled with π = s/w and stands for w/s = 1/π
//! objects. Its Horvitz–Thompson variance is w²(1 − π), as for any other sample. The word of its
//! [`Design`] carries w unchanged: totals are sums of what the process reported, without rounding.
//!
//! With a mean of R bytes between samples w = s/(1 − e^(−s/R)) (OpenTelemetry eBPF profiler, design
//! document 00003).
//!
//! The numbers come from the process, which may be wrong or lie: impossible numbers are rejected.

use super::design::Design;

/// Exclusive bound of the bytes that a sample stands for: twice the address space of a process.
pub const WEIGHTED_BYTES_END: u64 = 1 << 48;

/// The design of a sample of `size` bytes that stands for `weighted` bytes; `None` unless
/// 0 < π = size/weighted ≤ 1 and weighted < [`WEIGHTED_BYTES_END`].
#[inline(always)]
pub const fn external(size: u64, weighted: u64) -> Option<Design> {
    if size == 0 || size > weighted || weighted >= WEIGHTED_BYTES_END {
        return None;
    }
    Some(Design::external(weighted))
}

/// The mean bytes between samples R at which `size` bytes stand for `weighted`: from
/// w = s/(1 − e^(−s/R)), R = −s/ln(1 − s/w).
///
/// `None` for a sample that was certain, which says nothing about R.
#[cfg(feature = "std")]
pub fn implied_interval(size: u64, weighted: u64) -> Option<f64> {
    if size == 0 || size >= weighted {
        return None;
    }
    let size = size as f64;
    Some(-size / (-size / weighted as f64).ln_1p())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Sample;
    use crate::sampling::Strategy;
    use proptest::prelude::*;

    #[test]
    fn impossible_sizes_and_weights_are_refused() {
        let not_a_number = f64::NAN.to_bits();
        for (size, weighted) in [
            (0, 0),
            (0, 4096),
            (65, 64),
            (1, 0),
            (1, WEIGHTED_BYTES_END),
            (1, u64::MAX),
            (u64::MAX, u64::MAX),
            (16, not_a_number),
            (not_a_number, 16),
        ] {
            assert_eq!(external(size, weighted), None, "{size} of {weighted}");
        }
        let most = WEIGHTED_BYTES_END - 1;
        for (size, weighted) in [(1, 1), (1, most), (most, most)] {
            assert_eq!(external(size, weighted).map(Design::weighted_bytes), Some(weighted));
        }
    }

    #[test]
    fn the_interval_is_recovered_from_a_weight() {
        for interval in [4096.0f64, 524_288.0, 1e9] {
            for size in [1u64, 48, 4096, 1 << 20] {
                let weighted = (size as f64 / -(-(size as f64) / interval).exp_m1()).round();
                if let Some(found) = implied_interval(size, weighted as u64) {
                    // Rounding w to whole bytes is the only loss, if e^(−s/R) is not tiny.
                    let is_near =
                        (found / interval - 1.0).abs() < 1e-3 || size as f64 > 4.0 * interval;
                    assert!(is_near, "{size} of {interval}: {found}");
                }
            }
        }
        assert_eq!(implied_interval(64, 64), None);
    }

    proptest! {
        #[test]
        fn foreign_weights_are_unchanged(size in 1u64..1 << 47, more in 0u64..1 << 46) {
            let weighted = size + more;
            let design = external(size, weighted).unwrap();
            prop_assert_eq!(design.strategy(), Some(Strategy::External));
            prop_assert_eq!(Design::from_word(design.word()), design);
            let inclusion = design.inclusion(size).unwrap();
            prop_assert!(inclusion > 0.0 && inclusion <= 1.0);
            let sample = Sample::new(size, design);
            let of = |own: f64| sample.moments(own);
            prop_assert!((of(size as f64).sum / weighted as f64 - 1.0).abs() < 1e-15);
            prop_assert!((of(1.0).sum * size as f64 / weighted as f64 - 1.0).abs() < 1e-15);
            let variance = (weighted as f64).powi(2) * (1.0 - inclusion);
            prop_assert!((of(size as f64).variance - variance).abs() <= variance * 1e-9);
        }
    }
}
