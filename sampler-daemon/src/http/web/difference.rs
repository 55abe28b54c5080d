//! The comparison of two windows.

use super::site::{MAX_STACKS, Profiles};
use crate::http::answer::Problem;
use crate::pipeline::{ProfileRequest, RequestedWindow};
use sampler_common::comparison::{Question, compare, parted};
use sampler_common::encode::comparison::object;
use sampler_common::profile::Profile;

/// Compares two profiles and returns the JSON of `sampler diff --json`, with at most [`MAX_STACKS`]
/// stacks.
pub(super) async fn difference(
    profiles: &Profiles,
    [a, b]: [ProfileRequest; 2],
) -> Result<Vec<u8>, Problem> {
    let mut made = [profiles.make(a.clone()).await?, profiles.make(b.clone()).await?];
    if let Some((early, until)) = parted([requested(&a), requested(&b)], [&made[0], &made[1]]) {
        let mut again = if early == 0 { a } else { b };
        let since = match again.scope.window {
            Some(RequestedWindow::Between(since, _)) => since,
            _ => None,
        };
        again.scope.window = Some(RequestedWindow::Between(since, Some(until)));
        made[early] = profiles.make(again).await?;
    }
    let comparing = tokio::task::spawn_blocking(move || compared(&made));
    comparing.await.map_err(Problem::broken)?
}

fn compared([a, b]: &[Profile; 2]) -> Result<Vec<u8>, Problem> {
    let question = Question {
        a_name: "A",
        a,
        b_name: "B",
        b,
        confidence: a.confidence,
        per_second: a.kind == sampler_common::profile::Kind::Alloc,
        independent: false,
    };
    let mut comparison = compare(&question).map_err(|error| Problem::bad(error.to_string()))?;
    let stacks = comparison.stacks.len();
    comparison.stacks.truncate(MAX_STACKS);
    let mut object = object(&comparison);
    object["stacks_total"] = stacks.into();
    serde_json::to_vec(&object).map_err(Problem::broken)
}

/// Returns the ends of a requested window. A window without an end reaches until now, and no other
/// window begins later.
fn requested(of: &ProfileRequest) -> [u64; 2] {
    match of.scope.window {
        Some(RequestedWindow::Between(since, until)) => {
            [since.unwrap_or(0), until.unwrap_or(u64::MAX)]
        }
        _ => [0, u64::MAX],
    }
}
