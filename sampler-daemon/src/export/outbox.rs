//! The queue of requests to one destination. The queue is bounded; the oldest requests are dropped
//! first. For a folder, a request is a window.

use super::folder::FolderContents;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Maximum number of waiting requests: some hours of windows of one minute.
const MAX_REQUESTS: usize = 512;
/// Maximum size of all waiting requests.
const MAX_BYTES: usize = 32 << 20;

/// A request, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Body {
    /// The id by which a backend recognizes a request that arrives twice.
    pub(super) id: u128,
    /// Path and query of the URL, after the backend's own path. For gRPC: the method.
    pub(super) target: String,
    /// The contents, compressed except for gRPC.
    pub(super) bytes: Vec<u8>,
    /// The number of profiles in the request.
    pub(super) profiles: u64,
}

/// What waits in a queue.
pub(super) trait Waiting {
    /// Memory that it takes.
    fn bytes(&self) -> usize;

    /// Number of profiles.
    fn profiles(&self) -> u64;
}

impl Waiting for Body {
    fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn profiles(&self) -> u64 {
        self.profiles
    }
}

/// Compresses the contents of a body by gzip.
pub(super) fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    // Writing into memory cannot fail.
    let _ = gzip.write_all(bytes);
    gzip.finish().unwrap_or_default()
}

/// The counts of the requests to one destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The destination, as the command line names it.
    pub destination: String,
    /// All requests: sent, refused, dropped and waiting requests.
    pub made: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Bytes of the waiting requests.
    pub waiting_bytes: u64,
    /// Requests that the backend accepted.
    pub sent: u64,
    /// Bytes of the accepted requests.
    pub sent_bytes: u64,
    /// Attempts that failed and were or will be repeated.
    pub retried: u64,
    /// Requests that the backend refused for good.
    pub refused: u64,
    /// Profiles that the backend reported as left out of accepted requests.
    pub rejected_profiles: u64,
    /// Requests that were dropped because the queue was full.
    pub dropped: u64,
    /// Why the last attempt failed, or why profiles were left out; empty if neither happened.
    pub last_error: String,
    /// Bytes of this host's files in a folder.
    pub kept_bytes: u64,
    /// Files that were removed from a folder, to keep it within its bounds.
    pub removed_files: u64,
    /// Bytes of the removed files.
    pub removed_bytes: u64,
}

struct State<T> {
    waiting: VecDeque<Arc<T>>,
    bytes: usize,
    /// Whether the first request is being sent. Such a request may arrive, so it is not dropped.
    is_sending: bool,
    counts: Counts,
}

/// The queue of one destination.
pub(super) struct Outbox<T> {
    state: Mutex<State<T>>,
    /// Notified after a request was added or removed.
    changed: Notify,
    max_requests: usize,
    max_bytes: usize,
    /// What the destination keeps; nothing, if it is no folder.
    kept: Arc<FolderContents>,
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The backend has accepted the request. If it left profiles out: how many, and why.
    Sent(Option<(u64, String)>),
    /// The request is in files of so many bytes.
    Written(u64),
    /// The request has to be sent again.
    Failed(String),
    /// The backend will never accept the request.
    Refused(String),
}

impl<T: Waiting> Outbox<T> {
    pub(super) fn new(destination: String) -> Outbox<T> {
        Outbox::bounded(destination, MAX_REQUESTS, MAX_BYTES)
    }

    fn bounded(destination: String, max_requests: usize, max_bytes: usize) -> Outbox<T> {
        let counts = Counts { destination, ..Counts::default() };
        let state = State { waiting: VecDeque::new(), bytes: 0, is_sending: false, counts };
        let (state, kept) = (Mutex::new(state), Arc::default());
        Outbox { state, changed: Notify::new(), max_requests, max_bytes, kept }
    }

    /// Returns the counters of what the destination keeps.
    pub(super) fn kept(&self) -> &Arc<FolderContents> {
        &self.kept
    }

