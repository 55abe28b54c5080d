//! Who may read: requests from samplerd's own page, with the token.

use crate::http::answer::Problem;
use crate::http::escape::shown;
use crate::token::{Token, TokenError};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

/// A layer that passes on requests that come from samplerd's own page, or from no page.
pub(super) async fn from_ours(request: Request, next: Next) -> Result<Response, Problem> {
    check_origin(request.headers())?;
    Ok(next.run(request).await)
}

/// A layer that passes on requests that have the token.
pub(super) async fn with_token(
    State(token): State<Token>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    check_token(request.headers(), &token)?;
    Ok(next.run(request).await)
}

/// Checks the `Origin` of a request, if it has one. Browsers write `Origin`, and pages cannot
/// change it.
fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    for origin in headers.get_all(ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let is_ours =
            origin.strip_prefix("http://").is_some_and(|of| of.eq_ignore_ascii_case(host));
        if !is_ours {
            let line =
                format!("origin {}: not this page (open the URL of samplerd)", shown(origin));
            return Err(Problem::new(StatusCode::FORBIDDEN, line));
        }
    }
    Ok(())
}

/// Checks that the request has the token exactly once, as `Authorization: Bearer TOKEN`.
fn check_token(headers: &HeaderMap, token: &Token) -> Result<(), Problem> {
    let given = headers.get_all(AUTHORIZATION).iter().map(|given| given.to_str().ok());
    token.check(given).map_err(|error| {
        let line = match error {
            TokenError::Missing => "no token (open the URL that samplerd printed when it started)",
            TokenError::Wrong => "wrong token (open the URL that samplerd printed when it started)",
            TokenError::Several => "more than one token (send one)",
        };
        Problem::new(StatusCode::FORBIDDEN, line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn request(headers: &[(&str, &str)]) -> HeaderMap {
        let mut request = Request::builder().uri("/api/overview").header(HOST, "127.0.0.1:8080");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0.headers
    }

    #[test]
    fn foreign_origins_are_refused() {
        let check = |origin| check_origin(&request(&[("Origin", origin)]));
        assert_eq!(check_origin(&request(&[])), Ok(()));
        assert_eq!(check("http://127.0.0.1:8080"), Ok(()));
        for origin in [
            "null",
            "",
            "http://evil.example",
            "https://127.0.0.1:8080",
            "http://127.0.0.1:8081",
            "http://127.0.0.1",
            "http://localhost:8080",
            "http://127.0.0.1:8080.evil.example",
        ] {
            let problem = check(origin).unwrap_err();
            assert!(problem.status == 403 && !problem.line.contains('\n'), "{origin}");
        }
        let two = [("Origin", "http://127.0.0.1:8080"), ("Origin", "http://evil.example")];
        assert!(check_origin(&request(&two)).is_err());
    }

    #[test]
    fn wrong_tokens_are_refused() {
        let token = Token::new().unwrap();
        let right = format!("Bearer {}", token.text());
        assert_eq!(check_token(&request(&[("Authorization", &right)]), &token), Ok(()));
        let basic = format!("Basic {}", token.text());
        for wrong in ["", "Bearer", "Bearer ", "Bearer 0", &basic, token.text()] {
            let problem = check_token(&request(&[("Authorization", wrong)]), &token).unwrap_err();
            assert!(problem.status == 403 && !problem.line.contains('\n'), "{wrong}");
            assert!(!problem.line.contains(token.text()));
        }
        assert!(check_token(&request(&[]), &token).is_err());
        let twice = [("Authorization", right.as_str()), ("Authorization", &right)];
        assert!(check_token(&request(&twice), &token).is_err());
    }
}
