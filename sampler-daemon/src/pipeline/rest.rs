//! The fine clock ticks while windows wait for it, and not while their processes stand still: it ticks on every CPU, whoever runs there, and takes up to 8 % of that.
//!
//! A process may stand still in its window for hours. After a moment of that nothing is seen of it any more, and nothing is counted, until one of its probes is hit or the clock of
//! progress ticks in it. So its window misses what it does until then without allocating, and some tenths of a millisecond behind it.

use super::worker::Worker;
use sampler_common::wire::Gate;
use std::time::{Duration, Instant};

/// A process that has not come forward for so long stands still. One that traps slow down forty times has some forty ticks of its own in it.
const MOMENT: Duration = Duration::from_millis(200);
/// How often that is looked at.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// How far a process was, and since when.
#[derive(Debug)]
pub(super) struct Rest {
    progress: [u64; 3],
    since: Instant,
}

impl Rest {
    /// It begins to be looked at.
    pub(super) fn new() -> Rest {
        Rest { progress: [u64::MAX; 3], since: Instant::now() }
    }

    /// Whether it stands still, being so far by now.
    fn is_still(&mut self, progress: [u64; 3], now: Instant) -> bool {
        if progress != self.progress {
            *self = Rest { progress, since: now };
        }
        now.duration_since(self.since) >= MOMENT
    }
}

impl Worker {
    /// Lets the fine clock tick while a window waits for it whose process comes forward, and windows of those go on that have woken.
    pub(super) fn run_fine_clock(&mut self) {
        let Worker { cycles, kernel, .. } = self;
        let Some(duties) = &mut kernel.duties else { return };
        let now = Instant::now();
        let (mut on, mut still, mut awake) = (false, Vec::new(), Vec::new());
        for (slot, cycle) in cycles.iter_mut().filter(|(_, of)| of.window.fine) {
            match duties.gate(*slot) {
                Gate::Ready | Gate::Open => {
                    let is_still = cycle.rest.is_still(duties.progress(*slot), now);
                    on |= !is_still;
                    if is_still {
                        tracing::debug!(slot, "stands still in its window");
                        still.push(*slot);
                    }
                }
                Gate::Awake | Gate::ReadyAwake => {
                    on = true;
                    cycle.rest = Rest::new();
                    tracing::debug!(slot, "goes on in its window");
                    awake.push(*slot);
                }
                _ => cycle.rest = Rest::new(),
            }
        }
        if !on {
            // Before it stops: what is seen is counted.
            still.into_iter().for_each(|slot| duties.sleep(slot));
        }
        duties.set_fine(on);
        awake.into_iter().for_each(|slot| duties.wake(slot));
    }

    /// The fine clock has ticked beside a process for windows of others: that is part of what its profiling has cost.
    pub(super) fn charge_for_others(&mut self, slot: u32) {
        let (Some(duties), Some(cycle), Some(source)) =
            (&self.kernel.duties, self.cycles.get_mut(&slot), self.ingest.sources.get(&slot))
        else {
            return;
        };
        let timers = duties.timers();
        // Of its own windows it is known to the tick, and charged with these.
        let beside_ns = duties.clock(slot).beside as f64 * timers.unit(false);
        let of_others_ns = timers.share_of_fine() * (beside_ns - cycle.fine_own_ns);
        let more_ns = of_others_ns - cycle.of_others_ns;
        if more_ns > 0.0 {
            cycle.of_others_ns = of_others_ns;
            cycle.fixed_ns += more_ns;
            self.ingest.processes.get_mut(source.process).spending.fine_clock_ns += more_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_stands_still_when_nothing_moves_for_a_moment() {
        let mut rest = Rest::new();
        let begin = Instant::now();
        assert!(!rest.is_still([5, 0, 9], begin + 2 * MOMENT), "it was never seen before");
        assert!(!rest.is_still([5, 0, 9], begin + 2 * MOMENT + MOMENT / 2));
        assert!(rest.is_still([5, 0, 9], begin + 3 * MOMENT));
        for moved in [[6, 0, 9], [6, 1, 9], [6, 1, 8]] {
            assert!(!rest.is_still(moved, begin + 9 * MOMENT), "{moved:?}");
        }
        assert!(rest.is_still([6, 1, 8], begin + 10 * MOMENT));
    }
}
