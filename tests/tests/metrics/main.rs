//! `samplerd --http`: metrics that agree with all other answers, profiles that the tools of pprof
//! fetch, and refusals for everybody else.

mod counters;
mod dashboard;
mod pprof;
mod refused;

use anyhow::{Context, Result, ensure};
use sampler_tests::exposition::Exposition;
use sampler_tests::{Daemon, Workload, http};
use std::net::SocketAddr;

/// A daemon with HTTP, and its address.
struct Served {
    daemon: Daemon,
    address: SocketAddr,
}

impl Served {
    fn start(pids: &[u32], arguments: &[&str]) -> Result<Served> {
        let arguments = [&["--http", "127.0.0.1:0"], arguments].concat();
        let mut daemon = Daemon::start(pids, &arguments)?;
        let line = daemon.child().line()?;
        let url = line.strip_prefix("http http://").and_then(|url| url.strip_suffix('/'));
        let address: SocketAddr = url.with_context(|| format!("no URL in {line:?}"))?.parse()?;
        ensure!(address.port() != 0, "port 0 is no port");
        Ok(Served { daemon, address })
    }

    /// A page that must exist.
    fn page(&self, path: &str) -> Result<http::Answer> {
        let answer = http::get(self.address, path)?;
        ensure!(answer.status == 200, "{path}: {} {:?}", answer.status, answer.text());
        Ok(answer)
    }

    fn metrics(&self) -> Result<Exposition> {
        let answer = self.page("/metrics")?;
        let kind = answer.header("content-type").unwrap_or_default();
        ensure!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
        Exposition::parse(answer.text()?)
    }
}

/// A program that allocates 100 bytes every millisecond, all of them sampled.
fn ticking() -> Result<(Workload, Served)> {
    let mut workload = Workload::edge(&["ticks"])?;
    let served = Served::start(&[workload.pid()], &["--interval", "1"])?;
    workload.go()?;
    workload.truth()?;
    Ok((workload, served))
}
