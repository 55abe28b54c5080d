//! Answers, and the lines that say why there is none.

use crate::pipeline::Stopped;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};

/// An answer as it is sent.
pub(super) type Answer = Response<Full<Bytes>>;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// The version of the Prometheus text format.
const METRICS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const BINARY: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Why there is no answer: a status, and one line without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) line: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, line: impl Into<String>) -> Problem {
        Problem { status, line: line.into() }
    }

    /// The question makes no sense.
    pub(super) fn bad(line: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, line)
    }

    /// It should have been answered.
    pub(super) fn broken(line: impl Into<String>) -> Problem {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, line)
    }

    /// Its answer.
    pub(super) fn answer(&self) -> Answer {
        let mut answer = plain(self.status, TEXT, format!("{}\n", self.line));
        match self.status {
            StatusCode::METHOD_NOT_ALLOWED => {
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        answer
    }
}

impl From<Stopped> for Problem {
    fn from(stopped: Stopped) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, stopped.to_string())
    }
}

/// Text for people.
pub(super) fn text(body: impl Into<Bytes>) -> Answer {
    plain(StatusCode::OK, TEXT, body)
}

/// Metrics.
pub(super) fn metrics(body: impl Into<Bytes>) -> Answer {
    plain(StatusCode::OK, METRICS, body)
}

/// A page, or a part of one.
pub(super) fn of_type(kind: &'static str, body: impl Into<Bytes>) -> Answer {
    plain(StatusCode::OK, HeaderValue::from_static(kind), body)
}

/// A file.
pub(super) fn file(name: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = plain(StatusCode::OK, BINARY, body);
    let disposition = format!("attachment; filename=\"{name}.pb.gz\"");
    if let Ok(disposition) = HeaderValue::from_str(&disposition) {
        answer.headers_mut().insert(CONTENT_DISPOSITION, disposition);
    }
    answer
}

fn plain(status: StatusCode, kind: HeaderValue, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
