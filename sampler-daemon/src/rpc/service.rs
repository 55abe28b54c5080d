//! The service `sampler.v1.Sampler`.

use super::admission::Places;
use super::connection::Client;
use super::shared_answers::SharedAnswers;
use super::v1::sampler_server::Sampler;
use super::{compare, convert, plan, reports, select, stream, v1};
use crate::export::Exports;
use crate::pipeline::{
    LeaksRequest, LifetimesRequest, Names, ProfileRequest, Profiler, RequestedWindow,
    SamplingChange, Scope, Stopped, assemble, assemble_leaks, assemble_lifetimes,
};
use crate::store::SizeLimits;
use sampler_common::estimate::{Confidence, Estimator};
use sampler_common::profile::{Kind, Profile};
use sampler_common::sampling::Strategy;
use std::time::Duration;
use tonic::{Request, Response, Status};

/// Shortest period of `WatchProfile`.
const SHORTEST_PERIOD: Duration = Duration::from_millis(100);
/// Period of `WatchProfile` if none is asked for.
const DEFAULT_PERIOD: Duration = Duration::from_secs(1);

/// Answers requests with the worker and the symbolizer.
#[derive(Clone)]
pub(super) struct Service {
    profiler: Profiler,
    names: Names,
    exports: Exports,
    pub(super) places: Places,
    pub(super) shared: SharedAnswers,
}

impl Service {
    pub(super) fn new(
        profiler: Profiler,
        names: Names,
        exports: Exports,
        places: Places,
    ) -> Service {
        Service { profiler, names, exports, places, shared: SharedAnswers::new() }
    }

    /// A profile with names.
    pub(super) async fn profile(&self, request: ProfileRequest) -> Result<Profile, Status> {
        let raw = answer(self.profiler.profile(request).await)?;
        Ok(assemble(raw, &self.names).await)
    }
}

/// The worker's answer, or why there is none.
pub(super) fn answer<T>(answer: Result<Result<T, String>, Stopped>) -> Result<T, Status> {
    answer
        .map_err(|stopped| Status::unavailable(stopped.to_string()))?
        .map_err(Status::invalid_argument)
}

/// The client of a request. The layer in front of the service attaches it to every request.
fn client<T>(request: &Request<T>) -> Result<Client, Status> {
    let client = request.extensions().get::<Client>().cloned();
    client.ok_or_else(|| Status::internal("a request without a connection"))
}

/// The user whose processes alone the client may change; `None`: any. Root, samplerd's own user and
/// clients with the token may change all.
fn restricted_to(client: &Client) -> Option<u32> {
    let own = rustix::process::geteuid().as_raw();
    client.user.filter(|user| *user != 0 && *user != own)
}

/// The confidence; 0 is the default.
fn confidence(level: f64) -> Result<Confidence, Status> {
    match level {
        0.0 => Ok(Confidence::DEFAULT),
        level => {
            Confidence::new(level).map_err(|error| Status::invalid_argument(error.to_string()))
        }
    }
}

/// A request for a profile, checked.
pub(super) fn request(wire: v1::GetProfileRequest) -> Result<ProfileRequest, Status> {
    let kind = match wire.kind() {
        v1::Kind::Live => Kind::Live,
        v1::Kind::Peak => Kind::Peak,
        v1::Kind::Mapped => Kind::Mapped,
        v1::Kind::Alloc | v1::Kind::Unspecified => Kind::Alloc,
    };
    let confidence = confidence(wire.confidence)?;
    let estimator = match wire.estimator.as_str() {
        "" => None,
        name => Some(Estimator::parse(name).map_err(Status::invalid_argument)?),
    };
    let scope = scope(&wire).map_err(Status::invalid_argument)?;
    let (top, functions) = (wire.top as usize, wire.functions as usize);
    let selector = select::selector(wire.selector, &wire.pids);
    Ok(ProfileRequest { kind, selector, confidence, estimator, top, functions, scope })
}

/// The requested part of the data; 0 is no limit.
fn scope(wire: &v1::GetProfileRequest) -> Result<Scope, String> {
    let given = |value: u64| Some(value).filter(|value| *value > 0);
    let window = match (given(wire.since_unix_ns), given(wire.until_unix_ns), given(wire.last_ns)) {
        (None, None, None) => None,
        (None, None, Some(last)) => Some(RequestedWindow::Last(last)),
        (since, until, None) => Some(RequestedWindow::Between(since, until)),
        _ => {
            return Err(
                "last_ns is given together with since_unix_ns or until_unix_ns (give one of them)"
                    .into(),
            );
        }
    };
    Ok(Scope {
        window,
        min_age_ns: given(wire.min_age_ns),
        max_age_ns: given(wire.max_age_ns),
        sizes: SizeLimits::outward(given(wire.min_size), given(wire.max_size))?,
    })
}

fn change(wire: &v1::SetSamplingRequest) -> Result<SamplingChange, String> {
    let strategy = match wire.strategy.as_str() {
        "" => None,
        name => Some(Strategy::from_name(name).ok_or_else(|| {
            let all: Vec<_> = Strategy::ALL.iter().map(|of| of.name()).collect();
            format!("strategy {name:?} is unknown (use one of {})", all.join(", "))
        })?),
    };
    let change = SamplingChange {
        interval_bytes: wire.interval_bytes,
        strategy,
        one_in: Some(wire.one_in).filter(|calls| *calls > 0),
        samples_per_second: Some(wire.samples_per_second).filter(|samples| *samples != 0.0),
    };
    if change == SamplingChange::default() {
        return Err(
            "nothing to change (give an interval, a strategy, one in N or samples per second)"
                .into(),
        );
    }
    Ok(change)
}

