//! What waits to be sent to one destination: bounded, the oldest dropped first.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Most requests that wait: some hours of windows of a minute.
const MAX_REQUESTS: usize = 512;
/// Most bytes of them.
const MAX_BYTES: usize = 32 << 20;

/// A request as it goes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Body {
    /// By which it is recognized when it comes twice.
    pub(super) id: u128,
    /// Path and query of its URL, behind what a backend puts before it; the method of gRPC.
    pub(super) target: String,
    /// Contents, compressed but for gRPC.
    pub(super) bytes: Vec<u8>,
    /// Profiles in it.
    pub(super) profiles: u64,
}

/// The contents of a body by gzip.
pub(super) fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    // Into memory: it cannot fail.
    let _ = gzip.write_all(bytes);
    gzip.finish().unwrap_or_default()
}

/// What has become of the requests to one destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The destination, as it was given.
    pub destination: String,
    /// Requests that were made: those that were sent, refused and dropped, and those that wait.
    pub made: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Bytes of those.
    pub waiting_bytes: u64,
    /// Requests that the backend took.
    pub sent: u64,
    /// Bytes of those.
    pub sent_bytes: u64,
    /// Attempts that failed, and were or will be repeated.
    pub retried: u64,
    /// Requests that the backend refused for ever.
    pub refused: u64,
    /// Profiles that it said it had left out of requests that it took.
    pub rejected_profiles: u64,
    /// Requests that were dropped because too many waited.
    pub dropped: u64,
    /// Why the last attempt failed; empty if none did.
    pub last_error: String,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Arc<Body>>,
    bytes: usize,
    /// The first one is on its way: whether it arrives is not known, so that it is not dropped.
    is_sending: bool,
    counts: Counts,
}

/// The queue of one destination.
pub(super) struct Outbox {
    state: Mutex<State>,
    /// Something came, or went.
    changed: Notify,
    max_requests: usize,
    max_bytes: usize,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The backend has it, but for so many profiles, and why.
    Sent(Option<(u64, String)>),
    /// It is to be sent again.
    Failed(String),
    /// The backend will never take it.
    Refused(String),
}

impl Outbox {
    pub(super) fn new(destination: String) -> Outbox {
        Outbox::bounded(destination, MAX_REQUESTS, MAX_BYTES)
    }

    fn bounded(destination: String, max_requests: usize, max_bytes: usize) -> Outbox {
        let counts = Counts { destination, ..Counts::default() };
        let state = Mutex::new(State { counts, ..State::default() });
        Outbox { state, changed: Notify::new(), max_requests, max_bytes }
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a request, and drops the oldest ones if they are too many.
    pub(super) fn add(&self, body: Body) {
        self.with(|state| {
            state.bytes += body.bytes.len();
            state.counts.made += 1;
            state.waiting.push_back(Arc::new(body));
            let first = usize::from(state.is_sending);
            while state.waiting.len() > self.max_requests
                || state.bytes > self.max_bytes && state.waiting.len() > first + 1
            {
                let Some(dropped) = state.waiting.remove(first) else { break };
                state.bytes -= dropped.bytes.len();
                state.counts.dropped += 1;
            }
        });
        self.changed.notify_waiters();
    }

    /// The oldest request, when there is one. Until [`Outbox::ended`] it stays where it is.
    pub(super) async fn first(&self) -> Arc<Body> {
        let find = |state: &mut State| {
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
            state.bytes -= body.bytes.len();
            match attempt {
                Attempt::Sent(rejected) => {
                    state.counts.sent += 1;
                    state.counts.sent_bytes += body.bytes.len() as u64;
                    if let Some((profiles, why)) = rejected {
                        state.counts.rejected_profiles += profiles.min(body.profiles);
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

    /// Completes when nothing waits.
    pub(super) async fn emptied(&self) {
        loop {
            let changed = self.changed.notified();
            if self.with(|state| state.waiting.is_empty()) {
                return;
            }
            changed.await;
        }
    }

    /// What has become of its requests.
    pub(super) fn counts(&self) -> Counts {
        self.with(|state| Counts {
            waiting: state.waiting.len() as u64,
            waiting_bytes: state.bytes as u64,
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

    fn filled(max_requests: usize, max_bytes: usize) -> Outbox {
        let outbox = Outbox::bounded("x".into(), max_requests, max_bytes);
        (1..=5).for_each(|id| outbox.add(body(id)));
        outbox
    }

    fn sum(of: &Counts) -> u64 {
        of.waiting + of.sent + of.refused + of.dropped
    }

    #[tokio::test]
    async fn the_oldest_are_dropped_by_number_or_by_bytes() {
        for (max_requests, max_bytes) in [(3, 1000), (1000, 39)] {
            let outbox = filled(max_requests, max_bytes);
            let counts = outbox.counts();
            assert_eq!((counts.waiting, counts.waiting_bytes, counts.dropped), (3, 30, 2));
            assert_eq!((outbox.first().await.id, sum(&counts)), (3, counts.made));
        }
    }

    #[tokio::test]
    async fn what_is_on_its_way_is_not_dropped() {
        let outbox = filled(3, 1000);
        assert_eq!(outbox.first().await.id, 3);
        (6..=9).for_each(|id| outbox.add(body(id)));
        outbox.ended(Attempt::Sent(Some((9, "old".into()))));
        let counts = outbox.counts();
        assert_eq!((counts.sent, counts.dropped, counts.rejected_profiles), (1, 6, 2));
        // A failure is not the end of it, but it may be dropped now.
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
    async fn one_that_is_too_large_alone_is_sent() {
        let outbox = Outbox::bounded("x".into(), 3, 5);
        outbox.add(body(1));
        assert_eq!((outbox.first().await.id, outbox.counts().dropped), (1, 0));
        outbox.ended(Attempt::Sent(None));
        outbox.emptied().await;
    }
}
