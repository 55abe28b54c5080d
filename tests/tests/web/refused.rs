//! Requests that get nothing but one line.

use super::Served;
use anyhow::{Result, ensure};
use sampler_tests::daemon::samplerd;
use sampler_tests::{Workload, http};

/// Checks the status of a refusal, and that its line contains `words`.
fn refused(answer: &http::Answer, status: u16, words: &str) -> Result<()> {
    let text = answer.text()?;
    ensure!(answer.status == status, "{} and not {status}: {text}", answer.status);
    ensure!(text.lines().count() == 1 && text.ends_with('\n'), "not one line: {text:?}");
    ensure!(text.contains(words), "{words:?} is not in {text:?}");
    Ok(())
}

#[test]
fn requests_without_the_token_are_refused() -> Result<()> {
    let workload = Workload::edge(&["odd"])?;
    let served = Served::start(&[workload.pid()], &[])?;
    let bearer = format!("Bearer {}", served.token);
    let wrong = format!("Bearer {}", served.token.replace(|c: char| c.is_ascii_digit(), "f"));
    for path in [
        "/api/overview",
        "/api/graph",
        "/api/graph?kind=wrong",
        "/api/table?snapshot=1",
        "/api/matches?snapshot=1&q=a",
        "/api/download?snapshot=1&format=json",
        "/api/history",
        "/api/difference",
        "/api/leaks",
        "/api/lifetimes",
        "/nothing",
    ] {
        refused(&served.send(path, &[])?, 403, "no token")?;
        refused(&served.send(path, &[("Authorization", &wrong)])?, 403, "wrong token")?;
        refused(
            &served.send(path, &[("Cookie", &format!("token={}", served.token))])?,
            403,
            "no token",
        )?;
        let requested =
            format!("{path}{}token={}", if path.contains('?') { '&' } else { '?' }, served.token);
        refused(&served.send(&requested, &[])?, 403, "no token")?;
    }
    let own = format!("http://{}", served.address);
    let headers = |origin| [("Authorization", bearer.as_str()), ("Origin", origin)];
    ensure!(served.send("/api/overview", &headers(&own))?.status == 200, "its own origin");
    for origin in ["http://evil.example", "null", "http://127.0.0.1:1"] {
        for path in ["/api/overview", "/"] {
            refused(&served.send(path, &headers(origin))?, 403, "origin")?;
        }
    }
    for host in ["evil.example", "localhost.evil.example:80", "10.9.8.7"] {
        let request = format!(
            "GET /api/overview HTTP/1.1\r\nHost: {host}\r\nAuthorization: {bearer}\r\n\r\n"
        );
        refused(&http::send(served.address, &request)?, 403, "host")?;
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let answer = http::ask(served.address, method, "/api/graph", &served.address.to_string())?;
        refused(&answer, 405, "use GET")?;
    }
    for (path, status, words) in [
        ("/api/graph?kind=wrong", 400, "alloc, live"),
        ("/api/graph?pid=4194999", 400, "4194999"),
        ("/api/table?snapshot=99", 410, "refresh"),
        ("/nothing", 404, "no such page"),
    ] {
        refused(&served.get(path)?, status, words)?;
    }
    // The page itself is the same for every client.
    let page = served.send("/", &[])?;
    let policy = page.header("content-security-policy").unwrap_or_default();
    ensure!(page.status == 200 && policy.contains("default-src 'none'"), "{policy}");
    ensure!(!policy.contains("inline") && !policy.contains("eval"), "{policy}");
    ensure!(!page.text()?.contains(&served.token), "the token is in the page");
    for (name, value) in [("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer")]
    {
        ensure!(page.header(name) == Some(value), "{name}: {:?}", page.header(name));
    }
    ensure!(!served.daemon.log().contains(&served.token), "the token is in the log");
    served.daemon.stop()
}

#[test]
fn wrong_web_options_are_refused() -> Result<()> {
    let pid = std::process::id().to_string();
    for (address, words) in [
        ("0.0.0.0:0", "127.0.0.1:PORT"),
        ("[::]:8080", "127.0.0.1:PORT"),
        ("192.0.2.1:8080", "127.0.0.1:PORT"),
        ("localhost:8080", "127.0.0.1"),
        ("8080", "127.0.0.1"),
    ] {
        let listen = "unix:/tmp/never-web.sock";
        let finished = samplerd(&["--pid", &pid, "--listen", listen, "--web", address])?;
        let said = &finished.stderr;
        ensure!(finished.code() == 2, "{address}: {} {said}", finished.code());
        ensure!(said.lines().count() <= 6 && said.contains(words), "{address}: {said}");
    }
    Ok(())
}