#[tonic::async_trait]
impl Sampler for Service {
    async fn status(
        &self,
        _: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        let mut report = answer(self.profiler.status().await)?;
        report.blind_spots.extend(self.names.limits());
        Ok(Response::new(reports::status(report, &self.exports)))
    }

    async fn list_processes(
        &self,
        wire: Request<v1::ListProcessesRequest>,
    ) -> Result<Response<v1::ListProcessesResponse>, Status> {
        let request = select::list(wire.into_inner()).map_err(Status::invalid_argument)?;
        let listing = answer(self.profiler.processes(request).await)?;
        let processes = listing.processes.iter().map(reports::process).collect();
        let groups = listing.groups.iter().map(reports::group).collect();
        let time_ns = listing.time_ns;
        Ok(Response::new(v1::ListProcessesResponse { processes, groups, time_ns }))
    }

    async fn set_sampling(
        &self,
        wire: Request<v1::SetSamplingRequest>,
    ) -> Result<Response<v1::SetSamplingResponse>, Status> {
        let owner = restricted_to(&client(&wire)?);
        let wire = wire.into_inner();
        let change = change(&wire).map_err(Status::invalid_argument)?;
        let selector = select::selector(wire.selector, &wire.pids);
        let set = answer(self.profiler.set_sampling(selector, change, owner).await)?;
        let intervals = set.iter().map(reports::sampling).collect();
        Ok(Response::new(v1::SetSamplingResponse { intervals }))
    }

    async fn get_profile(
        &self,
        wire: Request<v1::GetProfileRequest>,
    ) -> Result<Response<v1::Profile>, Status> {
        let profile = self.profile(request(wire.into_inner())?).await?;
        Ok(Response::new(convert::to_wire(profile)))
    }

    async fn get_lifetimes(
        &self,
        wire: Request<v1::GetLifetimesRequest>,
    ) -> Result<Response<v1::Lifetimes>, Status> {
        let wire = wire.into_inner();
        let request = LifetimesRequest {
            selector: select::selector(wire.selector, &wire.pids),
            confidence: confidence(wire.confidence)?,
            top: wire.top as usize,
        };
        let raw = answer(self.profiler.lifetimes(request).await)?;
        let lifetimes = assemble_lifetimes(raw, &self.names).await;
        Ok(Response::new(convert::lifetimes_to_wire(&lifetimes)))
    }

    async fn get_leaks(
        &self,
        wire: Request<v1::GetLeaksRequest>,
    ) -> Result<Response<v1::Leaks>, Status> {
        let wire = wire.into_inner();
        let request = LeaksRequest {
            selector: select::selector(wire.selector, &[]),
            over_ns: Some(wire.over_ns).filter(|over| *over > 0),
            confidence: confidence(wire.confidence)?,
            top: wire.top as usize,
        };
        let raw = answer(self.profiler.leaks(request).await)?;
        let leaks = assemble_leaks(raw, &self.names).await;
        Ok(Response::new(convert::leaks_to_wire(&leaks.map_err(Status::internal)?)))
    }

    type WatchProfileStream = stream::Profiles;

    async fn watch_profile(
        &self,
        wire: Request<v1::WatchProfileRequest>,
    ) -> Result<Response<stream::Profiles>, Status> {
        let client = client(&wire)?;
        let wire = wire.into_inner();
        let period = match wire.period_ms {
            0 => DEFAULT_PERIOD,
            period => Duration::from_millis(u64::from(period)),
        };
        if period < SHORTEST_PERIOD {
            return Err(Status::invalid_argument(format!(
                "period {} ms: must be at least {} ms",
                period.as_millis(),
                SHORTEST_PERIOD.as_millis()
            )));
        }
        let question = wire.profile.unwrap_or_default();
        Ok(Response::new(stream::profiles(self.clone(), client, question, period)?))
    }

    async fn compare(
        &self,
        wire: Request<v1::CompareRequest>,
    ) -> Result<Response<v1::Comparison>, Status> {
        Ok(Response::new(compare::comparison(self, wire.into_inner()).await?))
    }

    async fn plan(
        &self,
        wire: Request<v1::PlanRequest>,
    ) -> Result<Response<v1::PlanResponse>, Status> {
        let wire = wire.into_inner();
        let plan = plan::plan(&wire, confidence(wire.confidence)?);
        plan.map(Response::new).map_err(|error| Status::invalid_argument(error.to_string()))
    }

    type StreamSamplesStream = stream::Samples;

    async fn stream_samples(
        &self,
        wire: Request<v1::StreamSamplesRequest>,
    ) -> Result<Response<stream::Samples>, Status> {
        let wire = wire.into_inner();
        let selector = select::selector(wire.selector, &wire.pids);
        let place = self.places.stream()?;
        let names = self.names.clone();
        Ok(Response::new(stream::samples(self.profiler.clone(), selector, names, place)))
    }
}
