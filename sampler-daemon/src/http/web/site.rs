//! The answers to the page's requests.

use super::difference::difference;
use super::files::{guarded, with_files};
use super::history::json as history_json;
use super::overview::overview as overview_json;
use super::page_request::PageRequest;
use super::secrecy::{from_ours, with_token};
use super::snapshots::Snapshots;
use crate::http::answer::{Answer, BINARY, Problem, of_type};
use crate::http::escape::shown;
use crate::http::guard::Guard;
use crate::pipeline::{
    ListRequest, Names, ProfileRequest, Profiler, assemble, assemble_leaks, assemble_lifetimes,
};
use crate::token::Token;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::routing::get;
use sampler_common::encode::text::Text;
use sampler_common::encode::{Format, leaks as of_leaks, lifetimes as of_lifetimes, view};
use sampler_common::profile::Profile;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tower::limit::GlobalConcurrencyLimitLayer;

/// Maximum number of drawn frames. The frames with the smallest numbers are left out, and counted.
const MAX_FRAMES: usize = 20_000;
/// Maximum number of functions in the table.
const MAX_FUNCTIONS: usize = 1000;
/// Maximum number of stacks in a table.
pub(super) const MAX_STACKS: usize = 500;
/// Maximum number of requests that are answered at a time. Further requests wait.
const AT_ONCE: usize = 4;
/// Time limit of an answer.
pub(super) const MAX_ANSWER_TIME: Duration = Duration::from_secs(60);

const JSON: &str = "application/json";

/// The sources of the answers.
struct WebSite {
    profiles: Profiles,
    snapshots: Snapshots,
}

/// Makes profiles, as the API does.
pub(super) struct Profiles {
    profiler: Profiler,
    names: Names,
}

impl Profiles {
    /// Makes a profile with all its stacks.
    pub(super) async fn make(&self, request: ProfileRequest) -> Result<Profile, Problem> {
        let raw = self.profiler.profile(request).await?.map_err(Problem::bad)?;
        Ok(assemble(raw, &self.names).await)
    }
}

impl WebSite {
    fn snapshot(&self, number: u64) -> Result<Arc<Profile>, Problem> {
        self.snapshots.get(number).ok_or_else(|| {
            let line = format!("snapshot {number}: gone, there are newer ones (refresh)");
            Problem::new(StatusCode::GONE, line)
        })
    }
}

type Site = State<Arc<WebSite>>;

/// The router: the page's files for everybody, everything else only with the token.
pub(super) fn router(token: Token, profiler: Profiler, names: Names) -> Router {
    let profiles = Profiles { profiler, names };
    let site = Arc::new(WebSite { profiles, snapshots: Snapshots::default() });
    let router = Router::new()
        .route("/api/overview", get(overview))
        .route("/api/graph", get(graph))
        .route("/api/table", get(table))
        .route("/api/matches", get(matches))
        .route("/api/download", get(download))
        .route("/api/history", get(history))
        .route("/api/difference", get(compare))
        .route("/api/leaks", get(leaks))
        .route("/api/lifetimes", get(lifetimes))
        .layer(GlobalConcurrencyLimitLayer::new(AT_ONCE))
        .fallback(async |uri: Uri| Problem::no_page(&uri, "is /"))
        // A request without the token gets the same answer for every path.
        .layer(from_fn_with_state(token, with_token));
    with_files(router)
        .layer(from_fn(from_ours))
        .layer(from_fn_with_state(Arc::new(Guard::by_address()), Guard::admit))
        .layer(map_response(guarded))
        .with_state(site)
}

async fn overview(State(site): Site) -> Answer {
    let profiler = &site.profiles.profiler;
    let mut status = profiler.status().await?.map_err(Problem::broken)?;
    status.blind_spots.extend(site.profiles.names.limits());
    let request = ListRequest { fold_exited: true, ..ListRequest::default() };
    let listing = profiler.processes(request).await?.map_err(Problem::broken)?;
    let body = serde_json::to_vec(&overview_json(&status, &listing));
    Ok(of_type(JSON, body.map_err(Problem::broken)?))
}

/// Makes a new profile and draws it.
async fn graph(State(site): Site, request: PageRequest) -> Answer {
    let profile = Arc::new(site.profiles.make(request.profile(0)).await?);
    let number = site.snapshots.keep(Arc::clone(&profile));
    written(JSON, move |out| {
        out.extend_from_slice(format!("{{\"snapshot\":{number},\"graph\":").as_bytes());
        view::graph(&profile, request.measure(), MAX_FRAMES, out)?;
        out.push(b'}');
        Ok(())
    })
    .await
}

/// The functions of a drawn profile.
async fn table(State(site): Site, request: PageRequest) -> Answer {
    let profile = site.snapshot(request.snapshot()?)?;
    written(JSON, move |out| view::table(&profile, request.measure(), MAX_FUNCTIONS, out)).await
}

/// The matches of a search in a drawn profile.
async fn matches(State(site): Site, request: PageRequest) -> Answer {
    let profile = site.snapshot(request.snapshot()?)?;
    written(JSON, move |out| view::matches(&profile, request.measure(), &request.text, out)).await
}

