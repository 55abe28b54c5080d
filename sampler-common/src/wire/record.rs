//! Records of the ring buffer.

use super::Space;

/// The kind of a ring record, which is the first field of each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RecordKind {
    /// [`AllocationRecord`], followed by the stack snapshot.
    AllocationSnapshot = 1,
    /// [`AllocationRecord`], followed by return addresses, leaf first (`--unwind fp`).
    AllocationFrames = 2,
    /// [`AllocationRecord`], followed by the [id](super::CachedStack::id) of a cached stack.
    AllocationKnown = 18,
    /// [`FreeRecord`]
    Free = 3,
    /// [`EventRecord`]: the process replaced its program image.
    Exec = 4,
    /// [`EventRecord`]: the live set passed [`crate::limits::THIN_AT_PERCENT`].
    LiveHigh = 5,
    /// [`EventRecord`]: a new process has taken a slot.
    Appeared = 6,
    /// [`EventRecord`]: the first thread of a process is exiting; other threads may go on.
    Leaving = 7,
    /// [`EventRecord`]: a process that is expected to take a slot replaced its program image;
    /// `space` has no slot.
    ExpectedExec = 11,
    /// [`MappingRecord`](super::MappingRecord), perhaps followed by a stack snapshot.
    Mapping = 8,
    /// [`EventRecord`]: the gate of a process has reached a state in which it waits for the daemon.
    Gate = 17,
    /// [`PythonRecord`](super::PythonRecord)
    Python = 19,
}

/// A sampled allocation; `stack_bytes` bytes of stack follow.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AllocationRecord {
    /// [`RecordKind`]
    pub kind: u32,
    /// Bytes of stack that follow (the ring record may be longer).
    pub stack_bytes: u32,
    /// Address space.
    pub space: Space,
    /// Number of the [`Role`](super::Role).
    pub role: u32,
    /// Thread id in the root pid namespace.
    pub tid: u32,
    /// Unique number of the sample, never 0.
    pub sample: u64,
    /// `CLOCK_MONOTONIC` in nanoseconds at the allocation's return.
    pub time_ns: u64,
    /// The block's address.
    pub pointer: u64,
    /// Requested bytes.
    pub size: u64,
    /// Word of the [`crate::sampling::Design`] that the sample was charged with.
    pub design: u64,
    /// 0-based offset of the sampled byte.
    pub offset: u64,
    /// Address of the probe, in the allocating function.
    pub function: u64,
    /// Return address of the call, in the caller.
    pub ip: u64,
    /// Stack pointer after the return; where the snapshot starts.
    pub sp: u64,
    /// Frame pointer after the return.
    pub bp: u64,
    /// A stack slot whose return address the kernel has replaced (an outer probed call), or 0.
    pub hijacked_slot: u64,
    /// The return address that the kernel has replaced in `hijacked_slot`.
    pub hijacked_ip: u64,
    /// 0 if the sample is not in the live set, else 1 + the admission's halvings.
    pub live: u32,
    /// Sample points that fell into the request.
    pub hits: u32,
}

/// The end of a sampled block.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FreeRecord {
    /// [`RecordKind::Free`]
    pub kind: u32,
    /// Explicit padding, 0.
    pub pad: u32,
    /// Address space.
    pub space: Space,
    /// Number of the sample that ended.
    pub sample: u64,
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: u64,
}

/// An event of a process or of the live set.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EventRecord {
    /// [`RecordKind`]
    pub kind: u32,
    /// Process id in the root pid namespace.
    pub pid: u32,
    /// Address space (after the event).
    pub space: Space,
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: u64,
    /// Command name of the thread, padded with zeros.
    pub comm: [u8; 16],
}

const _: () = assert!(size_of::<AllocationRecord>() == 128);
const _: () = assert!(size_of::<FreeRecord>() == 32);
const _: () = assert!(size_of::<EventRecord>() == 40);
