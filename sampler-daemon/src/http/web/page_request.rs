//! The requests of the page.

use crate::http::answer::Problem;
use crate::http::escape::shown;
use crate::http::query::{criterion, pairs};
use crate::pipeline::{
    HistoryRequest, LeaksRequest, LifetimesRequest, ProfileRequest, RequestedWindow, Scope,
};
use crate::store::Selector;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use sampler_common::encode::Measure;
use sampler_common::estimate::Confidence;
use sampler_common::profile::Kind;

/// Default length of a history, in seconds.
const DEFAULT_SECONDS: u64 = 120;

/// The parsed part of a URL after the `?`.
#[derive(Debug, Default)]
pub(super) struct PageRequest {
    kind: Option<Kind>,
    measure: Option<Measure>,
    selector: Selector,
    /// Times since the Unix epoch. A difference has two windows.
    since: [Option<u64>; 2],
    until: [Option<u64>; 2],
    snapshot: Option<u64>,
    /// Length of the history, in seconds.
    seconds: Option<u64>,
    pub(super) format: String,
    pub(super) text: String,
}

impl<S: Sync> FromRequestParts<S> for PageRequest {
    type Rejection = Problem;

    async fn from_request_parts(request: &mut Parts, _: &S) -> Result<PageRequest, Problem> {
        PageRequest::parse(request.uri.query().unwrap_or_default())
    }
}

impl PageRequest {
    fn parse(query: &str) -> Result<PageRequest, Problem> {
        let mut values = PageRequest::default();
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

    pub(super) fn measure(&self) -> Measure {
        self.measure.unwrap_or(Measure::Space)
    }

    pub(super) fn snapshot(&self) -> Result<u64, Problem> {
        self.snapshot.ok_or_else(|| Problem::bad("no snapshot (give the number that a graph has)"))
    }

    pub(super) fn history(self) -> HistoryRequest {
        let seconds = self.seconds.unwrap_or(DEFAULT_SECONDS);
        HistoryRequest { selector: self.selector, span_ns: seconds.saturating_mul(1_000_000_000) }
    }

    /// The request for growth over half of the time since attach.
    pub(super) fn leaks(self, top: usize) -> LeaksRequest {
        let (selector, confidence) = (self.selector, Confidence::DEFAULT);
        LeaksRequest { selector, over_ns: None, confidence, top }
    }

    /// The request for lifetimes since attach.
    pub(super) fn lifetimes(self, top: usize) -> LifetimesRequest {
        LifetimesRequest { selector: self.selector, confidence: Confidence::DEFAULT, top }
    }

    /// The request for a profile of a window; of everything since the attach if no window is given.
    pub(super) fn profile(&self, side: usize) -> ProfileRequest {
        let window = match (self.since[side], self.until[side]) {
            (None, None) => None,
            (since, until) => Some(RequestedWindow::Between(since, until)),
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
    fn page_requests_are_parsed() {
        let graph = PageRequest::parse("kind=alloc&measure=objects&pid=7&since=5&until=9").unwrap();
        assert_eq!(graph.measure(), Measure::Objects);
        let request = graph.profile(0);
        assert_eq!((request.kind, request.top), (Kind::Alloc, 0));
        assert_eq!(request.selector.to_string(), "pid:7");
        assert_eq!(request.scope.window, Some(RequestedWindow::Between(Some(5), Some(9))));
        let search = PageRequest::parse("snapshot=3&q=%3Cscript%3E%26").unwrap();
        assert_eq!((search.snapshot(), search.measure()), (Ok(3), Measure::Space));
        assert_eq!(search.text, "<script>&");
    }

    #[test]
    fn invalid_page_requests_are_explained_in_one_line() {
        for query in [
            "kind=x",
            "measure=bytes",
            "pid=0",
            "since=-1",
            "top=3",
            "snapshot=x",
            "q=%ff",
            "%0a=1",
        ] {
            let problem = PageRequest::parse(query).unwrap_err();
            assert_eq!(problem.status.as_u16(), 400, "{query}");
            assert!(!problem.line.contains('\n'), "{}", problem.line);
        }
        assert_eq!(PageRequest::parse("").unwrap().snapshot().unwrap_err().status.as_u16(), 400);
    }
}