/// A drawn profile as a file in a format.
async fn download(State(site): Site, request: PageRequest) -> Answer {
    let profile = site.snapshot(request.snapshot()?)?;
    let Some(format) = Format::parse(&request.format) else {
        return Err(Problem::bad(format!("format {}: is none", shown(&request.format))));
    };
    written(BINARY, move |out| format.encoder(FILE_TABLE).encode(&profile, out)).await
}

async fn history(State(site): Site, request: PageRequest) -> Answer {
    let measure = request.measure();
    let history = site.profiles.profiler.history(request.history()).await?;
    Ok(of_type(JSON, history_json(&history.map_err(Problem::bad)?, measure)?))
}

/// Compares two windows.
async fn compare(State(site): Site, request: PageRequest) -> Answer {
    let sides = [request.profile(0), request.profile(1)];
    Ok(of_type(JSON, difference(&site.profiles, sides).await?))
}

/// The stacks whose held bytes grow, with the answer in one sentence.
async fn leaks(State(site): Site, request: PageRequest) -> Answer {
    let Profiles { profiler, names } = &site.profiles;
    let raw = profiler.leaks(request.leaks(MAX_STACKS)).await?.map_err(Problem::bad)?;
    let leaks = assemble_leaks(raw, names).await.map_err(Problem::broken)?;
    let mut object = of_leaks::object(&leaks);
    object["answer"] = of_leaks::answer(&leaks).into();
    for (at, leak) in leaks.stacks.iter().enumerate() {
        object["stacks"][at]["site"] = of_leaks::site(&leak.frames).into();
    }
    Ok(of_type(JSON, serde_json::to_vec(&object).map_err(Problem::broken)?))
}

/// The lifetimes of memory, by stack.
async fn lifetimes(State(site): Site, request: PageRequest) -> Answer {
    let Profiles { profiler, names } = &site.profiles;
    let raw = profiler.lifetimes(request.lifetimes(MAX_STACKS)).await?.map_err(Problem::bad)?;
    let object = of_lifetimes::json(&assemble_lifetimes(raw, names).await);
    Ok(of_type(JSON, serde_json::to_vec(&object).map_err(Problem::broken)?))
}

/// The answer that `write` writes, on a thread for blocking work.
async fn written(
    kind: &'static str,
    write: impl FnOnce(&mut Vec<u8>) -> io::Result<()> + Send + 'static,
) -> Answer {
    let writing = tokio::task::spawn_blocking(move || {
        let mut out = Vec::new();
        write(&mut out).map(|()| out)
    });
    let written = writing.await.map_err(Problem::broken)?.map_err(Problem::broken)?;
    Ok(of_type(kind, written))
}

/// The layout of a table that is saved as a file.
const FILE_TABLE: Text =
    Text { width: 120, color: false, rows: Text::DEFAULT_ROWS, stacks: Text::DEFAULT_STACKS };

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::Request;
    use tower::ServiceExt as _;

    #[test]
    fn the_page_offers_every_format() {
        let page = include_str!("static/index.html");
        let menu = page.split(r#"<select id="format">"#).nth(1).unwrap_or_default();
        let menu = menu.split("</select>").next().unwrap_or_default();
        let values = menu.split(r#"value=""#).skip(1).filter_map(|rest| rest.split('"').next());
        // The first value is the menu's title.
        let mut offered: Vec<&str> = values.filter(|value| !value.is_empty()).collect();
        let mut known: Vec<&str> = Format::ALL.map(Format::name).to_vec();
        offered.sort_unstable();
        known.sort_unstable();
        assert_eq!(offered, known);
    }

    /// The answer of each page while the daemon shuts down, without the token and with the token.
    #[tokio::test]
    async fn files_need_no_token() {
        let token = Token::new().unwrap();
        let bearer = format!("Bearer {}", token.text());
        let router = router(
            token,
            Profiler::stopped(),
            Names::start(std::path::Path::new("samplerd"), None).unwrap(),
        );
        for (without, with, paths) in [
            (200, 200, &["/", "/app.js"][..]),
            (403, 503, &["/api/overview", "/api/graph", "/api/history", "/api/difference"]),
            (403, 503, &["/api/leaks", "/api/lifetimes"]),
            (403, 400, &["/api/graph?kind=x", "/api/table", "/api/matches?q=x"]),
            (403, 410, &["/api/download?snapshot=1"]),
            (403, 404, &["/api", "/api/", "//", "/../x", "/index.html", "/static/app.js", "*"]),
        ] {
            for path in paths {
                for (status, bearer) in [(without, None), (with, Some(&bearer))] {
                    let mut request = Request::get(*path).header("Host", "127.0.0.1:1");
                    if let Some(bearer) = bearer {
                        request = request.header("Authorization", bearer);
                    }
                    let request = request.body(Body::empty()).unwrap();
                    let answer = router.clone().oneshot(request).await.unwrap();
                    assert_eq!(answer.status(), status, "{path}");
                }
            }
        }
    }
}
