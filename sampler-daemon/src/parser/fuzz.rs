//! Entry for the fuzzer: what samplerd reads of a parser that a file may have taken over, and the
//! other way round.

use super::wire;

/// Reads a packet as a message and as a request.
pub fn packets(bytes: &[u8]) {
    let _ = wire::decode_message(bytes);
    let _ = wire::decode_request(bytes);
}
