//! The record of a call that changes what is mapped.

use super::Space;

/// Which call, and which end of it. Ranges that a call gives up are reported when it begins: when it returns another thread may
/// have got them already. Records of one process are in the order of what they tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MappingCall {
    /// `mmap` has succeeded: `address` is what it returned.
    Map = 1,
    /// `munmap` begins, with arguments that it takes.
    UnmapBegins = 2,
    /// `mremap` begins.
    RemapBegins = 3,
    /// `mremap` has returned: `address` is what it returned, an error is above [`MappingRecord::LAST_ADDRESS`].
    RemapEnds = 4,
    /// `sbrk` has moved the end of the heap from `old_address` to `address`.
    Break = 5,
}

impl MappingCall {
    /// The call with this number, if there is one.
    pub const fn from_number(number: u32) -> Option<MappingCall> {
        match number {
            1 => Some(MappingCall::Map),
            2 => Some(MappingCall::UnmapBegins),
            3 => Some(MappingCall::RemapBegins),
            4 => Some(MappingCall::RemapEnds),
            5 => Some(MappingCall::Break),
            _ => None,
        }
    }
}

/// A mapping call; `stack_bytes` bytes of stack follow, copied from `sp` on. Without any the stack was not wanted, or
/// [`MappingRecord::FLOODED`] says that it is lost.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MappingRecord {
    /// [`RecordKind::Mapping`](super::RecordKind)
    pub kind: u32,
    /// Bytes of stack that follow (the ring record may be longer).
    pub stack_bytes: u32,
    /// Address space.
    pub space: Space,
    /// Thread id in the root pid namespace.
    pub tid: u32,
    /// Number of the [`MappingCall`], with [`MappingRecord::FLOODED`] if its stack was wanted, and not copied because there were too many.
    pub call: u32,
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: u64,
    /// See [`MappingCall`].
    pub address: u64,
    /// Bytes asked for, not rounded to pages.
    pub length: u64,
    /// See [`MappingCall`].
    pub old_address: u64,
    /// `mremap`: bytes before.
    pub old_length: u64,
    /// Flags of `mmap` or `mremap`.
    pub flags: u64,
    /// Address of the probe: in the function that was called.
    pub function: u64,
    /// Return address of the call: in the caller.
    pub ip: u64,
    /// Stack pointer after the return; where the snapshot starts.
    pub sp: u64,
    /// Frame pointer after the return.
    pub bp: u64,
}

impl MappingRecord {
    /// Whether its stack is lost, because there were too many.
    pub const fn is_flooded(&self) -> bool {
        self.call & MappingRecord::FLOODED != 0
    }

    /// Which call; `None` if it is none that we know.
    pub const fn what(&self) -> Option<MappingCall> {
        MappingCall::from_number(self.call & !MappingRecord::FLOODED)
    }

    /// A bit of `call`. A field of its own would be 8 bytes more on a stack that must do with 512.
    pub const FLOODED: u32 = 1 << 31;
    /// Above it there are error numbers.
    pub const LAST_ADDRESS: u64 = -4096i64 as u64;
}

const _: () = assert!(size_of::<MappingRecord>() == 104);
