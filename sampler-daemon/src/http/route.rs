//! The routes of `--http`: the pages for metrics and profiles.

use super::answer::{Answer, Problem, of_type, with_headers};
use super::guard::Guard;
use super::listen::HttpAddress;
use super::metrics::Metrics;
use super::pprof::{PROFILE_TIMEOUT, Profiles, file};
use super::query::{MAX_SECONDS, Query};
use crate::export::Exports;
use crate::pipeline::{Names, Profiler};
use axum::Router;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::get;
use sampler_common::profile::Kind;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The index of the pages, for people.
const INDEX: &str = "\
samplerd

/metrics              for Prometheus: losses, outcomes, own cost, latencies
/debug/pprof/heap     what is held, for go tool pprof
/debug/pprof/allocs   what was allocated since attach

Both profiles take ?seconds=N (what came in the next N seconds), pid=, comm=,
exe= and cgroup= (repeatable), for example:

  go tool pprof -top 'http://ADDRESS/debug/pprof/heap?seconds=30&comm=redis*'
";

/// Time limit of an answer.
pub(super) const ANSWER_TIMEOUT: Duration =
    PROFILE_TIMEOUT.saturating_add(Duration::from_secs(MAX_SECONDS));
/// Time limit of metrics.
const QUICK: Duration = Duration::from_secs(10);
/// The version of the Prometheus text format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Makes the router of the pages. It answers only requests for a host name that `place` has.
pub(super) fn router(
    place: &HttpAddress,
    profiler: Profiler,
    names: Names,
    exports: Exports,
) -> Router {
    let guard = Arc::new(Guard::new(&place.names));
    let profiles = Arc::new(Profiles::new(profiler.clone(), names));
    let heap = |state, method, query| profile(state, method, Kind::Live, query);
    let allocs = |state, method, query| profile(state, method, Kind::Alloc, query);
    Router::new()
        .route("/debug/pprof/heap", get(heap))
        .route("/debug/pprof/allocs", get(allocs))
        .with_state(profiles)
        // The query is ignored, because scrapers add keys of their own.
        .route("/metrics", get(metrics))
        .with_state(Arc::new(Metrics::new(profiler, exports)))
        .route("/", get(INDEX))
        .route("/debug/pprof", get(INDEX))
        .route("/debug/pprof/", get(INDEX))
        .fallback(no_page)
        .layer(from_fn_with_state(guard, Guard::admit))
        .layer(map_response(finished))
}

async fn metrics(State(metrics): State<Arc<Metrics>>) -> Answer {
    let late = |_| Problem::new(StatusCode::GATEWAY_TIMEOUT, "not made in time (try again later)");
    let page = timeout(QUICK, metrics.page()).await.map_err(late)??;
    Ok(of_type(METRICS, page))
}

async fn profile(
    State(profiles): State<Arc<Profiles>>,
    method: Method,
    kind: Kind,
    query: Query,
) -> Answer {
    match method {
        // A client that sends HEAD reads no contents.
        Method::HEAD => file(kind, Vec::new()),
        _ => profiles.answer(kind, query).await,
    }
}

async fn finished(answer: Response) -> Response {
    with_headers(answer, &[])
}

async fn no_page(uri: Uri) -> Problem {
    Problem::no_page(&uri, "are /metrics, /debug/pprof/heap and /debug/pprof/allocs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::Request;
    use tower::ServiceExt as _;

    /// Tests the status of each page while the daemon shuts down. A page that needs the event loop
    /// answers with 503.
    #[tokio::test]
    async fn pages_answer_with_their_status_while_stopping() {
        let place = HttpAddress::new("127.0.0.1:0".parse().unwrap(), Vec::new(), false).unwrap();
        let router = router(
            &place,
            Profiler::stopped(),
            Names::start(std::path::Path::new("samplerd"), None).unwrap(),
            Exports::default(),
        );
        for (status, paths) in [
            (200, &["/", "/debug/pprof", "/debug/pprof/"][..]),
            (400, &["/debug/pprof/heap?seconds=x"]),
            (503, &["/metrics?collect[]=x", "/debug/pprof/heap?seconds=5", "/debug/pprof/allocs"]),
            (404, &["/debug/pprof/profile", "/metrics/", "//metrics", "/../etc/passwd", "*"]),
        ] {
            for path in paths {
                let request = Request::get(*path).header("Host", "localhost");
                let answer = router.clone().oneshot(request.body(Body::empty()).unwrap()).await;
                assert_eq!(answer.unwrap().status(), status, "{path}");
            }
        }
        assert!(INDEX.lines().all(|line| line.chars().count() <= 80));
    }
}
