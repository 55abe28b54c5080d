//! Empties an outbox. Sends one request at a time, repeatedly until the backend accepts or refuses
//! it for good.

use super::back_off::{BackOff, retry_after};
use super::backend::Backend;
use super::destination::Protocol;
use super::grpc_client::{Code, Status, call};
use super::http_client::{Answer, post};
use super::outbox::{Attempt, Body, Outbox, Waiting};
use hyper::body::Bytes;
use hyper::header::{
    CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use hyper::{HeaderMap, StatusCode};
use sampler_common::encode::otlp::{rejected, retry_delay};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::sleep;

/// Maximum length in characters of a backend's text in `status`.
const MAX_REASON_CHARS: usize = 200;
/// The header by which a backend, or a proxy before it, recognizes a request that arrives twice.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The header with the number of ClickHouse's exception.
const EXCEPTION_CODE: &str = "x-clickhouse-exception-code";
/// Exceptions that ClickHouse answers with 500, as any that it has no status for, and that no
/// repetition of the insertion mends: columns or types of the table, rights of the user, and
/// settings. `ErrorCodes.cpp` of its sources has the numbers.
const FINAL_EXCEPTIONS: [u16; 15] = [
    7,   // INCORRECT_NUMBER_OF_COLUMNS
    10,  // NOT_FOUND_COLUMN_IN_BLOCK
    16,  // NO_SUCH_COLUMN_IN_TABLE
    20,  // NUMBER_OF_COLUMNS_DOESNT_MATCH
    70,  // CANNOT_CONVERT_TYPE
    122, // INCOMPATIBLE_COLUMNS
    164, // READONLY: a setting of the user; a table that is read-only for a while has 242
    195, // IP_ADDRESS_NOT_ALLOWED
    291, // DATABASE_ACCESS_DENIED
    344, // SUPPORT_IS_DISABLED
    349, // CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
    452, // SETTING_CONSTRAINT_VIOLATION
    469, // VIOLATED_CONSTRAINT
    472, // READONLY_SETTING
    497, // ACCESS_DENIED
];

/// Takes what waits in an outbox.
pub(super) trait Sink<T> {
    /// Takes one request. Returns the result and, if the destination asks for a pause, its length.
    fn attempt(
        &mut self,
        request: &Arc<T>,
    ) -> impl Future<Output = (Attempt, Option<Duration>)> + Send;
}

/// Gives the requests of an outbox to a sink, one after another, without end.
pub(super) async fn empty<T: Waiting>(outbox: Arc<Outbox<T>>, mut sink: impl Sink<T>) {
    let mut back_off = BackOff::default();
    loop {
        let (attempt, requested_delay) = sink.attempt(&outbox.first().await).await;
        let failed = matches!(attempt, Attempt::Failed(_));
        if let Attempt::Failed(why) | Attempt::Refused(why) = &attempt {
            tracing::debug!("export to {}: {why}", outbox.counts().destination);
        }
        outbox.ended(attempt);
        if failed {
            sleep(back_off.next(requested_delay, fastrand::f64())).await;
        } else {
            back_off.reset();
        }
    }
}

/// The connection parameters of a backend.
pub(super) struct Transport {
    backend: Backend,
    headers: HeaderMap,
}

impl Sink<Body> for Transport {
    async fn attempt(&mut self, body: &Arc<Body>) -> (Attempt, Option<Duration>) {
        let mut headers = self.headers.clone();
        if let Ok(id) = HeaderValue::from_str(&format!("{:032x}", body.id)) {
            headers.insert(IDEMPOTENCY_KEY, id);
        }
        let bytes = Bytes::copy_from_slice(&body.bytes);
        match self.backend.server.protocol {
            Protocol::OtlpHttp | Protocol::Pyroscope | Protocol::ClickHouse => {
                self.post_with(headers, &body.target, bytes).await
            }
            Protocol::OtlpGrpc => match call(&self.backend, &body.target, headers, bytes).await {
                Ok(answer) => (sent(&answer), None),
                Err(status) => by_status(&status),
            },
        }
    }
}

impl Transport {
    /// Combines a backend with the user's headers.
    pub(super) fn new(backend: Backend, mut headers: HeaderMap) -> Transport {
        let agent = concat!("samplerd/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        match backend.server.protocol {
            Protocol::OtlpHttp => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
            Protocol::OtlpGrpc => {}
            // Files of pprof and Parquet are already compressed.
            Protocol::Pyroscope | Protocol::ClickHouse => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
            }
        }
        Transport { backend, headers }
    }

    /// Sends a body over HTTP. Returns the result and, if the backend asks for a pause, its length.
    pub(super) async fn post(&self, target: &str, bytes: Bytes) -> (Attempt, Option<Duration>) {
        self.post_with(self.headers.clone(), target, bytes).await
    }

    async fn post_with(
        &self,
        headers: HeaderMap,
        target: &str,
        bytes: Bytes,
    ) -> (Attempt, Option<Duration>) {
        let path = format!("{}{target}", self.backend.server.base);
        match post(&self.backend, &path, headers, bytes).await {
            Ok(answer) => {
                (attempt(&answer, self.backend.server.protocol), requested_delay(&answer))
            }
            Err(error) => (Attempt::Failed(one_line(&format!("{error:#}"))), None),
        }
    }
}

/// Interprets the answer to an accepted request: the answer says which profiles were left out.
fn sent(answer: &[u8]) -> Attempt {
    Attempt::Sent(rejected(answer).map(|(profiles, why)| {
        (profiles, one_line(&format!("{profiles} profiles left out: {why}")))
    }))
}

