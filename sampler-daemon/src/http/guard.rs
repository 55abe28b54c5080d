//! Who may ask, and how: only by GET and HEAD, and only by a name of this server.
//!
//! A web page can make its visitor's browser send a request to any address. The page must not read
//! the answer. It may read the answer if its host name is that of the address. The owner of a name
//! can point the name to 127.0.0.1 after the page was loaded (DNS rebinding). Such a request
//! carries the page's name in its `Host` header.

use super::answer::Problem;
use super::escape::shown;
use axum::extract::{Request, State};
use axum::http::header::HOST;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use std::net::IpAddr;
use std::sync::Arc;

/// The local address of the connection that a request came on.
#[derive(Clone, Copy)]
pub(super) struct Local(pub(super) IpAddr);

/// The names by which requests may address the server.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    /// Accepted names in lower case, in addition to `localhost` and addresses.
    names: Vec<String>,
    /// Advice for a request that uses an unknown name.
    remedy: &'static str,
}

impl Guard {
    pub(super) fn new(names: &[String]) -> Guard {
        Guard {
            names: names.iter().map(|name| name.to_ascii_lowercase()).collect(),
            remedy: "use its address, or start samplerd with --http-host NAME",
        }
    }

    /// Accepts no names but `localhost`.
    pub(super) fn by_address() -> Guard {
        Guard { names: Vec::new(), remedy: "use its address" }
    }

    /// Passes on a request that [`Guard::check`] accepts. Every server has this layer.
    pub(super) async fn admit(
        State(guard): State<Arc<Guard>>,
        request: Request,
        next: Next,
    ) -> Result<Response, Problem> {
        guard.check(&request)?;
        Ok(next.run(request).await)
    }

    fn check<B>(&self, request: &axum::http::Request<B>) -> Result<(), Problem> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let method = shown(request.method().as_str());
            let line = format!("method {method}: nothing is changed here (use GET)");
            return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, line));
        }
        let mut hosts = request.headers().get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().unwrap_or_default(),
            (None, _) => return Err(Problem::bad("no Host (send one, as HTTP/1.1 asks for)")),
            _ => return Err(Problem::bad("more than one Host (send one)")),
        };
        // A request to a proxy names the host in its target too.
        let named = request.uri().authority().map(|authority| authority.as_str());
        let local = request.extensions().get::<Local>();
        for name in [Some(host), named].into_iter().flatten() {
            if !self.knows(name, local) {
                let line =
                    format!("host {}: not a name of this server ({})", shown(name), self.remedy);
                return Err(Problem::new(StatusCode::FORBIDDEN, line));
            }
        }
        Ok(())
    }

    fn knows(&self, host: &str, local: Option<&Local>) -> bool {
        let Some(name) = without_port(host) else { return false };
        if let Ok(ip) = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            // An address, unlike a name, cannot be pointed elsewhere.
            let is_local = |local: &Local| ip.to_canonical() == local.0.to_canonical();
            return ip.is_loopback() || local.is_some_and(is_local);
        }
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        name == "localhost" || self.names.contains(&name)
    }
}

/// Returns `name`, `name:80`, `127.0.0.1:80` or `[::1]:80` without its port; `None` for anything
/// else.
fn without_port(host: &str) -> Option<&str> {
    let end = match host.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at_checked(end)?;
    let is_port = match port.strip_prefix(':') {
        Some(digits) => digits.parse::<u16>().is_ok(),
        None => port.is_empty(),
    };
    (is_port && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn status(method: &str, uri: &str, hosts: &[&str]) -> Option<u16> {
        let mut request = Request::builder().method(method).uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let local = Local(IpAddr::from([10, 0, 0, 5]));
        let request = request.extension(local).body(()).unwrap();
        let guard = Guard::new(&["Build-7.example".to_owned()]);
        let problem = guard.check(&request).err()?;
        assert!(!problem.line.contains('\n') && problem.line.len() < 200, "{}", problem.line);
        Some(problem.status.as_u16())
    }

    #[test]
    fn only_allowed_hosts_are_accepted() {
        for host in [
            "localhost",
            "LocalHost:9464",
            "127.0.0.1",
            "127.0.0.1:9464",
            "[::1]:9464",
            "10.0.0.5:1",
            "build-7.EXAMPLE:80",
            "localhost.",
        ] {
            assert_eq!(status("GET", "/metrics", &[host]), None, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:9464",
            "10.0.0.6",
            "",
            ":80",
            "localhost:x",
            "[::1",
            "[::1]x",
            "user@localhost",
            "127.0.0.1:9464:1",
        ] {
            assert_eq!(status("GET", "/metrics", &[host]), Some(403), "{host}");
        }
        assert_eq!(status("GET", "/metrics", &[]), Some(400));
        assert_eq!(status("GET", "/metrics", &["localhost", "localhost"]), Some(400));
        assert_eq!(status("GET", "http://evil.example/metrics", &["localhost"]), Some(403));
    }

    #[test]
    fn only_reading_methods_are_accepted() {
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "X"] {
            assert_eq!(status(method, "/metrics", &["localhost"]), Some(405), "{method}");
        }
        assert_eq!(status("HEAD", "/metrics", &["localhost"]), None);
    }
}
