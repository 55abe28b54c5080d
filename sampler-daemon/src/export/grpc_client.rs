//! One gRPC call on its own connection, with a message that is already encoded.

use super::backend::Backend;
use super::{MAX_ANSWER_BYTES, REQUEST_TIMEOUT};
use bytes::{Buf as _, BufMut as _, Bytes};
use hyper::HeaderMap;
use hyper::http::uri::{PathAndQuery, Uri};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::transport::Endpoint;
pub(super) use tonic::{Code, Status};

/// Calls the method at `path`. Returns the encoded answer.
///
/// # Errors
/// The status that the backend returned, or the status for a backend that cannot be reached.
pub(super) async fn call(
    to: &Backend,
    path: &str,
    headers: HeaderMap,
    message: Bytes,
) -> Result<Bytes, Status> {
    let late =
        |_| Status::deadline_exceeded(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()));
    timeout(REQUEST_TIMEOUT, exchange(to, path, headers, message)).await.map_err(late)?
}

async fn exchange(
    to: &Backend,
    path: &str,
    headers: HeaderMap,
    message: Bytes,
) -> Result<Bytes, Status> {
    let unreachable = |error: tonic::transport::Error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        Status::unavailable(format!("{error}: {}", cause.unwrap_or_default()))
    };
    let scheme = if to.server.is_secure { "https" } else { "http" };
    let authority = to.server.authority();
    let origin = Uri::builder().scheme(scheme).authority(authority.as_str()).path_and_query("/");
    let origin = origin.build().map_err(|error| Status::internal(error.to_string()))?;
    // The backend's connection has TLS already. For an address with "https", tonic would begin TLS
    // once more.
    let endpoint = Endpoint::from_shared(format!("http://{authority}")).map_err(unreachable)?;
    let endpoint = endpoint.origin(origin);
    let backend = to.clone();
    let connector = tower::service_fn(move |_| {
        let backend = backend.clone();
        // tonic shows only the first error of a chain.
        async move {
            let stream = backend.connect().await.map_err(|error| anyhow::anyhow!("{error:#}"))?;
            anyhow::Ok(TokioIo::new(stream))
        }
    });
    let channel = endpoint.connect_with_connector(connector).await.map_err(unreachable)?;
    let mut grpc = Grpc::new(channel)
        .send_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(MAX_ANSWER_BYTES);
    grpc.ready().await.map_err(unreachable)?;
    let (metadata, extensions) = (MetadataMap::from_headers(headers), Default::default());
    let request = tonic::Request::from_parts(metadata, extensions, message);
    let path: PathAndQuery =
        path.parse().map_err(|error| Status::internal(format!("{path}: {error}")))?;
    let answer = grpc.unary(request, path, Encoded).await?;
    Ok(answer.into_inner())
}

/// A codec whose messages are bytes that are already encoded.
#[derive(Clone, Copy, Debug, Default)]
struct Encoded;

impl Codec for Encoded {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Encoded;
    type Decoder = Encoded;

    fn encoder(&mut self) -> Encoded {
        Encoded
    }

    fn decoder(&mut self) -> Encoded {
        Encoded
    }
}

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
