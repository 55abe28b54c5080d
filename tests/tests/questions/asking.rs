//! Queries of every kind, made as clients make them.

use anyhow::{Context, Result, ensure};
use sampler_tests::client::Client;
use sampler_tests::http;
use serde_json::{Value, json};
use std::net::SocketAddr;

pub(crate) const SERVICE: &str = "sampler.v1.Sampler";
/// The one method that changes something.
pub(crate) const SETTER: &str = "SetSampling";

/// A question over gRPC: a method and its request.
pub(crate) struct Question {
    pub(crate) method: &'static str,
    request: Value,
}

/// One query of each kind.
pub(crate) fn questions() -> Vec<Question> {
    let profile = |more: Value| {
        let mut request = json!({"top": 20});
        let fields = more.as_object().into_iter().flatten();
        fields.for_each(|(key, value)| request[key] = value.clone());
        request
    };
    let second = 1_000_000_000_u64;
    let profiles = [
        profile(json!({"kind": "KIND_ALLOC"})),
        profile(json!({"kind": "KIND_ALLOC", "last_ns": 5 * second})),
        profile(json!({"kind": "KIND_ALLOC", "estimator": "calibrated", "confidence": 0.99})),
        profile(json!({"kind": "KIND_ALLOC", "min_size": 100, "max_size": 1000})),
        profile(json!({"kind": "KIND_LIVE"})),
        profile(json!({"kind": "KIND_LIVE", "min_age_ns": second, "functions": 10})),
        profile(json!({"kind": "KIND_LIVE", "selector": {"comms": ["*"]}})),
        profile(json!({"kind": "KIND_PEAK"})),
        profile(json!({"kind": "KIND_MAPPED"})),
    ];
    let other = [
        ("Status", json!({})),
        ("ListProcesses", json!({})),
        ("ListProcesses", json!({"group_by": "comm", "fold_exited": true})),
        ("GetLifetimes", json!({"top": 20})),
        ("GetLeaks", json!({"top": 20})),
        ("Compare", json!({"a": profiles[4].clone(), "b": profiles[4].clone(), "top": 20})),
        ("Plan", json!({"interval_bytes": 4096, "bytes": 1 << 20, "samples": 10})),
        ("WatchProfile", json!({"profile": profiles[4].clone(), "period_ms": 100})),
        ("StreamSamples", json!({})),
    ];
    let profiles = profiles.into_iter().map(|request| ("GetProfile", request));
    let all = profiles.chain(other);
    all.map(|(method, request)| Question { method, request }).collect()
}

/// Makes a query. Only the first answer of a stream is read.
pub(crate) async fn ask(client: &Client, question: &Question) -> Result<()> {
    let Question { method, request } = question;
    let request = request.clone();
    match *method {
        "WatchProfile" | "StreamSamples" => {
            let mut answers = client.stream(SERVICE, method, request).await?;
            answers.next().await?.with_context(|| format!("{method}: no answer"))?;
        }
        method => drop(client.call(SERVICE, method, request).await?),
    }
    Ok(())
}

/// Pages of the two HTTP servers.
pub(crate) struct Pages {
    /// Metrics and pprof.
    http: SocketAddr,
    /// The web page, and its token.
    web: SocketAddr,
    token: String,
}

impl Pages {
    const HTTP: [&str; 3] = ["/metrics", "/debug/pprof/heap", "/debug/pprof/allocs"];
    const WEB: [&str; 5] = [
        "/api/overview",
        "/api/graph?kind=live&measure=space",
        "/api/history?measure=objects&seconds=60",
        "/api/history?measure=space&seconds=10",
        "/api/difference?kind=live",
    ];

    /// Reads the two lines that follow the daemon's `ready`.
    pub(crate) fn read(line: &mut dyn FnMut() -> Result<String>) -> Result<Pages> {
        let [http, web] = [line()?, line()?];
        let http = http.strip_prefix("http http://").and_then(|url| url.strip_suffix('/'));
        let url = web.strip_prefix("web http://").and_then(|url| url.split_once("/#token="));
        let (web, token) = url.with_context(|| web.clone())?;
        let http = http.context("no URL")?.parse()?;
        Ok(Pages { http, web: web.parse()?, token: token.to_owned() })
    }

    /// Fetches every page once.
    pub(crate) fn ask_all(&self) -> Result<()> {
        for path in Self::HTTP {
            let answer = http::get(self.http, path)?;
            ensure!(answer.status == 200, "{path}: {} {:?}", answer.status, answer.text());
        }
        let (host, token) = (self.web, &self.token);
        for path in Self::WEB {
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n"
            );
            let answer = http::send(host, &request)?;
            ensure!(answer.status == 200, "{path}: {} {:?}", answer.status, answer.text());
        }
        Ok(())
    }
}
