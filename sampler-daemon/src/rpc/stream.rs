//! The two streams of the service. Each is fed by a task that ends when its client goes away.

use super::admission::Unread;
use super::connection::Client;
use super::service::Service;
use super::{convert, v1};
use crate::pipeline::{Names, ProfileRequest, Profiler, SampleEvent};
use crate::store::Selector;
use sampler_common::profile::Line;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, broadcast, mpsc, oneshot};
use tokio_stream::Stream;
use tonic::Status;

/// Samples that wait for a slow client; behind them the broadcast drops, and counts, the oldest.
const SAMPLE_BACKLOG: usize = 1024;
/// Samples named in one go.
const BATCH: usize = 256;

/// A profile, or why there is none, with what it holds until the client has read it.
struct Made {
    profile: Result<v1::Profile, Status>,
    unread: Option<Unread>,
    /// Dropped when the client has read the profile.
    read: oneshot::Sender<()>,
}

/// The answer of `WatchProfile`.
pub(super) struct Profiles {
    made: mpsc::Receiver<Made>,
    /// What the connection has, and has not asked for more since.
    unread: Option<(Option<Unread>, oneshot::Sender<()>)>,
    _place: OwnedSemaphorePermit,
}

impl Stream for Profiles {
    type Item = Result<v1::Profile, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.unread = None;
        let Some(made) = ready!(self.made.poll_recv(context)) else { return Poll::Ready(None) };
        let Made { profile, mut unread, read } = made;
        unread.iter_mut().for_each(Unread::hand_over);
        self.unread = Some((unread, read));
        Poll::Ready(Some(profile))
    }
}

/// The answer of `StreamSamples`.
pub(super) struct Samples {
    samples: mpsc::Receiver<Result<v1::Sample, Status>>,
    _place: OwnedSemaphorePermit,
}

impl Samples {
    pub(super) fn new(
        samples: mpsc::Receiver<Result<v1::Sample, Status>>,
        place: OwnedSemaphorePermit,
    ) -> Samples {
        Samples { samples, _place: place }
    }
}

impl Stream for Samples {
    type Item = Result<v1::Sample, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.samples.poll_recv(context)
    }
}

/// A profile every `period`, the first at once. The next one is made when the client has read the last one.
///
/// # Errors
/// If too many streams are open.
pub(super) fn profiles(
    service: Service,
    client: Client,
    request: ProfileRequest,
    period: Duration,
) -> Result<Profiles, Status> {
    let place = service.places.stream()?;
    let (sender, made) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = sender.closed() => return,
            }
            let made = make(&service, &client, &request).await;
            let (profile, unread) = made.map_or_else(
                |status| (Err(status), None),
                |(profile, unread)| (Ok(profile), Some(unread)),
            );
            let failed = profile.is_err();
            let (read, is_read) = oneshot::channel();
            if sender.send(Made { profile, unread, read }).await.is_err() || failed {
                return;
            }
            // Nothing is ever sent: the other end is dropped.
            let _ = is_read.await;
        }
    });
    Ok(Profiles { made, unread: None, _place: place })
}

/// One profile, in a place of its own.
async fn make(
    service: &Service,
    client: &Client,
    request: &ProfileRequest,
) -> Result<(v1::Profile, Unread), Status> {
    let place = service.places.large_answer().await?;
    let profile = service.profile(request.clone()).await?;
    Ok((convert::to_wire(&profile), Unread::new(client.clone(), place)))
}

/// Every sample of the processes that `selector` chooses, those to come included.
pub(super) fn samples(
    profiler: Profiler,
    selector: Selector,
    names: Names,
) -> mpsc::Receiver<Result<v1::Sample, Status>> {
    let mut events = profiler.subscribe();
    let (sender, receiver) = mpsc::channel(SAMPLE_BACKLOG);
    tokio::spawn(async move {
        let mut missed = 0;
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
    receiver
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
