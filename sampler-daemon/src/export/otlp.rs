//! Pushes as bodies of OTLP requests: compressed for HTTP, not for gRPC, which does that itself.

use super::outbox::{Body, compressed};
use sampler_common::encode::otlp::{Request, requests};
use sampler_common::encode::push::Push;

/// The path of the signal, behind what a backend puts before it.
const PATH: &str = "/v1development/profiles";
/// The method of the signal over gRPC.
const METHOD: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

/// The bodies that carry a push; none if there is nothing in it.
pub(super) fn bodies(push: &Push, is_grpc: bool) -> Vec<Body> {
    let requests = requests(push, || fastrand::u128(..).to_be_bytes());
    let body = |request: Request| Body {
        id: fastrand::u128(..),
        target: if is_grpc { METHOD } else { PATH }.to_owned(),
        profiles: request.profiles,
        bytes: if is_grpc { request.bytes } else { compressed(&request.bytes) },
    };
    requests.into_iter().map(body).collect()
}
