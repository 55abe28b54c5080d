//! The limit of samples that this process sends in a second, from its first sample on.
//!
//! The limit holds whatever the process allocates, and whether samplerd gets a CPU or not. The law
//! is [`sampler_common::sampling::token_bucket`].
//!
//! The limit is checked at each sample that has a reader, and acts on later requests. A request
//! reads the rate in force anyway, so an unsampled request does no work for the limit. The bucket
//! and its clock belong to the process: no thread waits for another. If two threads take a token at
//! the same time, either may put its rate into force. The next sample corrects the rate.
//!
//! A sampled request reads the rate twice: when it is charged, and when its weight is made. Another
//! thread's sample may change the rate in the few nanoseconds between. That happens to one sample
//! in a million, which then counts for half or twice as much.

use crate::clock;
use crate::settings::Settings;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use sampler_common::sampling::Rate;
use sampler_common::sampling::token_bucket::{self, MAX_PERIOD_NS};

impl Settings {
    /// Takes a token for a sample that is sent.
    pub(crate) fn take_token(&self) {
        if let Some(now_ns) = clock::now_ns() {
            self.take_token_at(now_ns);
        }
    }

    fn take_token_at(&self, now_ns: u64) {
        let period_ns = self.period_ns.load(Relaxed).clamp(1, MAX_PERIOD_NS);
        let before = self.until_ns.load(Relaxed);
        let mut until = token_bucket::take(before, now_ns, period_ns);
        if self.until_ns.compare_exchange(before, until, Relaxed, Relaxed).is_err() {
            // Another thread has taken a token; this token is added to that thread's time.
            until = self.until_ns.fetch_add(period_ns, Relaxed).wrapping_add(period_ns);
        }
        self.sample_at(token_bucket::level(until, now_ns, period_ns));
    }

    /// Without a reader nothing is sent and nothing is owed: the rate becomes the one that was
    /// asked for.
    pub(crate) fn forget_debt(&self) {
        if self.rate.load(Relaxed) != self.requested.load(Relaxed) {
            self.until_ns.store(0, Relaxed);
            self.sample_at(0);
        }
    }

    /// Puts the rate of this level into force.
    fn sample_at(&self, level: u32) {
        let requested = self.requested.load(Relaxed);
        let rate = token_bucket::rate(Rate::from_raw(requested), level).raw();
        let before = self.rate.load(Relaxed);
        if rate == before {
            return;
        }
        if before == requested {
            self.raises.fetch_add(1, Relaxed);
        }
        // Stored before the rate: a reader that sees a sample of this rate sees it in `lowest`.
        self.lowest.fetch_min(rate, Relaxed);
        // Sequentially consistent: the processor would otherwise read `requested` before.
        self.rate.swap(rate, SeqCst);
        let now_requested = self.requested.load(Relaxed);
        if now_requested != requested {
            // samplerd has asked for another rate meanwhile.
            self.rate.store(now_requested, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::next_allocator::Usual;

    const SECOND_NS: u64 = 1_000_000_000;

    fn settings(requested: Rate, limit: u64) -> Settings {
        let settings = Settings::new(Usual::first());
        settings.begin(requested);
        settings.period_ns.store(SECOND_NS / limit, Relaxed);
        settings
    }

    #[test]
    fn the_rate_falls_with_a_flood_and_rises_with_time() {
        let requested = Rate::from_interval(64 << 10).unwrap();
        let settings = settings(requested, 1000);
        let flood = |now_ns, samples| (0..samples).for_each(|_| settings.take_token_at(now_ns));
        flood(SECOND_NS, 500);
        assert_eq!((settings.rate(), settings.lowest.load(Relaxed)), (requested, u64::MAX));
        flood(SECOND_NS, 16);
        let halved = settings.rate().raw();
        assert_eq!(halved, requested.raw() / 2);
        flood(SECOND_NS, 10 * 16);
        let lowest = settings.rate().raw();
        assert!(
            lowest.abs_diff(requested.raw() >> 11) <= 1 << 11,
            "{lowest} of {}",
            requested.raw()
        );
        // The debt is paid in a fifth of a second.
        settings.take_token_at(SECOND_NS + SECOND_NS / 5);
        assert_eq!((settings.rate(), settings.raises.load(Relaxed)), (requested, 1));
        assert_eq!(settings.lowest.load(Relaxed), lowest);
        // The clock goes back.
        settings.take_token_at(1);
        settings.take_token_at(3 * SECOND_NS);
        assert_eq!(settings.rate(), requested);
    }

    #[test]
    fn forgetting_the_debt_restores_the_rate() {
        let requested = Rate::from_interval(4096).unwrap();
        let settings = settings(requested, 10);
        (0..100).for_each(|_| settings.take_token_at(5));
        assert!(settings.rate() < requested);
        settings.forget_debt();
        assert_eq!((settings.rate(), settings.until_ns.load(Relaxed)), (requested, 0));
    }

    /// Threads that take tokens at the same time: no token is lost.
    #[test]
    fn threads_take_tokens_from_one_bucket() {
        const THREADS: u64 = 4;
        const EACH: u64 = 1000;
        let settings = settings(Rate::ALWAYS, 20_000);
        settings.until_ns.store(SECOND_NS, Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| (0..EACH).for_each(|_| settings.take_token_at(SECOND_NS)));
            }
        });
        let taken = (settings.until_ns.load(Relaxed) - SECOND_NS) / (SECOND_NS / 20_000);
        assert_eq!(taken, THREADS * EACH);
    }
}