    fn with<R>(&self, change: impl FnOnce(&mut State<T>) -> R) -> R {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a request, and drops the oldest requests if the queue exceeds its bounds.
    pub(super) fn add(&self, body: T) {
        self.with(|state| {
            state.bytes += body.bytes();
            state.counts.made += 1;
            state.waiting.push_back(Arc::new(body));
            let first = usize::from(state.is_sending);
            while state.waiting.len() > self.max_requests
                || state.bytes > self.max_bytes && state.waiting.len() > first + 1
            {
                let Some(dropped) = state.waiting.remove(first) else { break };
                state.bytes -= dropped.bytes();
                state.counts.dropped += 1;
            }
        });
        self.changed.notify_waiters();
    }

    /// Waits for the oldest request and returns it. The request stays in the queue until
    /// [`Outbox::ended`].
    pub(super) async fn first(&self) -> Arc<T> {
        let find = |state: &mut State<T>| {
            let first = state.waiting.front().cloned();
            state.is_sending = first.is_some();
            first
        };
        loop {
            let changed = self.changed.notified();
            if let Some(first) = self.with(find) {
                return first;
            }
            changed.await;
        }
    }

    /// Ends the attempt that began with [`Outbox::first`].
    pub(super) fn ended(&self, attempt: Attempt) {
        self.with(|state| {
            state.is_sending = false;
            if let Attempt::Failed(why) = attempt {
                state.counts.retried += 1;
                state.counts.last_error = why;
                return;
            }
            let Some(body) = state.waiting.pop_front() else { return };
            state.bytes -= body.bytes();
            match attempt {
                Attempt::Written(bytes) => {
                    state.counts.sent += 1;
                    state.counts.sent_bytes += bytes;
                }
                Attempt::Sent(rejected) => {
                    state.counts.sent += 1;
                    state.counts.sent_bytes += body.bytes() as u64;
                    if let Some((profiles, why)) = rejected {
                        state.counts.rejected_profiles += profiles.min(body.profiles());
                        state.counts.last_error = why;
                    }
                }
                Attempt::Failed(why) | Attempt::Refused(why) => {
                    state.counts.refused += 1;
                    state.counts.last_error = why;
                }
            }
        });
        self.changed.notify_waiters();
    }

    /// Completes when no request waits.
    pub(super) async fn emptied(&self) {
        loop {
            let changed = self.changed.notified();
            if self.with(|state| state.waiting.is_empty()) {
                return;
            }
            changed.await;
        }
    }

    /// Returns the counts of the destination's requests.
    pub(super) fn counts(&self) -> Counts {
        self.with(|state| Counts {
            waiting: state.waiting.len() as u64,
            waiting_bytes: state.bytes as u64,
            kept_bytes: self.kept.bytes.load(Relaxed),
            removed_files: self.kept.removed_files.load(Relaxed),
            removed_bytes: self.kept.removed_bytes.load(Relaxed),
            ..state.counts.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(id: u128) -> Body {
        Body { id, target: String::new(), bytes: vec![0; 10], profiles: 2 }
    }

    fn filled(max_requests: usize, max_bytes: usize) -> Outbox<Body> {
        let outbox = Outbox::bounded("x".into(), max_requests, max_bytes);
        (1..=5).for_each(|id| outbox.add(body(id)));
        outbox
    }

    fn sum(of: &Counts) -> u64 {
        of.waiting + of.sent + of.refused + of.dropped
    }

    #[tokio::test]
    async fn the_oldest_requests_are_dropped_by_number_or_by_bytes() {
        for (max_requests, max_bytes) in [(3, 1000), (1000, 39)] {
            let outbox = filled(max_requests, max_bytes);
            let counts = outbox.counts();
            assert_eq!((counts.waiting, counts.waiting_bytes, counts.dropped), (3, 30, 2));
            assert_eq!((outbox.first().await.id, sum(&counts)), (3, counts.made));
        }
    }

    #[tokio::test]
    async fn a_request_in_flight_is_not_dropped() {
        let outbox = filled(3, 1000);
        assert_eq!(outbox.first().await.id, 3);
        (6..=9).for_each(|id| outbox.add(body(id)));
        outbox.ended(Attempt::Sent(Some((9, "old".into()))));
        let counts = outbox.counts();
        assert_eq!((counts.sent, counts.dropped, counts.rejected_profiles), (1, 6, 2));
        // A request whose attempt failed stays in the queue, but may be dropped now.
        assert_eq!(outbox.first().await.id, 8);
        outbox.ended(Attempt::Failed("dead".into()));
        assert_eq!(outbox.first().await.id, 8);
        outbox.ended(Attempt::Failed("dead".into()));
        outbox.add(body(10));
        outbox.add(body(11));
        assert_eq!(outbox.first().await.id, 9);
        outbox.ended(Attempt::Refused("no".into()));
        let counts = outbox.counts();
        assert_eq!((counts.refused, counts.retried, counts.last_error.as_str()), (1, 2, "no"));
        assert_eq!(sum(&counts), counts.made);
    }

    #[tokio::test]
    async fn a_request_above_the_byte_limit_is_sent() {
        let outbox = Outbox::bounded("x".into(), 3, 5);
        outbox.add(body(1));
        assert_eq!((outbox.first().await.id, outbox.counts().dropped), (1, 0));
        outbox.ended(Attempt::Sent(None));
        outbox.emptied().await;
    }
}
