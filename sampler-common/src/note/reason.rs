//! What holds of a process.

use crate::limits::EXTERNAL_PER_SECOND;
use crate::units::{grouped, human_bytes, utc};
use std::fmt::{self, Formatter};

/// What holds of a process. Processes of equal reasons are named together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Its injected sampler was taken out: the blocks that it held then cannot be followed any more.
    Orphaned {
        /// Since when, milliseconds since the Unix epoch.
        since_unix_ms: u64,
        /// The estimate of what it held.
        bytes: u64,
        /// Lower end of its interval.
        low_bytes: u64,
        /// Upper end.
        high_bytes: u64,
        /// Sampled blocks among them.
        samples: u64,
    },
    /// It has sent more samples of its own than it is believed.
    Flooded,
    /// A limit of samples has raised its interval: the last time, milliseconds since the Unix epoch, if that is known.
    RaisedByLimit(Option<u64>),
    /// A ring that was not read in time has raised its interval.
    RaisedByRing {
        /// What the interval was multiplied by at most.
        factor: u64,
        /// From when, the last time, milliseconds since the Unix epoch.
        from_unix_ms: u64,
        /// Until when; `None`: until now.
        until_unix_ms: Option<u64>,
        /// How many times.
        times: u64,
    },
    /// Its exact totals are not known, so that it is not calibrated.
    Inexact,
    /// It is said to sample by itself, and has sent nothing.
    NoReports,
    /// It samples by itself.
    SamplesItself,
    /// It has called no function that is probed.
    Uncalled,
    /// Something of it is not seen, for this reason.
    Blind(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let at = |unix_ms: u64| utc(unix_ms * 1_000_000);
        match self {
            Reason::Orphaned { since_unix_ms, bytes, low_bytes, high_bytes, samples } => {
                let [bytes, low, high] =
                    [bytes, low_bytes, high_bytes].map(|of| human_bytes(*of as f64));
                write!(
                    f,
                    "its sampler was taken out at {}: {bytes} ({low} … {high}) that it held then, {} samples, cannot be followed any more, and do not count as held",
                    at(*since_unix_ms),
                    grouped(*samples)
                )
            }
            Reason::Flooded => write!(
                f,
                "sent more than {EXTERNAL_PER_SECOND} samples of its own a second: what is shown of it is a lower bound, and no interval has an upper end (usdt_flood in sampler status)"
            ),
            Reason::RaisedByLimit(since) => {
                let since = since
                    .map(|since| format!(", the last time from {}", at(since)))
                    .unwrap_or_default();
                write!(
                    f,
                    "at times sampled more rarely than that{since}: more samples came than may (a limit of samples; sampler status has the interval)"
                )
            }
            Reason::RaisedByRing { factor, from_unix_ms, until_unix_ms, times } => {
                let until = until_unix_ms.map_or("now".to_owned(), at);
                let last = if *times > 1 {
                    format!(" (the last of {times} times)")
                } else {
                    String::new()
                };
                write!(
                    f,
                    "interval raised up to {factor}-fold from {} to {until}{last}: samplerd did not read its ring in time; stacks that found no room in it are [lost stacks]",
                    at(*from_unix_ms)
                )
            }
            Reason::Inexact => {
                write!(f, "its exact totals are not known, so it is weighted, not calibrated")
            }
            Reason::NoReports => write!(
                f,
                "nothing has come from a library that samples in it: it has sampled nothing, or the library is not in it (it does not enter static and setuid programs)"
            ),
            Reason::SamplesItself => {
                write!(f, "samples by itself (otel_memory); exact totals are not known")
            }
            Reason::Uncalled => write!(
                f,
                "it called no function that is probed: it allocated nothing, or in ways that are not seen (as static programs without symbols do)"
            ),
            Reason::Blind(why) => f.write_str(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raise_is_named_with_its_time_and_cause() {
        let raised = |until_unix_ms, times| {
            Reason::RaisedByRing { factor: 8, from_unix_ms: 1_250, until_unix_ms, times }
                .to_string()
        };
        let from = "interval raised up to 8-fold from 1970-01-01T00:00:01.250Z to ";
        assert!(raised(None, 1).starts_with(&format!("{from}now: samplerd did not")));
        let last = format!("{from}1970-01-01T00:00:02.000Z (the last of 2 times): samplerd");
        assert!(raised(Some(2_000), 2).starts_with(&last));
        let limit = Reason::RaisedByLimit(Some(1_000)).to_string();
        let begins = "at times sampled more rarely than that, the last time from 1970-01-01T00:00:01.000Z: more samples came";
        assert!(limit.starts_with(begins), "{limit}");
    }
}
