//! `samplerd --web`: the page has the numbers of the API, shows any name as text, makes no request
//! to others, and shows nothing without the token.

mod hostile;
mod large;
mod page;
mod refused;

use anyhow::{Context, Result, ensure};
use sampler_tests::browser::Browser;
use sampler_tests::{Daemon, http};
use serde_json::Value;
use std::net::SocketAddr;

/// A daemon with its page.
struct Served {
    daemon: Daemon,
    address: SocketAddr,
    url: String,
    token: String,
}

impl Served {
    fn start(pids: &[u32], arguments: &[&str]) -> Result<Served> {
        let mut daemon = Daemon::start(pids, &[&["--web", "127.0.0.1:0"], arguments].concat())?;
        let line = daemon.child().line()?;
        let url = line.strip_prefix("web ").with_context(|| format!("no URL in {line:?}"))?;
        let (place, token) = url.split_once("/#token=").context("no token in the URL")?;
        let address: SocketAddr =
            place.strip_prefix("http://").context("not http")?.parse().context("the address")?;
        ensure!(address.port() != 0 && token.len() >= 32, "{url}");
        Ok(Served { address, url: url.to_owned(), token: token.to_owned(), daemon })
    }

    /// Sends a request with the token.
    fn get(&self, path: &str) -> Result<http::Answer> {
        self.send(path, &[("Authorization", &format!("Bearer {}", self.token))])
    }

    /// Sends a request with these headers, and `Host`.
    fn send(&self, path: &str, headers: &[(&str, &str)]) -> Result<http::Answer> {
        let lines = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        let lines: String = lines.collect();
        let host = self.address;
        http::send(host, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n"))
    }

    fn json(&self, path: &str) -> Result<Value> {
        let answer = self.get(path)?;
        ensure!(answer.status == 200, "{path}: {} {:?}", answer.status, answer.text());
        Ok(serde_json::from_slice(&answer.body)?)
    }

    /// The page, after it has been drawn.
    fn page(&self) -> Result<Browser> {
        let browser = Browser::start()?;
        browser.open(&self.url)?;
        drawn(&browser)?;
        Ok(browser)
    }
}

/// Waits until the chosen view is visible.
fn drawn(browser: &Browser) -> Result<()> {
    browser.until("the page", "return document.body.dataset.ready").map(drop)
}

/// Value and ends that an element shows, in full precision.
fn numbers(browser: &Browser, selector: &str) -> Result<[f64; 3]> {
    let selector = Value::from(selector);
    let script = format!(
        "const of = document.querySelector({selector})?.dataset; return of && [of.value, of.low, of.high];"
    );
    let shown = browser.run(&script)?;
    let number = |at: usize| shown[at].as_str().and_then(|text| text.parse().ok());
    let numbers = (number(0), number(1), number(2));
    let (Some(value), Some(low), Some(high)) = numbers else {
        anyhow::bail!("{selector} shows no numbers but {shown}");
    };
    Ok([value, low, high])
}

/// Checks that numbers are equal, apart from the order of their addition.
fn ensure_same(what: &str, shown: [f64; 3], expected: [f64; 3]) -> Result<()> {
    let close = |(a, b): (f64, f64)| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
    let same = shown.into_iter().zip(expected).all(close);
    ensure!(same, "{what}: the page shows {shown:?}, the API says {expected:?}");
    Ok(())
}
