//! Pushes as bodies of OTLP requests. The bodies are compressed for HTTP only, because gRPC
//! compresses them itself.

use super::outbox::{Body, compressed};
use sampler_common::encode::otlp::{Request, requests};
use sampler_common::encode::push::Push;

/// The path of the profiles signal, after the backend's own path.
const PATH: &str = "/v1development/profiles";
/// The gRPC method of the profiles signal.
const METHOD: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

/// Returns the bodies that carry a push. An empty push has no bodies.
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
