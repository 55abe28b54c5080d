//! Which page is asked for.

use super::answer::{self, Answer, Problem};
use super::escape::shown;
use super::guard::Guard;
use super::listen::Place;
use super::metrics::Metrics;
use super::pprof::{MAKING, Profiles};
use super::query::Query;
use super::serve::Site;
use crate::pipeline::{Names, Profiler};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use sampler_common::profile::Kind;
use std::net::IpAddr;
use std::time::Duration;

/// What there is, for people.
const INDEX: &str = "\
samplerd

/metrics              for Prometheus: losses, outcomes, own cost, latencies
/debug/pprof/heap     what is held, for go tool pprof
/debug/pprof/allocs   what was allocated since attach

Both profiles take ?seconds=N (what came in the next N seconds), pid=, comm=,
exe= and cgroup= (repeatable), for example:

  go tool pprof -top 'http://ADDRESS/debug/pprof/heap?seconds=30&comm=redis*'
";

/// How long an answer without a wait of its own may take.
const QUICK: Duration = Duration::from_secs(10);

/// Metrics and profiles.
pub(super) struct HttpSite {
    guard: Guard,
    metrics: Metrics,
    profiles: Profiles,
}

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Page {
    Index,
    Metrics,
    Profile(Kind, Query),
}

impl HttpSite {
    pub(super) fn new(place: &Place, profiler: Profiler, names: Names) -> HttpSite {
        HttpSite {
            guard: Guard::new(&place.names),
            metrics: Metrics::new(profiler.clone()),
            profiles: Profiles::new(profiler, names),
        }
    }
}

impl Site for HttpSite {
    type Page = Page;

    fn page(&self, request: &Parts, local: IpAddr) -> Result<Page, Problem> {
        self.guard.check(request, local)?;
        page(request.uri.path(), request.uri.query().unwrap_or_default())
    }

    fn limit(&self, page: &Page) -> Duration {
        match page {
            Page::Index | Page::Metrics => QUICK,
            Page::Profile(_, query) => MAKING + query.over.unwrap_or_default(),
        }
    }

    async fn answer(&self, page: Page, method: &Method) -> Result<Answer, Problem> {
        match page {
            // Nobody reads it.
            Page::Profile(kind, _) if method == Method::HEAD => {
                Ok(answer::file(super::pprof::name(kind), Vec::new()))
            }
            Page::Index => Ok(answer::text(INDEX)),
            Page::Metrics => Ok(answer::metrics(self.metrics.page().await?)),
            Page::Profile(kind, query) => self.profiles.answer(kind, query).await,
        }
    }
}

fn page(path: &str, query: &str) -> Result<Page, Problem> {
    Ok(match path {
        "/" | "/debug/pprof/" | "/debug/pprof" => Page::Index,
        // What scrapers add by themselves is no question of ours.
        "/metrics" => Page::Metrics,
        "/debug/pprof/heap" => Page::Profile(Kind::Live, Query::parse(query)?),
        "/debug/pprof/allocs" => Page::Profile(Kind::Alloc, Query::parse(query)?),
        _ => {
            let line = format!(
                "{}: no such page (there are /metrics, /debug/pprof/heap and /debug/pprof/allocs)",
                shown(path)
            );
            return Err(Problem::new(StatusCode::NOT_FOUND, line));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages() {
        assert_eq!(page("/", ""), Ok(Page::Index));
        assert_eq!(page("/metrics", "collect[]=x"), Ok(Page::Metrics));
        let Ok(Page::Profile(Kind::Live, query)) = page("/debug/pprof/heap", "seconds=5") else {
            panic!("heap is live");
        };
        assert_eq!(query.over, Some(Duration::from_secs(5)));
        assert!(matches!(page("/debug/pprof/allocs", ""), Ok(Page::Profile(Kind::Alloc, _))));
        assert_eq!(page("/debug/pprof/heap", "seconds=x").unwrap_err().status, 400);
        for path in ["/debug/pprof/profile", "/metrics/", "//metrics", "/../etc/passwd", "*", ""] {
            assert_eq!(page(path, "").unwrap_err().status, 404, "{path}");
        }
        assert!(INDEX.lines().all(|line| line.chars().count() <= 80));
    }
}
