//! One HTTP/1.1 request on its own connection, with bounds on the time and on the answer's size.

use super::backend::Backend;
use super::{MAX_ANSWER_BYTES, REQUEST_TIMEOUT};
use anyhow::{Context as _, anyhow};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_LENGTH, HOST, HeaderValue};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The answer of a backend.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The body; empty if it could not be read.
    pub(super) body: Bytes,
}

/// Sends a body.
///
/// # Errors
/// If there is no answer. Whether the backend has received the body is then unknown.
pub(super) async fn post(
    to: &Backend,
    path: &str,
    headers: HeaderMap,
    body: Bytes,
) -> anyhow::Result<Answer> {
    let late = |_| anyhow!("no answer within {} s", REQUEST_TIMEOUT.as_secs());
    timeout(REQUEST_TIMEOUT, exchange(to, path, headers, body)).await.map_err(late)?
}

async fn exchange(
    to: &Backend,
    path: &str,
    headers: HeaderMap,
    body: Bytes,
) -> anyhow::Result<Answer> {
    let stream = to.connect().await?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.context("connect")?;
    // Dropping `connections` closes the connection.
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    let mut request =
        Request::post(path).body(Full::new(body.clone())).context("make a request")?;
    *request.headers_mut() = headers;
    let host = HeaderValue::from_str(&to.server.authority()).context("name the host")?;
    request.headers_mut().insert(HOST, host);
    request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    let answer = sender.send_request(request).await.context("send")?;
    let (parts, body) = answer.into_parts();
    let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
    // The status alone says whether the backend accepted the body. The answer's text is for people.
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    Ok(Answer { status: parts.status, headers: parts.headers, body })
}