/// Interprets a gRPC status. Returns the result, and the wait that the backend asked for. The OTLP
/// specification, "Failures", lists the statuses that are worth another attempt.
fn by_status(status: &Status) -> (Attempt, Option<Duration>) {
    let requested_delay = retry_delay(status.details());
    let code = status.code();
    let why = one_line(&format!("{code:?}: {}", status.message()));
    let is_retried = match code {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => true,
        Code::ResourceExhausted => requested_delay.is_some(),
        _ => false,
    };
    (if is_retried { Attempt::Failed(why) } else { Attempt::Refused(why) }, requested_delay)
}

/// Interprets an answer. The OTLP specification, "Retryable response codes", lists the statuses
/// that are worth another attempt. ClickHouse answers with 500 if it has no memory left, or too
/// many parts, for example; with other statuses, or some exceptions, if the request is wrong.
fn attempt(answer: &Answer, protocol: Protocol) -> Attempt {
    let status = answer.status;
    match protocol {
        // Only OTLP answers say what was left out.
        Protocol::Pyroscope | Protocol::ClickHouse if status.is_success() => {
            return Attempt::Sent(None);
        }
        _ if status.is_success() => return sent(&answer.body),
        _ => {}
    }
    let text = String::from_utf8_lossy(&answer.body);
    let why = one_line(format!("{status}: {text}").trim_end_matches([' ', ':']));
    match status {
        StatusCode::REQUEST_TIMEOUT
        | StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Attempt::Failed(why),
        StatusCode::INTERNAL_SERVER_ERROR
            if protocol == Protocol::ClickHouse && !is_final_exception(answer) =>
        {
            Attempt::Failed(why)
        }
        _ => Attempt::Refused(why),
    }
}

fn is_final_exception(answer: &Answer) -> bool {
    let code = answer.headers.get(EXCEPTION_CODE).and_then(|code| code.to_str().ok());
    code.and_then(|code| code.parse().ok()).is_some_and(|code| FINAL_EXCEPTIONS.contains(&code))
}

fn requested_delay(answer: &Answer) -> Option<Duration> {
    retry_after(answer.headers.get(RETRY_AFTER)?.to_str().ok()?, SystemTime::now())
}

/// Makes a backend's text safe for terminals: one line, no control characters, bounded length.
fn one_line(text: &str) -> String {
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    text.trim().chars().take(MAX_REASON_CHARS).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &'static [u8]) -> Answer {
        let status = StatusCode::from_u16(status).unwrap();
        Answer { status, headers: HeaderMap::new(), body: Bytes::from_static(body) }
    }

    fn attempt(answer: &Answer) -> Attempt {
        super::attempt(answer, Protocol::OtlpHttp)
    }

    #[test]
    fn http_statuses_are_sent_retried_or_refused() {
        for status in [200, 202, 204] {
            assert_eq!(attempt(&answer(status, b"<html>")), Attempt::Sent(None));
        }
        for status in [408, 429, 502, 503, 504] {
            assert!(matches!(attempt(&answer(status, b"")), Attempt::Failed(_)), "{status}");
        }
        for status in [301, 400, 401, 404, 413, 500, 501] {
            assert!(matches!(attempt(&answer(status, b"")), Attempt::Refused(_)), "{status}");
        }
        let of_clickhouse = |status| super::attempt(&answer(status, b""), Protocol::ClickHouse);
        assert!(matches!(of_clickhouse(500), Attempt::Failed(_)));
        assert!(matches!(of_clickhouse(404), Attempt::Refused(_)));
        // Too many parts, a column that the table lacks, and no number.
        for (code, is_final) in [("252", false), ("16", true), ("x", false)] {
            let mut answer = answer(500, b"");
            answer.headers.insert(EXCEPTION_CODE, HeaderValue::from_static(code));
            let attempt = super::attempt(&answer, Protocol::ClickHouse);
            assert_eq!(matches!(attempt, Attempt::Refused(_)), is_final, "{code}");
            let attempt = super::attempt(&answer, Protocol::OtlpHttp);
            assert!(matches!(attempt, Attempt::Refused(_)), "{code}");
        }
    }

    #[test]
    fn grpc_statuses_are_retried_or_refused() {
        let is_failed = |code| matches!(by_status(&Status::new(code, "x")).0, Attempt::Failed(_));
        for code in [Code::Unavailable, Code::DeadlineExceeded, Code::Aborted, Code::DataLoss] {
            assert!(is_failed(code), "{code:?}");
        }
        for code in [Code::InvalidArgument, Code::Unauthenticated, Code::Unimplemented] {
            assert!(!is_failed(code), "{code:?}");
        }
        // `ResourceExhausted` without a delay is final. The status below has a delay of 3 s.
        assert!(!is_failed(Code::ResourceExhausted));
        let detail: &[u8] =
            b"\x1a\x30\x0a\x28type.googleapis.com/google.rpc.RetryInfo\x12\x04\x0a\x02\x08\x03";
        let status = Status::with_details(Code::ResourceExhausted, "x", detail.into());
        let (attempt, requested_delay) = by_status(&status);
        assert!(matches!(attempt, Attempt::Failed(_)));
        assert_eq!(requested_delay, Some(Duration::from_secs(3)));
    }

    #[test]
    fn the_reason_of_a_backend_is_one_short_line() {
        let body: &[u8] = b"too\nmuch \x1b[31m\xff";
        let Attempt::Refused(why) = attempt(&answer(400, body)) else { panic!() };
        assert!(why.starts_with("400 Bad Request: too much"), "{why}");
        assert!(!why.chars().any(char::is_control));
        assert_eq!(one_line(&"x".repeat(1000)).len(), MAX_REASON_CHARS);
        let Attempt::Failed(why) = attempt(&answer(503, b"")) else { panic!() };
        assert_eq!(why, "503 Service Unavailable");
    }
}
