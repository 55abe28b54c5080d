//! The query of a profile's URL.

use super::answer::Problem;
use super::escape::shown;
use crate::store::{Criterion, Selector};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use percent_encoding::percent_decode_str;
use std::time::Duration;

/// Longest time that a difference can cover, in seconds.
pub(super) const MAX_SECONDS: u64 = 600;

/// The requested profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) selector: Selector,
    /// The time that a difference covers, from now on; `None`: everything since the attach.
    pub(super) over: Option<Duration>,
}

impl Query {
    /// Parses the part of a URL after the `?`.
    pub(super) fn parse(text: &str) -> Result<Query, Problem> {
        let mut query = Query::default();
        for pair in pairs(text) {
            let (key, value) = pair?;
            match key {
                "seconds" => query.over = seconds(&value)?,
                "pid" | "comm" | "exe" | "cgroup" => {
                    query.selector.criteria.push(criterion(key, &value)?);
                }
                // Go's key: whether to collect garbage first.
                "gc" => {}
                "debug" if value == "0" || value.is_empty() => {}
                "debug" => {
                    return Err(Problem::bad(format!(
                        "debug={}: only 0, the binary format (for text: sampler profile)",
                        shown(&value)
                    )));
                }
                _ => {
                    return Err(Problem::bad(format!(
                        "{}: unknown (there are seconds, pid, comm, exe and cgroup)",
                        shown(key)
                    )));
                }
            }
        }
        Ok(query)
    }
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Problem;

    async fn from_request_parts(request: &mut Parts, _: &S) -> Result<Query, Problem> {
        Query::parse(request.uri.query().unwrap_or_default())
    }
}

/// Splits the part of a URL after the `?` into keys and decoded values.
pub(super) fn pairs(text: &str) -> impl Iterator<Item = Result<(&str, String), Problem>> {
    text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((key, decoded(value)?))
    })
}

/// Parses a criterion for processes.
pub(super) fn criterion(key: &str, value: &str) -> Result<Criterion, Problem> {
    Criterion::parse(&format!("{key}:{value}")).map_err(|_| {
        let known = "try pid=12, comm=NAME, exe=PATH or cgroup=GROUP";
        Problem::bad(format!("{key}={}: is no {key} ({known})", shown(value)))
    })
}

fn decoded(value: &str) -> Result<String, Problem> {
    let spaced = value.replace('+', " ");
    let text = percent_decode_str(&spaced).decode_utf8();
    let text = text
        .map_err(|_| Problem::bad(format!("{}: not UTF-8 (percent-encode UTF-8)", shown(value))))?;
    Ok(text.into_owned())
}

/// Parses seconds. 0 means no difference, as in Go.
fn seconds(value: &str) -> Result<Option<Duration>, Problem> {
    match value.parse() {
        Ok(0) => Ok(None),
        Ok(seconds) if seconds <= MAX_SECONDS => Ok(Some(Duration::from_secs(seconds))),
        _ => Err(Problem::bad(format!(
            "seconds={}: out of range (give a whole number, 0 to {MAX_SECONDS})",
            shown(value)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_and_seconds_are_parsed() {
        let query = Query::parse("seconds=30&pid=7&pid=8&comm=a%20b+c&gc=1&debug=0").unwrap();
        assert_eq!(query.over, Some(Duration::from_secs(30)));
        assert_eq!(query.selector.to_string(), "pid:7 pid:8 comm:a b c");
        assert_eq!(Query::parse("").unwrap(), Query::default());
        assert_eq!(Query::parse("seconds=0&").unwrap(), Query::default());
    }

    #[test]
    fn invalid_queries_are_explained() {
        for wrong in [
            "seconds=",
            "seconds=-1",
            "seconds=1.5",
            "seconds=601",
            "seconds=99999999999999999999",
            "pid=0",
            "pid=x",
            "pid",
            "comm=",
            "comm=%ff",
            "debug=1",
            "top=3",
            "%0a=1",
        ] {
            let problem = Query::parse(wrong).unwrap_err();
            assert_eq!(problem.status.as_u16(), 400, "{wrong}");
            assert!(!problem.line.contains('\n') && problem.line.contains('('), "{}", problem.line);
        }
    }
}
