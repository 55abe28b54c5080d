//! The time to wait before a request is sent again.

use std::time::{Duration, SystemTime};

const MIN_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(60);
/// The longest wait that a backend can ask for. After a longer request, the backend is tried after
/// this time.
const MAX_REQUESTED_DELAY: Duration = Duration::from_secs(3600);

/// Waits that double, each with jitter. The jitter keeps many hosts from retrying at the same
/// moment.
#[derive(Debug, Default)]
pub(super) struct BackOff {
    failures: u32,
}

impl BackOff {
    /// Starts from the shortest wait: a request got through.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the next wait. If the backend asked for a wait, the next wait is at least that, up
    /// to [`MAX_REQUESTED_DELAY`]. `random` is from 0 to 1.
    pub(super) fn next(&mut self, requested: Option<Duration>, random: f64) -> Duration {
        let delay = MIN_DELAY.saturating_mul(1 << self.failures.min(16)).min(MAX_DELAY);
        self.failures = self.failures.saturating_add(1);
        match requested {
            Some(requested) => requested.min(MAX_REQUESTED_DELAY).mul_f64(1.0 + 0.1 * random),
            None => delay.mul_f64(0.5 + 0.5 * random),
        }
    }
}

/// Parses the value of `Retry-After`: seconds, or a date (RFC 9110, 10.2.3).
pub(super) fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    match value.trim().parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let date = httpdate::parse_http_date(value.trim()).ok()?;
            Some(date.duration_since(now).unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound() {
        let mut back_off = BackOff::default();
        let waits = [0.0, 1.0, 0.5].map(|random| back_off.next(None, random).as_millis());
        assert_eq!(waits, [500, 2000, 3000]);
        let last = (0..100).map(|_| back_off.next(None, 1.0)).last();
        assert_eq!(last, Some(MAX_DELAY));
        back_off.reset();
        assert_eq!(back_off.next(None, 1.0), MIN_DELAY);
    }

    #[test]
    fn waits_are_at_least_the_requested_delay() {
        let requested = |seconds| Some(Duration::from_secs(seconds));
        let mut back_off = BackOff::default();
        assert_eq!(back_off.next(requested(100), 0.0), Duration::from_secs(100));
        assert_eq!(back_off.next(requested(100), 1.0), Duration::from_secs(110));
        assert_eq!(back_off.next(requested(u64::MAX), 0.0), MAX_REQUESTED_DELAY);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777 - 30);
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(retry_after(date, now), requested(30));
        assert_eq!(retry_after(date, SystemTime::now()), requested(0));
        assert_eq!(retry_after(" 7 ", now), requested(7));
        assert_eq!((retry_after("-1", now), retry_after("soon", now)), (None, None));
    }
}
