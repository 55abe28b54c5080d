//! Notes on losses: numbers are lower bounds, or unknown.

use crate::units::grouped;
use std::fmt::{self, Formatter};

/// What was lost or not seen.
#[derive(Clone, Debug, PartialEq)]
pub enum Loss {
    /// Lost samples of which not even the sizes could be kept.
    LostCells,
    /// Number of samples of preloaded processes that found no room in the library's table.
    LibraryFull(u64),
    /// Number of sampled calls that could not be followed to their end.
    PendingFull(u64),
    /// Number of sampled calls of which only the entry was seen.
    ReturnUnprobed(u64),
    /// The live set was full since this time, nanoseconds since the Unix epoch.
    LiveFull(u64),
    /// Frees are not probed.
    FreesUnprobed,
    /// Number of calls of processes that found no free slot.
    NoSlot(u64),
    /// Number of samples held at exit that found no room.
    LeftAtExit(u64),
    /// Number of samples that are in no lifetime.
    FreedUntimed(u64),
    /// Processes of whose peak a part is forgotten.
    Peak(Vec<String>),
    /// Share of bytes with stacks through unmapped code.
    UnmappedCode(f64),
    /// Share of bytes with stacks through code without unwind information.
    GuessedFrames(f64),
    /// Share of bytes with stacks that end at code without unwind information.
    CutStacks(f64),
    /// Share of bytes without a stack, because their process had used its share of the stack table.
    StackTableFull(f64),
    /// Files whose names or lines could not be read.
    Unread(Vec<String>),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let held = "held numbers are a lower bound";
        match self {
            Loss::LostCells => {
                f.write_str("allocated totals are a lower bound: lost samples could not be kept")
            }
            Loss::LibraryFull(samples) => write!(
                f,
                "{held}: {} samples of preloaded processes found no room there (library_full in sampler status)",
                grouped(*samples)
            ),
            Loss::PendingFull(calls) => write!(
                f,
                "{held}: {} sampled calls could not be followed to their end (pending_full in sampler status)",
                grouped(*calls)
            ),
            Loss::ReturnUnprobed(calls) => write!(
                f,
                "{held}: {} sampled calls of threads with Syscall User Dispatch were seen at their entry only (return_unprobed in sampler status)",
                grouped(*calls)
            ),
            Loss::LiveFull(since_ns) => write!(
                f,
                "live numbers are a lower bound since Unix time {}: the live set was full (raise --max-live)",
                since_ns / 1_000_000_000
            ),
            Loss::FreesUnprobed => f.write_str(
                "what is held is not known, and shown as 0: frees are not probed (--no-live)",
            ),
            Loss::NoSlot(calls) => write!(
                f,
                "a lower bound: {} calls of further processes found no slot free (raise --max-processes)",
                grouped(*calls)
            ),
            Loss::LeftAtExit(samples) => write!(
                f,
                "what was held at exit is a lower bound: {samples} samples found no room (give a larger interval)"
            ),
            Loss::FreedUntimed(samples) => {
                write!(f, "{samples} samples were freed unseen and are left out (raise --ring)")
            }
            Loss::Peak(processes) => match processes.as_slice() {
                [one] => write!(
                    f,
                    "{one}: peak is a lower bound, what has been freed since is forgotten"
                ),
                many => write!(
                    f,
                    "{} processes: peak is a lower bound, what has been freed since is forgotten",
                    many.len()
                ),
            },
            Loss::UnmappedCode(share) => write!(
                f,
                "{:.0} % of bytes have stacks through code that was unmapped before samplerd could look at it: [unmapped code]",
                100.0 * share
            ),
            Loss::GuessedFrames(share) => write!(
                f,
                "{:.0} % of bytes have stacks through code without unwind information: frames may be missing, unless this code keeps frame pointers (node does, Java does with -XX:+PreserveFramePointer)",
                100.0 * share
            ),
            Loss::CutStacks(share) => write!(
                f,
                "{:.0} % of bytes have stacks that end early, at code without unwind information or frame pointers: [no unwind information] (start Java with -XX:+PreserveFramePointer)",
                100.0 * share
            ),
            Loss::StackTableFull(share) => write!(
                f,
                "{:.0} % of bytes have no stack, since a user and a process may fill only a share of the stack table: [stack table full] (give a larger interval)",
                100.0 * share
            ),
            Loss::Unread(files) => {
                let what = "could not be read for names or lines in the memory and time there is";
                match files.as_slice() {
                    [one] => write!(f, "{one} {what}"),
                    many => write!(f, "{} files {what}", many.len()),
                }
            }
        }
    }
}
