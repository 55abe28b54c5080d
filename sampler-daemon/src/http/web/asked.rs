//! What the page asks for.

use super::files::{File, file};
use crate::http::answer::Problem;
use crate::http::escape::shown;
use crate::http::query::{criterion, pairs};
use crate::pipeline::{AskedWindow, HistoryRequest, ProfileRequest, Scope};
use crate::store::Selector;
use hyper::StatusCode;
use sampler_common::encode::Measure;
use sampler_common::estimate::Confidence;
use sampler_common::profile::Kind;

/// How far back a history goes if nobody says.
const DEFAULT_SECONDS: u64 = 120;

/// A question.
#[derive(Debug)]
pub(super) enum Asked {
    /// A file of the page.
    File(&'static File),
    /// The daemon and its processes.
    Overview,
    /// A new profile, drawn.
    Graph(ProfileRequest, Measure),
    /// Functions of a profile that was drawn.
    Table(u64, Measure),
    /// What a search finds in it.
    Matches(u64, Measure, String),
    /// All of it, in a format.
    Download(u64, String),
    /// What was allocated when.
    History(HistoryRequest, Measure),
    /// What changed from one window to another.
    Difference(Box<[ProfileRequest; 2]>),
}

/// What stands behind the `?`.
#[derive(Default)]
struct Values {
    kind: Option<Kind>,
    measure: Option<Measure>,
    selector: Selector,
    /// Times since the Unix epoch; a difference has two windows.
    since: [Option<u64>; 2],
    until: [Option<u64>; 2],
    snapshot: Option<u64>,
    /// Seconds of history.
    seconds: Option<u64>,
    format: String,
    text: String,
}

impl Asked {
    /// By its path and what stands behind the `?`.
    pub(super) fn parse(path: &str, query: &str) -> Result<Asked, Problem> {
        if let Some(file) = file(path) {
            return Ok(Asked::File(file));
        }
        let values = || Values::parse(query);
        Ok(match path {
            "/api/overview" => Asked::Overview,
            "/api/graph" => {
                let values = values()?;
                Asked::Graph(values.profile(0), values.measure())
            }
            "/api/table" => {
                let values = values()?;
                Asked::Table(values.snapshot()?, values.measure())
            }
            "/api/matches" => {
                let values = values()?;
                Asked::Matches(values.snapshot()?, values.measure(), values.text)
            }
            "/api/download" => {
                let values = values()?;
                Asked::Download(values.snapshot()?, values.format)
            }
            "/api/history" => {
                let values = values()?;
                let seconds = values.seconds.unwrap_or(DEFAULT_SECONDS);
                let (measure, span_ns) = (values.measure(), seconds.saturating_mul(1_000_000_000));
                Asked::History(HistoryRequest { selector: values.selector, span_ns }, measure)
            }
            "/api/difference" => {
                let values = values()?;
                Asked::Difference(Box::new([values.profile(0), values.profile(1)]))
            }
            _ => {
                let line = format!("{}: no such page (there is /)", shown(path));
                return Err(Problem::new(StatusCode::NOT_FOUND, line));
            }
        })
    }

    /// Whether it tells nothing of what is profiled.
    pub(super) fn is_public(&self) -> bool {
        matches!(self, Asked::File(_))
    }
}

impl Values {
    fn parse(query: &str) -> Result<Values, Problem> {
        let mut values = Values::default();
        for pair in pairs(query) {
            let (key, value) = pair?;
            let number = || {
                let number = value.parse::<u64>();
                number.map(Some).map_err(|_| wrong(key, &value, "a whole number"))
            };
            match key {
                "kind" => {
                    let kind = Kind::from_name(&value);
                    let kind =
                        kind.ok_or_else(|| wrong(key, &value, "alloc, live, peak or mapped"))?;
                    values.kind = Some(kind);
                }
                "measure" => {
                    let measure = [Measure::Space, Measure::Objects]
                        .into_iter()
                        .find(|of| of.name() == value);
                    let measure = measure.ok_or_else(|| wrong(key, &value, "space or objects"))?;
                    values.measure = Some(measure);
                }
                "pid" | "comm" | "exe" | "cgroup" => {
                    values.selector.criteria.push(criterion(key, &value)?);
                }
                "since" => values.since[0] = number()?,
                "until" => values.until[0] = number()?,
                "b_since" => values.since[1] = number()?,
                "b_until" => values.until[1] = number()?,
                "snapshot" => values.snapshot = number()?,
                "seconds" => values.seconds = number()?,
                "format" => values.format = value,
                "q" => values.text = value,
                _ => return Err(Problem::bad(format!("{}: unknown", shown(key)))),
            }
        }
        Ok(values)
    }

    fn measure(&self) -> Measure {
        self.measure.unwrap_or(Measure::Space)
    }

    fn snapshot(&self) -> Result<u64, Problem> {
        self.snapshot.ok_or_else(|| Problem::bad("no snapshot (give the number that a graph has)"))
    }

    /// A profile of a window; of everything where none is given.
    fn profile(&self, side: usize) -> ProfileRequest {
        let window = match (self.since[side], self.until[side]) {
            (None, None) => None,
            (since, until) => Some(AskedWindow::Between(since, until)),
        };
        ProfileRequest {
            kind: self.kind.unwrap_or(Kind::Live),
            selector: self.selector.clone(),
            confidence: Confidence::DEFAULT,
            estimator: None,
            top: 0,
            functions: 0,
            scope: Scope { window, ..Scope::ALL },
        }
    }
}

fn wrong(key: &str, value: &str, known: &str) -> Problem {
    Problem::bad(format!("{key}={}: makes no sense (give {known})", shown(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions() {
        let graph = Asked::parse("/api/graph", "kind=alloc&measure=objects&pid=7&since=5&until=9");
        let Ok(Asked::Graph(request, Measure::Objects)) = graph else { panic!("{graph:?}") };
        assert_eq!((request.kind, request.top), (Kind::Alloc, 0));
        assert_eq!(request.selector.to_string(), "pid:7");
        assert_eq!(request.scope.window, Some(AskedWindow::Between(Some(5), Some(9))));
        let Ok(Asked::Matches(3, Measure::Space, text)) =
            Asked::parse("/api/matches", "snapshot=3&q=%3Cscript%3E%26")
        else {
            panic!("a search");
        };
        assert_eq!(text, "<script>&");
        assert!(Asked::parse("/", "").unwrap().is_public());
        assert!(!Asked::parse("/api/overview", "").unwrap().is_public());
    }

    #[test]
    fn what_makes_no_sense_is_named_in_a_line() {
        for (path, query) in [
            ("/api/graph", "kind=x"),
            ("/api/graph", "measure=bytes"),
            ("/api/graph", "pid=0"),
            ("/api/graph", "since=-1"),
            ("/api/graph", "top=3"),
            ("/api/table", ""),
            ("/api/table", "snapshot=x"),
            ("/api/matches", "q=%ff"),
            ("/api/graph", "%0a=1"),
        ] {
            let problem = Asked::parse(path, query).unwrap_err();
            assert_eq!(problem.status.as_u16(), 400, "{path}?{query}");
            assert!(!problem.line.contains('\n'), "{}", problem.line);
        }
        for path in ["/api", "/api/", "//", "/../x", "/index.html", "/static/app.js", "*", ""] {
            assert_eq!(Asked::parse(path, "").unwrap_err().status.as_u16(), 404, "{path}");
        }
    }
}
