//! `/debug/pprof/heap` and `/debug/pprof/allocs`: profiles in the format of pprof, as Go's
//! `net/http/pprof` serves them.

use super::answer::{Answer, BINARY, Problem};
use super::query::Query;
use crate::pipeline::{Names, ProfileRequest, Profiler, Scope, assemble};
use crate::store::Selector;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::IntoResponse as _;
use sampler_common::comparison::growth;
use sampler_common::encode::{Encode as _, pprof::Pprof};
use sampler_common::estimate::Confidence;
use sampler_common::profile::{Kind, Profile};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Maximum number of profiles that are made at a time. A profile may have many stacks. A request
/// with `seconds` keeps one profile in memory while it waits for the second.
const AT_ONCE: usize = 8;
/// Time limit for making a profile, in addition to the `seconds` of the request.
pub(super) const PROFILE_TIMEOUT: Duration = Duration::from_secs(60);

/// Makes profiles.
pub(super) struct Profiles {
    profiler: Profiler,
    names: Names,
    places: Semaphore,
}

impl Profiles {
    pub(super) fn new(profiler: Profiler, names: Names) -> Profiles {
        Profiles { profiler, names, places: Semaphore::new(AT_ONCE) }
    }

    /// Makes the profile that a URL asks for, as a file.
    pub(super) async fn answer(&self, kind: Kind, query: Query) -> Answer {
        let Ok(_place) = self.places.try_acquire() else {
            let line = format!("{AT_ONCE} profiles are being made already (try again later)");
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, line));
        };
        let limit = PROFILE_TIMEOUT + query.over.unwrap_or_default();
        match timeout(limit, self.encoded(kind, query)).await {
            Ok(Ok(contents)) => file(kind, contents),
            Ok(Err(problem)) => Err(problem),
            Err(_) => {
                let line = format!("not made within {} s (try a pid)", limit.as_secs());
                Err(Problem::new(StatusCode::GATEWAY_TIMEOUT, line))
            }
        }
    }

    async fn encoded(&self, kind: Kind, query: Query) -> Result<Vec<u8>, Problem> {
        let (mut before, mut profile) = (None, self.profile(kind, query.selector.clone()).await?);
        if let Some(over) = query.over {
            if !profile.reference.clusters.is_empty() {
                let line = "seconds: samplerd runs with --windows and sees short windows only (leave seconds out)";
                return Err(Problem::bad(line));
            }
            sleep(over).await;
            let after = self.profile(kind, query.selector).await?;
            before = Some(std::mem::replace(&mut profile, after));
        }
        let encoding = tokio::task::spawn_blocking(move || {
            let profile = match before {
                Some(before) => growth(&before, &profile),
                None => profile,
            };
            let mut contents = Vec::new();
            Pprof.encode(&profile, &mut contents).map(|()| contents)
        });
        encoding.await.map_err(Problem::broken)?.map_err(Problem::broken)
    }

    /// Makes a profile of everything since the attach.
    async fn profile(&self, kind: Kind, selector: Selector) -> Result<Profile, Problem> {
        let request = ProfileRequest {
            kind,
            selector,
            confidence: Confidence::DEFAULT,
            estimator: None,
            top: 0,
            functions: 0,
            scope: Scope::ALL,
        };
        let raw = self.profiler.profile(request).await?;
        // The event loop refuses only requests for processes that are not profiled.
        let raw = raw.map_err(|line| Problem::new(StatusCode::NOT_FOUND, line))?;
        Ok(assemble(raw, &self.names).await)
    }
}

/// Makes the file of a kind, named as in the URL.
pub(super) fn file(kind: Kind, contents: Vec<u8>) -> Answer {
    let disposition = match kind {
        Kind::Alloc => "attachment; filename=\"allocs.pb.gz\"",
        Kind::Live | Kind::Peak | Kind::Mapped => "attachment; filename=\"heap.pb.gz\"",
    };
    Ok(([(CONTENT_TYPE, BINARY), (CONTENT_DISPOSITION, disposition)], contents).into_response())
}
