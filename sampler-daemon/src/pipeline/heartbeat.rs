//! Shows whether the worker thread still runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Time between two checks. An idle worker turns in half of this time.
const PERIOD: Duration = Duration::from_millis(200);

/// Turns of the worker's event loop.
#[derive(Debug, Default)]
pub struct Heartbeat {
    turns: AtomicU64,
    is_ending: AtomicBool,
}

impl Heartbeat {
    /// Counts a turn that the worker begins.
    pub(super) fn beat(&self) {
        self.turns.fetch_add(1, Relaxed);
    }

    /// Marks that the worker is ending: it detaches everything, which takes a while.
    pub(super) fn end(&self) {
        self.is_ending.store(true, Relaxed);
    }

    /// Completes when the worker has begun no turn for `limit` in which this process ran. A worker
    /// that is ending does not stall.
    ///
    /// The limit counts checks instead of elapsed time: samplerd as a whole may have been stopped
    /// meanwhile.
    pub async fn stalled(&self, limit: Duration) {
        let (mut turns, mut waited) = (self.turns.load(Relaxed), Duration::ZERO);
        while waited < limit {
            tokio::time::sleep(PERIOD).await;
            waited += PERIOD;
            let now = self.turns.load(Relaxed);
            if now != turns || self.is_ending.load(Relaxed) {
                (turns, waited) = (now, Duration::ZERO);
            }
        }
    }

    /// Completes when the worker begins its next turn.
    pub async fn resumed(&self) {
        let turns = self.turns.load(Relaxed);
        while self.turns.load(Relaxed) == turns {
            tokio::time::sleep(PERIOD).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_beats_does_not_stall() {
        let heartbeat = Arc::new(Heartbeat::default());
        let start = Instant::now();
        let worker = Arc::clone(&heartbeat);
        tokio::spawn(async move {
            for _ in 0..100 {
                worker.beat();
                tokio::time::sleep(PERIOD / 2).await;
            }
        });
        heartbeat.stalled(Duration::from_secs(5)).await;
        let seconds = start.elapsed().as_secs_f64();
        assert!((14.0..16.0).contains(&seconds), "10 s of turns, and 5 s without: {seconds}");
        let resumed = tokio::spawn({
            let heartbeat = Arc::clone(&heartbeat);
            async move { heartbeat.resumed().await }
        });
        tokio::time::sleep(PERIOD * 3).await;
        assert!(!resumed.is_finished());
        heartbeat.beat();
        resumed.await.unwrap();
    }
}
