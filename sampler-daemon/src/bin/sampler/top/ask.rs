//! Asks samplerd repeatedly, for the screen.

use super::data::{Detail, DetailRequest, Snapshot};
use super::model::{Answer, Question};
use crate::connect::{self, Address, Client};
use anyhow::{Context as _, Result};
use sampler_daemon::rpc::convert::{from_wire, kind_to_wire};
use sampler_daemon::rpc::v1::{
    self, GetProfileRequest, ListProcessesRequest, ProcessSelector, StatusRequest,
};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tonic::{Code, Status};

/// Time between two attempts to connect.
const RETRY_PERIOD: Duration = Duration::from_secs(1);
/// Minimum pause after an answer, as a multiple of the time that the answer took. The screen must
/// not keep samplerd busy.
const MIN_REST_FACTOR: u32 = 4;

/// The address to ask, the processes to ask about, and the period.
pub(super) struct Asker {
    pub(super) address: Address,
    pub(super) selector: ProcessSelector,
    pub(super) period: Duration,
    pub(super) questions: watch::Receiver<Question>,
    pub(super) answers: mpsc::Sender<Answer>,
}

/// Why there is no answer.
enum Failure {
    /// The connection is lost: connect again.
    Lost(anyhow::Error),
    /// samplerd refused the request, and why.
    Refused(anyhow::Error),
}

/// The screen is closed.
struct ScreenClosed;

impl Asker {
    /// Asks until the screen is closed.
    pub(super) async fn run(mut self, client: Client) {
        let mut client = Some(client);
        loop {
            let connected = match client.take() {
                Some(client) => Ok(client),
                None => connect::client(&self.address).await,
            };
            let failure = match connected {
                Ok(client) => match self.ask(client).await {
                    Ok(error) => error,
                    Err(ScreenClosed) => return,
                },
                Err(error) => error,
            };
            if self.answers.send(Answer::Lost(format!("{failure:#}"))).await.is_err() {
                return;
            }
            tokio::time::sleep(RETRY_PERIOD).await;
        }
    }

    /// Asks until the connection breaks. Returns why it broke.
    async fn ask(&mut self, mut client: Client) -> Result<anyhow::Error, ScreenClosed> {
        loop {
            let start = Instant::now();
            let mut requested = self.questions.borrow_and_update().process.clone();
            let answer = self.snapshot(&mut client).await;
            if let Some(error) = self.send(answer, None).await? {
                return Ok(error);
            }
            if let Some(error) = self.detail(&mut client, requested.clone()).await? {
                return Ok(error);
            }
            let next =
                (start + self.period).max(Instant::now() + start.elapsed() * MIN_REST_FACTOR);
            loop {
                let frozen = self.questions.borrow().frozen;
                tokio::select! {
                    () = tokio::time::sleep_until(next), if !frozen => break,
                    changed = self.questions.changed() => changed.map_err(|_| ScreenClosed)?,
                }
                // A newly opened process is asked about at once. Everything else waits for the
                // period.
                let process = self.questions.borrow_and_update().process.clone();
                if process == requested {
                    continue;
                }
                requested = process;
                if let Some(error) = self.detail(&mut client, requested.clone()).await? {
                    return Ok(error);
                }
            }
        }
    }

    async fn detail(
        &mut self,
        client: &mut Client,
        requested: Option<DetailRequest>,
    ) -> Result<Option<anyhow::Error>, ScreenClosed> {
        let Some(requested) = requested else { return Ok(None) };
        let answer = self.profile(client, &requested).await;
        self.send(answer, Some(requested)).await
    }

    /// Passes an answer to the screen. Returns the error if the connection broke.
    async fn send(
        &self,
        answer: Result<Answer, Failure>,
        requested: Option<DetailRequest>,
    ) -> Result<Option<anyhow::Error>, ScreenClosed> {
        let answer = match (answer, requested) {
            (Ok(answer), _) => answer,
            (Err(Failure::Refused(error)), Some(requested)) => {
                Answer::Refused(requested, format!("{error:#}"))
            }
            (Err(Failure::Lost(error) | Failure::Refused(error)), _) => return Ok(Some(error)),
        };
        self.answers.send(answer).await.map_err(|_| ScreenClosed)?;
        Ok(None)
    }

    fn failure(&self, status: &Status) -> Failure {
        let is_lost = std::error::Error::source(status).is_some()
            || matches!(status.code(), Code::Unavailable | Code::Cancelled | Code::Unknown);
        let error = connect::failed(&self.address, status);
        if is_lost { Failure::Lost(error) } else { Failure::Refused(error) }
    }

    /// Asks for the snapshot of all processes.
    async fn snapshot(&self, client: &mut Client) -> Result<Answer, Failure> {
        let list = ListProcessesRequest {
            selector: Some(self.selector.clone()).filter(|of| *of != ProcessSelector::default()),
            group_by: String::new(),
            fold_exited: true,
        };
        let list = client.list_processes(list).await.map_err(|error| self.failure(&error))?;
        let status = client.status(StatusRequest {}).await.map_err(|error| self.failure(&error))?;
        // The profile needs only its totals, so one stack is requested. They include held bytes.
        // Kind live is refused if frees are not followed.
        let request = GetProfileRequest {
            kind: v1::Kind::Alloc.into(),
            pids: self.selector.pids.clone(),
            selector: self.without_pids(),
            top: 1,
            ..GetProfileRequest::default()
        };
        let profile = self.answered(client, request).await?;
        let snapshot = Snapshot::of(status.into_inner(), list.into_inner(), &profile);
        let snapshot = connect::check(&self.address, snapshot).map_err(Failure::Lost)?;
        Ok(Answer::Snapshot(Box::new(snapshot)))
    }

    fn without_pids(&self) -> Option<ProcessSelector> {
        let selector = ProcessSelector { pids: vec![], ..self.selector.clone() };
        (selector != ProcessSelector::default()).then_some(selector)
    }

    /// Asks for the profile of a process. If windows are refused, the profile covers everything
    /// since the attach.
    async fn profile(
        &self,
        client: &mut Client,
        requested: &DetailRequest,
    ) -> Result<Answer, Failure> {
        let request = |window: Option<Duration>| GetProfileRequest {
            kind: kind_to_wire(requested.kind).into(),
            pids: vec![requested.pid],
            last_ns: window.map_or(0, |window| window.as_nanos() as u64),
            ..GetProfileRequest::default()
        };
        let (profile, note) = match self.answered(client, request(requested.window)).await {
            Err(Failure::Refused(error)) if requested.window.is_some() => {
                (self.answered(client, request(None)).await?, Some(format!("{error:#}")))
            }
            answer => (answer?, None),
        };
        let requested = requested.clone();
        let detail = spawn_blocking(move || Detail::of(requested, profile, note)).await;
        let detail = detail.context("sum functions").map_err(Failure::Lost)?;
        Ok(Answer::Detail(Box::new(detail)))
    }

    /// Asks for a profile and decodes it on another thread, because a large profile takes time.
    async fn answered(
        &self,
        client: &mut Client,
        request: GetProfileRequest,
    ) -> Result<sampler_common::profile::Profile, Failure> {
        let answer = client.get_profile(request).await.map_err(|error| self.failure(&error))?;
        let profile = spawn_blocking(|| from_wire(answer.into_inner())).await;
        let profile = profile.context("read a profile").map_err(Failure::Lost)?;
        connect::check(&self.address, profile).map_err(Failure::Lost)
    }
}
