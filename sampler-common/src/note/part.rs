//! Which part of what happened the numbers cover.

use crate::units::{human_duration, size_range, utc};
use std::fmt::{self, Formatter};
use std::time::Duration;

/// Maximum number of processes that are named with their times; further ones are counted.
const MAX_NAMED_PROCESSES: usize = 4;

/// Which part of what happened the numbers cover.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Held memory of a window's own allocations.
    Window,
    /// The smallest and the largest size, if limited.
    Sizes(Option<u64>, Option<u64>),
    /// Blocks held for a time, nanoseconds: at least and at most.
    Ages(Option<u64>, Option<u64>),
    /// Held memory includes what exited processes held to the end.
    HeldAtExit,
    /// Processes at peaks of their own, each with its time, nanoseconds since the Unix epoch.
    OwnPeaks(Vec<(String, u64)>),
    /// A profile minus an earlier one.
    Difference,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Part::Window => write!(
                f,
                "held numbers are of the window's own allocations: what was allocated before the window is not in them (growth: sampler leaks)"
            ),
            Part::Sizes(smallest, largest) => write!(f, "{} only", size_range(*smallest, *largest)),
            Part::Ages(least, most) => {
                write!(f, "held numbers are of blocks held for {}", ages(*least, *most))
            }
            Part::HeldAtExit => {
                write!(f, "held numbers include what exited processes held to the end")
            }
            Part::OwnPeaks(peaks) => own_peaks(peaks, f),
            Part::Difference => write!(
                f,
                "a difference: what was allocated in the window, and by how much more is held than before it"
            ),
        }
    }
}

fn duration(ns: u64) -> String {
    human_duration(Duration::from_nanos(ns))
}

fn ages(least: Option<u64>, most: Option<u64>) -> String {
    match (least.map(duration), most.map(duration)) {
        (None, None) => "any time".to_owned(),
        (Some(least), None) => format!("{least} or longer"),
        (None, Some(most)) => format!("{most} at most"),
        (Some(least), Some(most)) => format!("{least} to {most}"),
    }
}

fn own_peaks(peaks: &[(String, u64)], f: &mut Formatter<'_>) -> fmt::Result {
    if peaks.len() > MAX_NAMED_PROCESSES {
        let times = peaks.iter().map(|(_, time_ns)| *time_ns);
        let [first, last] = [times.clone().min(), times.max()].map(|of| utc(of.unwrap_or(0)));
        return write!(f, "each of {} processes at its own peak: {first} to {last}", peaks.len());
    }
    let times = peaks.iter().map(|(whose, time_ns)| format!("{whose} at {}", utc(*time_ns)));
    write!(f, "each process at its own peak: {}", times.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_noted_as_applied() {
        let sizes = Part::Sizes(None, Some(1007));
        assert_eq!(sizes.to_string(), "sizes up to 1007B only");
        let ages = Part::Ages(Some(90_000_000_000), None);
        let text = "held numbers are of blocks held for 1 m 30 s or longer";
        assert_eq!(ages.to_string(), text);
    }

    #[test]
    fn a_few_peaks_are_named() {
        let peaks = |number: u64| {
            Part::OwnPeaks(
                (1..=number).map(|pid| (format!("pid {pid}"), pid * 1_000_000_000)).collect(),
            )
        };
        let two = "each process at its own peak: pid 1 at 1970-01-01T00:00:01.000Z, pid 2 at 1970-01-01T00:00:02.000Z";
        assert_eq!(peaks(2).to_string(), two);
        let many = "each of 5 processes at its own peak: 1970-01-01T00:00:01.000Z to 1970-01-01T00:00:05.000Z";
        assert_eq!(peaks(5).to_string(), many);
    }
}
