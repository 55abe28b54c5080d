//! Answers, and the lines that say why a request has no answer.

use crate::pipeline::Stopped;
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};

/// The media type of files and downloads.
pub(super) const BINARY: &str = "application/octet-stream";

/// The answer of a page.
pub(super) type Answer = Result<Response, Problem>;

/// Why a request has no answer: a status, and one line without a line end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) line: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, line: impl Into<String>) -> Problem {
        Problem { status, line: line.into() }
    }

    /// A problem of the request: status 400.
    pub(super) fn bad(line: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, line)
    }

    /// A problem of the server: status 500.
    pub(super) fn broken(error: impl ToString) -> Problem {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }

    /// A page that does not exist: status 404. `known` names the pages that exist.
    pub(super) fn no_page(uri: &Uri, known: &str) -> Problem {
        let path = super::escape::shown(uri.path());
        Problem::new(StatusCode::NOT_FOUND, format!("{path}: no such page (there {known})"))
    }
}

impl From<Stopped> for Problem {
    fn from(stopped: Stopped) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, stopped.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut answer = (self.status, format!("{}\n", self.line)).into_response();
        let more = match self.status {
            StatusCode::METHOD_NOT_ALLOWED => (ALLOW, "GET, HEAD"),
            StatusCode::SERVICE_UNAVAILABLE => (RETRY_AFTER, "1"),
            _ => return answer,
        };
        answer.headers_mut().insert(more.0, HeaderValue::from_static(more.1));
        answer
    }
}

/// Makes an answer of a media type.
pub(super) fn of_type(kind: &'static str, body: impl IntoResponse) -> Response {
    ([(CONTENT_TYPE, kind)], body).into_response()
}

/// Sets the headers `more`, and the headers that every answer of samplerd has.
pub(super) fn with_headers(mut answer: Response, more: &[(HeaderName, &'static str)]) -> Response {
    let all = [(X_CONTENT_TYPE_OPTIONS, "nosniff"), (CACHE_CONTROL, "no-store")];
    for (name, value) in all.iter().chain(more) {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}
