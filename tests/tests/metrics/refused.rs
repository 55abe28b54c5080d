//! Queries and command lines that are refused, each in one line.

use super::Served;
use anyhow::{Result, ensure};
use sampler_tests::daemon::samplerd;
use sampler_tests::{Workload, http};
use std::net::TcpListener;

/// Checks the status of a refusal, and that its line contains `words`.
fn refused(answer: &http::Answer, status: u16, words: &str) -> Result<()> {
    let text = answer.text()?;
    ensure!(answer.status == status, "{} and not {status}: {text}", answer.status);
    ensure!(text.lines().count() == 1 && text.ends_with('\n'), "not one line: {text:?}");
    ensure!(text.contains(words), "{words:?} is not in {text:?}");
    ensure!(answer.header("x-content-type-options") == Some("nosniff"), "{answer:?}");
    Ok(())
}

#[test]
fn wrong_http_requests_are_refused() -> Result<()> {
    let mut workload = Workload::edge(&["odd"])?;
    let served = Served::start(&[workload.pid()], &[])?;
    let address = served.address;
    for (path, status, words) in [
        ("/nothing", 404, "/metrics"),
        ("/debug/pprof/profile", 404, "/debug/pprof/heap"),
        ("/debug/pprof/heap?pid=4194999", 404, "4194999"),
        ("/debug/pprof/heap?comm=nobody", 404, "nobody"),
        ("/debug/pprof/heap?pid=x", 400, "pid=12"),
        ("/debug/pprof/heap?seconds=601", 400, "0 to 600"),
        ("/debug/pprof/allocs?seconds=-1", 400, "0 to 600"),
        ("/debug/pprof/allocs?debug=1", 400, "sampler profile"),
        ("/debug/pprof/allocs?%3Cscript%3E=1", 400, "unknown"),
    ] {
        refused(&http::get(address, path)?, status, words)?;
    }
    let host = address.to_string();
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let answer = http::ask(address, method, "/metrics", &host)?;
        refused(&answer, 405, "use GET")?;
        ensure!(answer.header("allow") == Some("GET, HEAD"), "{answer:?}");
    }
    // A page of the web whose name now resolves to this address.
    for host in ["evil.example", "evil.example:80", "localhost.evil.example", "10.9.8.7"] {
        for path in ["/metrics", "/debug/pprof/heap", "/"] {
            refused(&http::ask(address, "GET", path, host)?, 403, "--http-host")?;
        }
    }
    refused(&http::send(address, "GET /metrics HTTP/1.1\r\n\r\n")?, 400, "Host")?;
    let proxied = format!("GET http://evil.example/metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
    refused(&http::send(address, &proxied)?, 403, "evil.example")?;
    for host in [host.clone(), format!("localhost:{}", address.port()), "[::1]".into()] {
        ensure!(http::ask(address, "GET", "/metrics", &host)?.status == 200, "{host}");
    }
    // HEAD returns only the headers.
    for path in ["/metrics", "/debug/pprof/heap?seconds=600", "/"] {
        let answer = http::ask(address, "HEAD", path, &host)?;
        ensure!(answer.status == 200 && answer.body.is_empty(), "{answer:?}");
    }
    // Malformed requests, and one that is too long.
    let long = format!("GET /{} HTTP/1.1\r\nHost: {host}\r\n\r\n", "x".repeat(100_000));
    for rubbish in ["\x16\x03\x01\x02\r\n\r\n", "GET\r\n\r\n", &long] {
        let answer = http::send(address, rubbish);
        ensure!(answer.map_or(true, |answer| (400..500).contains(&answer.status)), "{rubbish:.20}");
    }
    served.metrics()?;
    workload.go()?;
    workload.truth()?;
    workload.exit()?;
    served.daemon.stop()
}

#[test]
fn other_host_names_are_allowed_on_request() -> Result<()> {
    let workload = Workload::edge(&["odd"])?;
    let served = Served::start(&[workload.pid()], &["--http-host", "build-7.example"])?;
    ensure!(http::ask(served.address, "GET", "/metrics", "BUILD-7.example:9464")?.status == 200);
    refused(&http::ask(served.address, "GET", "/metrics", "evil.example")?, 403, "--http-host")?;
    served.daemon.stop()
}

#[test]
fn wrong_http_options_are_refused() -> Result<()> {
    let pid = std::process::id().to_string();
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let in_use = taken.local_addr()?.to_string();
    for (arguments, code, words) in [
        (&["--http", "0.0.0.0:0"][..], 2, "--http-open"),
        (&["--http", "[::]:0"], 2, "--http-open"),
        (&["--http", "9464"], 2, "127.0.0.1:9464"),
        (&["--http", "localhost:9464"], 2, "127.0.0.1:9464"),
        (&["--http-open"], 2, "--http"),
        (&["--http", &in_use], 1, "in use"),
    ] {
        let finished =
            samplerd(&[&["--pid", &pid, "--listen", "unix:/tmp/never.sock"], arguments].concat())?;
        let said = &finished.stderr;
        ensure!(finished.code() == code, "{arguments:?}: {} {said}", finished.code());
        ensure!(said.lines().count() <= 6 && said.contains(words), "{arguments:?}: {said}");
    }
    ensure!(!std::path::Path::new("/tmp/never.sock").exists(), "a socket is left behind");
    Ok(())
}
