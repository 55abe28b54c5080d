//! The two streams of the service.

use super::admission::Unread;
use super::connection::Client;
use super::service::{Service, request};
use super::shared_answers::SharingStream;
use super::{convert, v1};
use crate::pipeline::{Names, ProfileRequest, Profiler, SampleEvent};
use crate::store::Selector;
use futures_util::stream::unfold;
use sampler_common::profile::Line;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, broadcast, mpsc};
use tokio::time::Instant;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Samples that wait for a slow client. At this bound the broadcast drops, and counts, the oldest.
const SAMPLE_BACKLOG: usize = 1024;
/// Samples that are symbolized in one batch.
const BATCH: usize = 256;

pub(super) type Profiles = Pin<Box<dyn Stream<Item = Result<v1::Profile, Status>> + Send>>;
pub(super) type Samples = ReceiverStream<Result<v1::Sample, Status>>;

/// A profile every `period`, the first at once. The next one is made when the client has read the
/// last one.
///
/// # Errors
/// If the question is refused, or too many streams are open.
pub(super) fn profiles(
    service: Service,
    client: Client,
    question: v1::GetProfileRequest,
    period: Duration,
) -> Result<Profiles, Status> {
    let sharing = service.shared.stream(&question, period);
    let request = request(question)?;
    let place = service.places.stream()?;
    let (unread, has_failed) = (None, false);
    let watch = Watch { service, client, request, sharing, unread, has_failed, _place: place };
    Ok(Box::pin(unfold(watch, Watch::next)))
}

/// The state of one client's `WatchProfile`.
struct Watch {
    service: Service,
    client: Client,
    request: ProfileRequest,
    sharing: SharingStream,
    /// The place of the last profile, which the connection has, but may not have sent.
    unread: Option<Unread>,
    has_failed: bool,
    _place: OwnedSemaphorePermit,
}

impl Watch {
    /// The next profile. The connection asks for it when it has sent most of the last one. A
    /// failure is the last answer.
    async fn next(mut self) -> Option<(Result<v1::Profile, Status>, Watch)> {
        self.unread = None;
        if self.has_failed {
            return None;
        }
        let due = self.sharing.tick().await;
        let profile = self.make(due).await;
        self.has_failed = profile.is_err();
        Some((profile, self))
    }

    /// A profile that is not older than `due`.
    async fn make(&mut self, due: Instant) -> Result<v1::Profile, Status> {
        let place = self.service.places.large_answer().await?;
        // Nobody else makes a profile now.
        let profile = match self.sharing.shared(due) {
            Some(profile) => profile,
            None => {
                let begun = Instant::now();
                let profile = self.service.profile(self.request.clone()).await?;
                let profile = convert::to_wire(profile);
                self.sharing.share(begun, &profile);
                profile
            }
        };
        let unread = self.unread.insert(Unread::new(self.client.clone(), place));
        unread.hand_over();
        Ok(profile)
    }
}

/// Every sample of the processes that `selector` chooses, also of later processes. A task feeds the
/// stream and ends when the client goes away; the task holds the stream's `place`.
pub(super) fn samples(
    profiler: Profiler,
    selector: Selector,
    names: Names,
    place: OwnedSemaphorePermit,
) -> Samples {
    let mut events = profiler.subscribe();
    let (sender, receiver) = mpsc::channel(SAMPLE_BACKLOG);
    tokio::spawn(async move {
        let (_place, mut missed) = (place, 0);
        loop {
            let first = tokio::select! {
                event = events.recv() => event,
                () = sender.closed() => return,
            };
            let mut batch = Vec::new();
            let mut next = Some(first);
            while let Some(event) = next {
                match event {
                    Ok(event) if selector.matches(event.who()) => {
                        batch.push((event, std::mem::take(&mut missed)));
                    }
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Lagged(count)) => {
                        profiler.count_lagged(count);
                        missed += count;
                    }
                    Err(broadcast::error::RecvError::Closed) => return,
                }
                next = match events.try_recv() {
                    _ if batch.len() >= BATCH => None,
                    Ok(event) => Some(Ok(event)),
                    Err(broadcast::error::TryRecvError::Lagged(count)) => {
                        Some(Err(broadcast::error::RecvError::Lagged(count)))
                    }
                    Err(_) => None,
                };
            }
            for sample in named(batch, &names).await {
                if sender.send(Ok(sample)).await.is_err() {
                    return;
                }
            }
        }
    });
    ReceiverStream::new(receiver)
}

async fn named(batch: Vec<(Arc<SampleEvent>, u64)>, names: &Names) -> Vec<v1::Sample> {
    let frames = batch.iter().flat_map(|(event, _)| event.frames.iter().cloned()).collect();
    let mut lines = names.look_up(frames).await.lines.into_iter();
    batch
        .into_iter()
        .map(|(event, missed)| {
            let frames = event
                .frames
                .iter()
                .map(|(module, offset)| v1::Frame {
                    path: module.path.clone(),
                    build_id: module.build_id.clone(),
                    file_offset: *offset,
                    lines: lines.next().map(|lines| source_lines(&lines)).unwrap_or_default(),
                })
                .collect();
            v1::Sample {
                pid: event.pid,
                tid: event.tid,
                time_ns: event.time_ns,
                size: event.size,
                inclusion: event.inclusion,
                offset: event.offset,
                frames,
                unwind: event.unwind.to_owned(),
                missed,
            }
        })
        .collect()
}

fn source_lines(lines: &[Line]) -> Vec<v1::SourceLine> {
    lines
        .iter()
        .map(|line| v1::SourceLine {
            function: line.function.clone(),
            file: line.file.clone(),
            line: line.line,
        })
        .collect()
}
