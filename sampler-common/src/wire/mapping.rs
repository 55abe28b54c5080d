//! The record of a call that changes what is mapped.

use super::Space;

/// The mapping call, and whether the record is from its beginning or its end.
///
/// A call that gives up ranges is reported when it begins: another thread may already have got the
/// ranges when it returns. Records of one process are in the order of the changes that they report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MappingCall {
    /// `mmap` has succeeded: `address` is what it returned.
    Map = 1,
    /// `munmap` begins, with arguments that the kernel accepts.
    UnmapBegins = 2,
    /// `mremap` begins.
    RemapBegins = 3,
    /// `mremap` has returned: `address` is what it returned, an error is above
    /// [`MappingRecord::LAST_ADDRESS`].
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

/// A mapping call; `stack_bytes` bytes of stack follow, copied from `sp` on. If `stack_bytes` is 0,
/// the stack was not wanted, or [`MappingRecord::FLOODED`] says that it is lost.
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
    /// Number of the [`MappingCall`]. [`MappingRecord::FLOODED`] is set if the stack was wanted but
    /// not copied, because there were too many.
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
    /// Address of the probe, in the function that was called.
    pub function: u64,
    /// Return address of the call, in the caller.
    pub ip: u64,
    /// Stack pointer after the return; where the snapshot starts.
    pub sp: u64,
    /// Frame pointer after the return.
    pub bp: u64,
}

impl MappingRecord {
    /// Whether the stack is lost, because there were too many.
    pub const fn is_flooded(&self) -> bool {
        self.call & MappingRecord::FLOODED != 0
    }

    /// The mapping call; `None` if its number is unknown.
    pub const fn what(&self) -> Option<MappingCall> {
        MappingCall::from_number(self.call & !MappingRecord::FLOODED)
    }

    /// Flag in `call`: the stack is lost. A field of its own would take 8 bytes of a BPF stack of
    /// 512.
    pub const FLOODED: u32 = 1 << 31;
    /// The highest address that a call returns; larger values are error numbers.
    pub const LAST_ADDRESS: u64 = -4096i64 as u64;
}

const _: () = assert!(size_of::<MappingRecord>() == 104);
