//! Intervals that back-pressure has raised: how far, when, and why.

use crate::pipeline::clock::Clocks;
use crate::store::SamplingRecord;
use sampler_common::note::Reason;
use std::time::UNIX_EPOCH;

/// The reasons for raised intervals: one for the limits of samples and one for the ring.
pub(in crate::pipeline::report) fn raised(
    of: &SamplingRecord,
    clocks: Clocks,
) -> impl Iterator<Item = Reason> {
    by_limits(of).into_iter().chain(by_the_ring(of, clocks))
}

fn by_limits(of: &SamplingRecord) -> Option<Reason> {
    if of.raised_for_limits().raises == 0 {
        return None;
    }
    // The preloaded library raises its interval by itself, and does not report when.
    let since = of.raised_since.and_then(|since| since.duration_since(UNIX_EPOCH).ok());
    Some(Reason::RaisedByLimit(since.map(|since| since.as_millis() as u64)))
}

fn by_the_ring(of: &SamplingRecord, clocks: Clocks) -> Option<Reason> {
    let raises = of.ring_pressure;
    let unix_ms = |ns| clocks.to_unix(ns) / 1_000_000;
    (raises.times > 0).then(|| Reason::RaisedByRing {
        factor: raises.factor.round_ties_even() as u64,
        from_unix_ms: unix_ms(raises.from_ns),
        until_unix_ms: raises.until_ns.map(unix_ms),
        times: raises.times,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::clock::Clock;
    use crate::store::Sampling;
    use std::time::Duration;

    #[test]
    fn a_raise_has_its_time_and_cause() {
        let clocks = Clock::default().now();
        let reasons = |of: &SamplingRecord| raised(of, clocks).collect::<Vec<_>>();
        let mut record = SamplingRecord::new(Sampling::geometric(64 << 10));
        assert_eq!(reasons(&record), []);
        record.note_ring_level(30, clocks.now_ns);
        let from_unix_ms = clocks.to_unix(clocks.now_ns) / 1_000_000;
        let ring = |until_unix_ms, times| Reason::RaisedByRing {
            factor: 8,
            from_unix_ms,
            until_unix_ms,
            times,
        };
        assert_eq!(reasons(&record), [ring(None, 1)]);
        record.ring_pressure.end(clocks.now_ns);
        assert_eq!(reasons(&record), [ring(Some(from_unix_ms), 1)]);
        record.note_ring_level(1, clocks.now_ns);
        (record.raised.raises, record.raised_since) =
            (1, Some(UNIX_EPOCH + Duration::from_secs(1)));
        assert_eq!(reasons(&record), [Reason::RaisedByLimit(Some(1000)), ring(None, 2)]);
    }
}
