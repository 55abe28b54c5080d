//! Pushes as bodies of OTLP requests, compressed.

use super::outbox::Body;
use flate2::Compression;
use flate2::write::GzEncoder;
use sampler_common::encode::otlp::{Request, requests};
use sampler_common::encode::push::Push;
use std::io::Write as _;

/// The path of the signal, behind what a backend puts before it.
pub(super) const PATH: &str = "/v1development/profiles";

/// The bodies that carry a push; none if there is nothing in it.
pub(super) fn bodies(push: &Push) -> Vec<Body> {
    let requests = requests(push, || fastrand::u128(..).to_be_bytes());
    requests.iter().map(body).collect()
}

fn body(request: &Request) -> Body {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    // Into memory: it cannot fail.
    let _ = gzip.write_all(&request.bytes);
    let bytes = gzip.finish().unwrap_or_default();
    Body { id: fastrand::u128(..), bytes, profiles: request.profiles }
}
