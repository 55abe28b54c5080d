//! Arguments that the planning functions reject, because they have no answer.

use crate::units::{MAX_INTERVAL_BYTES, UnitError, check_interval, exact_bytes};

/// Largest number of bytes in a plan: 2^63.
pub const MAX_BYTES: u64 = 1 << 63;

/// Largest expectation of failed trials, samples × interval: 2^60.
pub const MAX_TRIALS: u64 = 1 << 60;

/// An argument outside its domain; the message is one line with the remedy.
#[derive(Clone, Debug, PartialEq)]
pub enum DomainError {
    /// The interval is not between 1 and [`MAX_INTERVAL_BYTES`] bytes.
    Interval(UnitError),
    /// An interval that is no number of bytes between 1 and [`MAX_INTERVAL_BYTES`].
    FractionalInterval(f64),
    /// A total that is not between 1 and [`MAX_BYTES`] bytes.
    Bytes(u64),
    /// An allocation that is not between 1 byte and the total.
    Size {
        /// Bytes of one allocation.
        size: u64,
        /// Bytes of all allocations.
        bytes: u64,
    },
    /// More bytes behind the hits than [`MAX_BYTES`].
    TailBytes(u64),
    /// No sample, although the last sample is the end of what is measured.
    NoSamples,
    /// Samples that stand for more than [`MAX_TRIALS`] bytes.
    Samples(u64),
    /// A probability outside (0, 1).
    Probability(f64),
}

impl std::fmt::Display for DomainError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DomainError::Interval(error) => error.fmt(f),
            DomainError::FractionalInterval(bytes) => {
                write!(f, "interval of {bytes} bytes is not between 1 and 4GiB (try 512KiB)")
            }
            DomainError::Bytes(bytes) => {
                write!(f, "total of {bytes} bytes is not between 1 and 2^63 (try 1GiB)")
            }
            DomainError::Size { size: 0, .. } => {
                write!(f, "size of 0 bytes is less than 1 byte (try 64)")
            }
            DomainError::Size { size, bytes } => {
                let (size, bytes) = (exact_bytes(*size), exact_bytes(*bytes));
                write!(f, "size {size} is larger than the total of {bytes} (give one no larger)")
            }
            DomainError::TailBytes(bytes) => {
                write!(f, "{bytes} tail bytes are too many (at most 2^63)")
            }
            DomainError::NoSamples => {
                write!(f, "0 samples have no last one to end at (give at least 1)")
            }
            DomainError::Samples(samples) => {
                write!(f, "{samples} samples stand for too many bytes (at most 2^60; give fewer)")
            }
            DomainError::Probability(value) => {
                write!(f, "probability {value} is not between 0 and 1 (try 0.95)")
            }
        }
    }
}

impl std::error::Error for DomainError {}

/// A whole interval as a number of bytes.
pub(super) fn interval(bytes: u64) -> Result<f64, DomainError> {
    Ok(check_interval(bytes).map_err(DomainError::Interval)? as f64)
}

/// An interval that is computed from a rate and may have a fraction.
pub(super) fn fractional_interval(bytes: f64) -> Result<f64, DomainError> {
    // Written so that NaN fails too.
    if bytes >= 1.0 && bytes <= MAX_INTERVAL_BYTES as f64 {
        Ok(bytes)
    } else {
        Err(DomainError::FractionalInterval(bytes))
    }
}
