//! The two streams of the service. Each is fed by a task that ends when its client goes away.

use super::service::Service;
use super::{convert, v1};
use crate::pipeline::{Names, ProfileRequest, Profiler, SampleEvent};
use crate::store::Selector;
use sampler_common::profile::Line;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// Profiles that wait for a slow client; then the next is made only when one is taken.
const PROFILE_BACKLOG: usize = 2;
/// Samples that wait for a slow client; behind them the broadcast drops, and counts, the oldest.
const SAMPLE_BACKLOG: usize = 1024;
/// Samples named in one go.
const BATCH: usize = 256;

pub(super) type Profiles = ReceiverStream<Result<v1::Profile, Status>>;
pub(super) type Samples = ReceiverStream<Result<v1::Sample, Status>>;

/// A profile every `period`, the first at once.
pub(super) fn profiles(service: Service, request: ProfileRequest, period: Duration) -> Profiles {
    let (sender, receiver) = mpsc::channel(PROFILE_BACKLOG);
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = sender.closed() => return,
            }
            let profile = service.profile(request.clone()).await;
            let failed = profile.is_err();
            let wire = profile.map(|profile| convert::to_wire(&profile));
            if sender.send(wire).await.is_err() || failed {
                return;
            }
        }
    });
    ReceiverStream::new(receiver)
}

/// Every sample of the processes that `selector` chooses, those to come included.
pub(super) fn samples(profiler: Profiler, selector: Selector, names: Names) -> Samples {
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
