//! The page's answers.

use super::asked::Asked;
use super::difference::difference;
use super::files::guarded;
use super::history::json as history_json;
use super::overview::overview;
use super::secrecy::{check_origin, check_token};
use super::snapshots::Snapshots;
use super::token::Token;
use crate::http::answer::{Answer, Problem, of_type};
use crate::http::escape::shown;
use crate::http::guard::Guard;
use crate::http::serve::Site;
use crate::pipeline::{ListRequest, Names, ProfileRequest, Profiler, assemble};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use sampler_common::encode::text::Text;
use sampler_common::encode::{Format, Measure, view};
use sampler_common::profile::Profile;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Frames that are drawn; those with least are left out, and counted.
const MOST_FRAMES: usize = 20_000;
/// Functions in the table.
const MOST_FUNCTIONS: usize = 1000;
/// Profiles and files made at a time; further askers wait.
const AT_ONCE: usize = 4;
/// How long an answer may take.
const MAKING: Duration = Duration::from_secs(60);

const JSON: &str = "application/json";

/// Everything of the page.
pub(super) struct WebSite {
    guard: Guard,
    token: Token,
    profiles: Profiles,
    snapshots: Snapshots,
    places: Semaphore,
}

/// Makes profiles, as the API does.
pub(super) struct Profiles {
    profiler: Profiler,
    names: Names,
}

impl Profiles {
    /// One profile, whole.
    pub(super) async fn make(&self, request: ProfileRequest) -> Result<Profile, Problem> {
        let raw = self.profiler.profile(request).await?.map_err(Problem::bad)?;
        Ok(assemble(raw, &self.names).await)
    }
}

impl WebSite {
    pub(super) fn new(token: Token, profiler: Profiler, names: Names) -> WebSite {
        WebSite {
            guard: Guard::by_address(),
            token,
            profiles: Profiles { profiler, names },
            snapshots: Snapshots::default(),
            places: Semaphore::new(AT_ONCE),
        }
    }

    async fn overview(&self) -> Result<Vec<u8>, Problem> {
        let profiler = &self.profiles.profiler;
        let mut status = profiler.status().await?.map_err(Problem::broken)?;
        status.blind.extend(self.profiles.names.limits());
        let request = ListRequest { fold_exited: true, ..ListRequest::default() };
        let listing = profiler.processes(request).await?.map_err(Problem::broken)?;
        serde_json::to_vec(&overview(&status, &listing))
            .map_err(|error| Problem::broken(error.to_string()))
    }

    async fn graph(&self, request: ProfileRequest, measure: Measure) -> Result<Vec<u8>, Problem> {
        let profile = Arc::new(self.profiles.make(request).await?);
        let number = self.snapshots.keep(Arc::clone(&profile));
        written(move |out| {
            out.extend_from_slice(format!("{{\"snapshot\":{number},\"graph\":").as_bytes());
            view::graph(&profile, measure, MOST_FRAMES, out)?;
            out.push(b'}');
            Ok(())
        })
        .await
    }

    fn snapshot(&self, number: u64) -> Result<Arc<Profile>, Problem> {
        self.snapshots.get(number).ok_or_else(|| {
            let line = format!("snapshot {number}: gone, there are newer ones (refresh)");
            Problem::new(StatusCode::GONE, line)
        })
    }

    async fn download(&self, number: u64, format: &str) -> Result<Vec<u8>, Problem> {
        let profile = self.snapshot(number)?;
        let Some(format) = Format::parse(format) else {
            return Err(Problem::bad(format!("format {}: is none", shown(format))));
        };
        written(move |out| format.encoder(FILE_TABLE).encode(&profile, out)).await
    }
}

impl Site for WebSite {
    type Page = Asked;

    fn page(&self, request: &Parts, local: IpAddr) -> Result<Asked, Problem> {
        self.guard.check(request, local)?;
        check_origin(request)?;
        let asked = Asked::parse(request.uri.path(), request.uri.query().unwrap_or_default());
        if !asked.as_ref().is_ok_and(Asked::is_public) {
            // Who has none is told nothing else.
            check_token(request, &self.token)?;
        }
        asked
    }

    fn limit(&self, _: &Asked) -> Duration {
        MAKING
    }

    async fn answer(&self, asked: Asked, _: &Method) -> Result<Answer, Problem> {
        if let Asked::File(file) = asked {
            return Ok(file.answer());
        }
        // Never closed.
        let _place =
            self.places.acquire().await.map_err(|error| Problem::broken(error.to_string()))?;
        let body = match asked {
            Asked::File(file) => return Ok(file.answer()),
            Asked::Overview => self.overview().await?,
            Asked::Graph(request, measure) => self.graph(request, measure).await?,
            Asked::Table(number, measure) => {
                let profile = self.snapshot(number)?;
                written(move |out| view::table(&profile, measure, MOST_FUNCTIONS, out)).await?
            }
            Asked::Matches(number, measure, text) => {
                let profile = self.snapshot(number)?;
                written(move |out| view::matches(&profile, measure, &text, out)).await?
            }
            Asked::History(request, measure) => {
                let history = self.profiles.profiler.history(request).await?;
                history_json(&history.map_err(Problem::bad)?, measure)?
            }
            Asked::Difference(sides) => difference(&self.profiles, *sides).await?,
            Asked::Download(number, format) => {
                let body = self.download(number, &format).await?;
                return Ok(of_type("application/octet-stream", body));
            }
        };
        Ok(of_type(JSON, body))
    }

    fn finish(&self, answer: Answer) -> Answer {
        guarded(answer)
    }
}

/// What `write` writes, away from the threads that serve.
async fn written(
    write: impl FnOnce(&mut Vec<u8>) -> io::Result<()> + Send + 'static,
) -> Result<Vec<u8>, Problem> {
    let writing = tokio::task::spawn_blocking(move || {
        let mut out = Vec::new();
        write(&mut out).map(|()| out)
    });
    let written = writing.await.map_err(|error| Problem::broken(error.to_string()))?;
    written.map_err(|error| Problem::broken(error.to_string()))
}

/// The layout of a table that is saved as a file.
const FILE_TABLE: Text =
    Text { width: 120, color: false, rows: Text::DEFAULT_ROWS, stacks: Text::DEFAULT_STACKS };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_offers_every_format() {
        let page = include_str!("static/index.html");
        let menu = page.split(r#"<select id="format">"#).nth(1).unwrap_or_default();
        let menu = menu.split("</select>").next().unwrap_or_default();
        let values = menu.split(r#"value=""#).skip(1).filter_map(|rest| rest.split('"').next());
        // The first is the menu's title.
        let mut offered: Vec<&str> = values.filter(|value| !value.is_empty()).collect();
        let mut known: Vec<&str> = Format::ALL.map(Format::name).to_vec();
        offered.sort_unstable();
        known.sort_unstable();
        assert_eq!(offered, known);
    }
}
