//! What a profile says of intervals that back-pressure has raised: how far, when, and why.

use crate::pipeline::clock::Clocks;
use crate::store::SamplingRecord;
use sampler_common::units::utc;
use std::time::UNIX_EPOCH;

/// One line each for the limits of samples and for the ring, where these have raised the interval.
pub(super) fn raised_notes(of: &SamplingRecord, clocks: Clocks) -> Vec<String> {
    by_limits(of).into_iter().chain(by_the_ring(of, clocks)).collect()
}

fn by_limits(of: &SamplingRecord) -> Option<String> {
    if of.raised_for_limits().raises == 0 {
        return None;
    }
    // The preloaded library raises its interval by itself, and does not say when.
    let since = of.raised_since.and_then(|since| since.duration_since(UNIX_EPOCH).ok());
    let since = since.map_or(String::new(), |since| {
        format!(", the last time from {}", utc(since.as_nanos() as u64))
    });
    Some(format!(
        "at times sampled more rarely than that{since}: more samples came than may (a limit of samples; sampler status has the interval)"
    ))
}

fn by_the_ring(of: &SamplingRecord, clocks: Clocks) -> Option<String> {
    let braking = of.braking;
    if braking.times == 0 {
        return None;
    }
    let from = utc(clocks.to_unix(braking.from_ns));
    let until = braking.until_ns.map_or("now".to_owned(), |until| utc(clocks.to_unix(until)));
    let last = match braking.times {
        1 => String::new(),
        times => format!(" (the last of {times} times)"),
    };
    Some(format!(
        "interval raised up to {:.0}-fold from {from} to {until}{last}: samplerd did not read its ring in time; stacks that found no room in it are [lost stacks]",
        braking.factor
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::clock::Clock;
    use crate::store::Sampling;
    use std::time::Duration;

    #[test]
    fn a_raise_is_named_with_its_time_and_cause() {
        let clocks = Clock::default().now();
        let mut record = SamplingRecord::new(Sampling::geometric(64 << 10));
        assert!(raised_notes(&record, clocks).is_empty());
        record.note_brake(30, clocks.now_ns);
        let [line] = &raised_notes(&record, clocks)[..] else { panic!("one line") };
        let from = utc(clocks.to_unix(clocks.now_ns));
        let begins = format!("interval raised up to 8-fold from {from} to now: ");
        assert!(line.starts_with(&begins), "{line}");
        record.braking.end(clocks.now_ns);
        record.note_brake(1, clocks.now_ns);
        let line = raised_notes(&record, clocks).remove(0);
        assert!(line.contains("to now (the last of 2 times): "), "{line}");
        (record.raised.raises, record.raised_since) =
            (1, Some(UNIX_EPOCH + Duration::from_secs(1)));
        let line = raised_notes(&record, clocks).remove(0);
        assert!(
            line.contains("the last time from 1970-01-01") && line.contains("a limit of samples"),
            "{line}"
        );
    }
}
