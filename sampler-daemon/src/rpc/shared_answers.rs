//! Profiles that several `WatchProfile` streams with the same question share.
//!
//! Streams of one period make their profiles at the same times. So a profile that one of them has
//! just made is as new as the next stream's own would be.

use super::v1::{GetProfileRequest, Profile};
use prost::Message as _;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// Profiles that are kept for further streams. Each may need tens of megabytes.
const MAX_KEPT: usize = 2;

/// All streams of a server, and the last profiles that they made.
#[derive(Clone, Debug)]
pub(super) struct SharedAnswers {
    /// Streams of one period tick at multiples of the period since then.
    start: Instant,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of streams by question.
    streams: HashMap<Vec<u8>, usize>,
    /// Oldest first; one for each question.
    kept: Vec<Kept>,
}

#[derive(Debug)]
struct Kept {
    question: Vec<u8>,
    /// When the making began.
    begun: Instant,
    profile: Profile,
    /// Streams that have not received the profile.
    waiting: usize,
}

impl SharedAnswers {
    pub(super) fn new() -> SharedAnswers {
        SharedAnswers { start: Instant::now(), state: Arc::default() }
    }

    /// A further stream of profiles for `question`.
    pub(super) fn stream(&self, question: &GetProfileRequest, period: Duration) -> SharingStream {
        let question = question.encode_to_vec();
        *locked(&self.state).streams.entry(question.clone()).or_default() += 1;
        let passed = self.start.elapsed().as_nanos() / period.as_nanos().max(1);
        let next = self.start + period * (u32::try_from(passed).unwrap_or(u32::MAX - 1) + 1);
        let mut ticks = interval_at(next, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        SharingStream { state: Arc::clone(&self.state), question, ticks, has_begun: false }
    }
}

/// One of the streams.
#[derive(Debug)]
pub(super) struct SharingStream {
    state: Arc<Mutex<State>>,
    question: Vec<u8>,
    ticks: Interval,
    has_begun: bool,
}

impl SharingStream {
    /// Waits for the time of the next profile, and returns the earliest time at which its making may
    /// have begun. The first profile is due at once.
    pub(super) async fn tick(&mut self) -> Instant {
        if !std::mem::replace(&mut self.has_begun, true) {
            return Instant::now();
        }
        let due = self.ticks.tick().await;
        // If the client has read slowly, the profile was due long ago.
        let last = Instant::now().checked_sub(self.ticks.period());
        last.map_or(due, |last| due.max(last))
    }

    /// The profile of another stream, if its making began at `since` or later.
    pub(super) fn shared(&self, since: Instant) -> Option<Profile> {
        let mut state = locked(&self.state);
        let is_new = |of: &Kept| of.question == self.question && of.begun >= since;
        let at = state.kept.iter().position(is_new)?;
        let kept = &mut state.kept[at];
        kept.waiting -= 1;
        match kept.waiting {
            0 => Some(state.kept.remove(at).profile),
            _ => Some(kept.profile.clone()),
        }
    }

    /// Keeps a profile for the other streams with this question, if there are any.
    pub(super) fn share(&self, begun: Instant, profile: &Profile) {
        let mut state = locked(&self.state);
        state.kept.retain(|of| of.question != self.question);
        let waiting = state.streams.get(&self.question).map_or(0, |streams| streams - 1);
        if waiting == 0 {
            return;
        }
        if state.kept.len() == MAX_KEPT {
            state.kept.remove(0);
        }
        let (question, profile) = (self.question.clone(), profile.clone());
        state.kept.push(Kept { question, begun, profile, waiting });
    }
}

impl Drop for SharingStream {
    fn drop(&mut self) {
        let mut state = locked(&self.state);
        if let Entry::Occupied(mut streams) = state.streams.entry(self.question.clone()) {
            *streams.get_mut() -= 1;
            if *streams.get() == 0 {
                streams.remove();
            }
        }
        // Whether this stream was one of those that wait is not known.
        state.kept.retain(|of| of.question != self.question);
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(200);

    fn question(top: u32) -> GetProfileRequest {
        GetProfileRequest { top, ..GetProfileRequest::default() }
    }

    fn profile(samples: u64) -> Profile {
        Profile { samples, ..Profile::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn streams_of_one_question_share_what_is_new() {
        let answers = SharedAnswers::new();
        let mut streams: Vec<_> = (0..3).map(|_| answers.stream(&question(5), PERIOD)).collect();
        let other = answers.stream(&question(6), PERIOD);
        for stream in &mut streams {
            stream.tick().await;
        }
        tokio::time::advance(PERIOD / 3).await;
        let mut times = Vec::new();
        for stream in &mut streams {
            times.push(stream.tick().await);
        }
        assert!(times.iter().all(|time| *time == times[0]), "{times:?}");

        assert_eq!(streams[0].shared(times[0]), None);
        let begun = Instant::now();
        streams[0].share(begun, &profile(9));
        assert_eq!(other.shared(times[0]), None);
        assert_eq!(streams[1].shared(begun + PERIOD), None);
        assert_eq!(streams[1].shared(times[1]), Some(profile(9)));
        assert_eq!(streams[2].shared(times[2]), Some(profile(9)));
        assert!(locked(&answers.state).kept.is_empty(), "every stream has it");
    }

    #[tokio::test(start_paused = true)]
    async fn little_is_kept() {
        let answers = SharedAnswers::new();
        let alone = answers.stream(&question(0), PERIOD);
        alone.share(Instant::now(), &profile(1));
        assert!(locked(&answers.state).kept.is_empty(), "nobody waits for it");
        let pairs: Vec<_> =
            (1..5).map(|top| [0, 1].map(|_| answers.stream(&question(top), PERIOD))).collect();
        for [one, _] in &pairs {
            one.share(Instant::now(), &profile(1));
            one.share(Instant::now(), &profile(2));
        }
        assert_eq!(locked(&answers.state).kept.len(), MAX_KEPT);
        drop((pairs, alone));
        let state = locked(&answers.state);
        assert!(state.kept.is_empty() && state.streams.is_empty(), "{state:?}");
    }
}
