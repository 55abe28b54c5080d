//! Entry for the fuzzer: records of the ring.

use super::ring;

/// Reads a record.
pub fn ring_record(bytes: &[u8]) {
    let record = ring::parse(bytes);
    let _ = (record.space(), record.sampled_ns());
}
