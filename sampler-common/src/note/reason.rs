//! A statement about a process.

use crate::limits::EXTERNAL_PER_SECOND;
use crate::units::{grouped, human_bytes, utc};
use std::fmt::{self, Formatter};

/// A statement about a process. Processes with equal reasons are named together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The injected sampler was removed: the blocks that the process held then cannot be followed
    /// any more.
    Orphaned {
        /// When the sampler was removed, milliseconds since the Unix epoch.
        since_unix_ms: u64,
        /// The estimate of the bytes that the process held.
        bytes: u64,
        /// Lower end of the estimate's interval.
        low_bytes: u64,
        /// Upper end of the estimate's interval.
        high_bytes: u64,
        /// Number of sampled blocks in the estimate.
        samples: u64,
    },
    /// The process has sent more samples of its own than are accepted.
    Flooded,
    /// A limit of samples has raised the interval: the last time, milliseconds since the Unix
    /// epoch, if known.
    RaisedByLimit(Option<u64>),
    /// A ring that was not read in time has raised the interval.
    RaisedByRing {
        /// The largest factor of the interval.
        factor: u64,
        /// Start of the last time, milliseconds since the Unix epoch.
        from_unix_ms: u64,
        /// End of the last time, milliseconds since the Unix epoch; `None`: until now.
        until_unix_ms: Option<u64>,
        /// Number of times.
        times: u64,
    },
    /// Exact totals of the process are unknown, so that it is not calibrated.
    Inexact,
    /// The process is said to sample by itself, and has sent nothing.
    NoReports,
    /// The process samples by itself.
    SamplesItself,
    /// The process has called no function that is probed.
    Uncalled,
    /// A part of the process is not seen, for this reason.
    BlindSpot(String),
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
            Reason::BlindSpot(why) => f.write_str(why),
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
