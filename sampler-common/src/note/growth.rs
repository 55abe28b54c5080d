//! Notes on numbers of growth: what may be mistaken for growth, and growth that may be missed.

use crate::units::{human_duration, utc};
use std::fmt::{self, Formatter};
use std::time::Duration;

/// What limits numbers of growth.
#[derive(Clone, Debug, PartialEq)]
pub enum Growth {
    /// The daemon has run for less time than was asked for.
    DaemonTime,
    /// The period begins at the attach.
    FromAttach,
    /// The period begins this many nanoseconds after the attach.
    AfterAttach(u64),
    /// Number of samples whose free was noticed late, and that count as freed at that time.
    FreedUnseen(u64),
    /// The live set was full since this time, nanoseconds since the Unix epoch.
    LiveFull(u64),
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Growth::DaemonTime => f.write_str("samplerd has been there for no longer than this"),
            Growth::FromAttach => write!(
                f,
                "what was there before the attach is unknown, and that it went: all that is held counts as growth (wait, and ask for a shorter --over)"
            ),
            Growth::AfterAttach(ns) => write!(
                f,
                "blocks from before the attach are unknown: what is held for longer than {} and then freed still counts as growth",
                human_duration(Duration::from_nanos(*ns))
            ),
            Growth::FreedUnseen(samples) => write!(
                f,
                "{samples} samples were freed unseen since attach; they count as freed when that was noticed (raise --ring)"
            ),
            Growth::LiveFull(since_ns) => write!(
                f,
                "growth is a lower bound since {}: the live set was full (raise --max-live)",
                utc(*since_ns)
            ),
        }
    }
}
