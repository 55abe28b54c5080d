//! Notes on profiles of mapped memory.

use crate::units::grouped;
use std::fmt::{self, Formatter};

/// What limits numbers of mapped memory.
#[derive(Clone, Debug, PartialEq)]
pub enum Mapped {
    /// Pages count whether they are used or not.
    WholePages,
    /// What was mapped before the attach, or past the C library, is unknown.
    SinceAttach,
    /// Number of calls that may be an allocator's.
    MaybeAllocators(u64),
    /// Number of calls that found no room in the ring.
    RingFull(u64),
    /// Number of sampled calls seen at their entry only: mappings of threads with Syscall User
    /// Dispatch are not seen.
    ReturnUnprobed(u64),
    /// The table of ranges was full.
    TableFull,
}

impl fmt::Display for Mapped {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Mapped::WholePages => write!(
                f,
                "whole pages as they were asked for: address space that is only reserved counts as much as memory in use"
            ),
            Mapped::SinceAttach => write!(
                f,
                "what was mapped before the attach is unknown, not zero, and so is what is mapped past the C library"
            ),
            Mapped::MaybeAllocators(calls) => write!(
                f,
                "{} calls may be an allocator's, since too little of their stacks is known: lower ends are without them, values and upper ends with them",
                grouped(*calls)
            ),
            Mapped::RingFull(calls) => write!(
                f,
                "{} calls found no room in the ring: what was mapped is a lower bound, and what is held is not known (raise --ring)",
                grouped(*calls)
            ),
            Mapped::ReturnUnprobed(calls) => write!(
                f,
                "a lower bound: of threads with Syscall User Dispatch no mapping is seen ({calls} return_unprobed in sampler status)"
            ),
            Mapped::TableFull => {
                f.write_str("what is held is a lower bound: the table of ranges was full")
            }
        }
    }
}
