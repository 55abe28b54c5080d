//! What crosses the kernel boundary: map keys, map values and ring records.
//!
//! All structs are `repr(C)` with explicit padding, so that hashing and comparing them as bytes
//! is sound. Values that come from the kernel are untrusted by the daemon: it checks lengths and
//! kinds before it believes them.

use crate::counters::KERNEL_OUTCOMES;
use crate::limits::CLASSES;

/// What a probed function does, with its C prototype. The number is part of the probe cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Role {
    /// `void *malloc(size_t size)`; also `valloc` and `pvalloc`.
    Malloc = 1,
    /// `void *calloc(size_t count, size_t size)`
    Calloc = 2,
    /// `void *realloc(void *old, size_t size)`
    Realloc = 3,
    /// `void *aligned_alloc(size_t alignment, size_t size)`; also `memalign`.
    AlignedAlloc = 4,
    /// `int posix_memalign(void **out, size_t alignment, size_t size)`
    PosixMemalign = 5,
    /// `void free(void *p)`; also `cfree`, `free_sized`, `free_aligned_sized`.
    Free = 6,
}

impl Role {
    /// The role with this number, if there is one.
    pub const fn from_number(number: u8) -> Option<Role> {
        match number {
            1 => Some(Role::Malloc),
            2 => Some(Role::Calloc),
            3 => Some(Role::Realloc),
            4 => Some(Role::AlignedAlloc),
            5 => Some(Role::PosixMemalign),
            6 => Some(Role::Free),
            _ => None,
        }
    }
}

/// The attach cookie of a probe: who and what, without a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Cookie(pub u64);

impl Cookie {
    /// The cookie of `role` in the process of `slot`.
    pub const fn new(slot: u32, role: Role) -> Cookie {
        Cookie(slot as u64 | (role as u64) << 32)
    }

    /// The process slot.
    #[inline(always)]
    pub const fn slot(self) -> u32 {
        self.0 as u32
    }

    /// The number of the [`Role`].
    #[inline(always)]
    pub const fn role(self) -> u8 {
        (self.0 >> 32) as u8
    }
}

/// An address space: a process slot and which program image of it (each `execve` makes a new one).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct Space {
    /// Index into the process tables.
    pub slot: u32,
    /// Counts program images, over all uses of the slot.
    pub generation: u32,
}

/// What the probes need to know of a process; value of the array `PROCESSES`, indexed by slot.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct ProcessConfig {
    /// λ of each size class in raw units, see [`crate::sampling::Rate`].
    pub rates: [u64; CLASSES],
    /// The current [`Space::generation`]; raised by the kernel side at `execve`.
    pub generation: u32,
    /// 1 while the slot is in use.
    pub enabled: u32,
    /// Process id in the root pid namespace.
    pub pid: u32,
    /// How often a thread that was not the first one has called `execve`; raised by the kernel side.
    pub leader_changes: u32,
}

/// Countdown, exact totals and outcomes of a process on one CPU; value of the per-CPU array `TOTALS`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct ProcessTotals {
    /// Hazard until the next sample, raw, see [`crate::sampling::trial`]. Trials are memoryless, so
    /// that a countdown per CPU and process samples by the same law as one for all.
    pub countdown: i64,
    /// Requested bytes of allocations that happened, by size class.
    pub bytes: [u64; CLASSES],
    /// Number of allocations that happened, by size class.
    pub objects: [u64; CLASSES],
    /// Counters of the kernel's outcomes, by number.
    pub outcomes: [u64; KERNEL_OUTCOMES],
}

/// Key of a call between its entry and its return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct PendingKey {
    /// `bpf_get_current_pid_tgid()`.
    pub thread: u64,
    /// Address of the stack slot that holds the call's return address.
    pub return_slot: u64,
}

/// A call between its entry and its return.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Pending {
    /// Requested bytes.
    pub size: u64,
    /// λ it was charged with, raw; 0 when it is followed but not sampled.
    pub rate: u64,
    /// 0-based offset of the sampled byte.
    pub offset: u64,
    /// `out` of `posix_memalign`, `old` of a `realloc` whose old block was sampled, else 0.
    pub argument: u64,
    /// Entry address of the probed function (the probe's address).
    pub function: u64,
    /// The old block's live entry, when `argument` is a sampled old block (`old.sample` ≠ 0).
    pub old: LiveEntry,
    /// Address space at entry.
    pub space: Space,
    /// Number of the [`Role`].
    pub role: u32,
    /// Explicit padding, 0.
    pub pad: u32,
}

/// Key of the live set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct LiveKey {
    /// The block's address.
    pub pointer: u64,
    /// Where that address means something.
    pub space: Space,
}

/// A sampled block that is held; value of the live set. The live set is the truth for what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct LiveEntry {
    /// Unique number of the sample, never 0.
    pub sample: u64,
    /// Requested bytes.
    pub size: u64,
    /// λ it was charged with, raw.
    pub rate: u64,
    /// `CLOCK_MONOTONIC` in nanoseconds at the allocation's return.
    pub time_ns: u64,
    /// [`STACK_LOST`] or 0, and the admission's halvings from bit [`HALVINGS_SHIFT`] on: the block was sampled *and*
    /// admitted with probability π·2^(−halvings).
    pub flags: u64,
}

/// Flag of [`LiveEntry`]: the record with the stack found no room in the ring.
pub const STACK_LOST: u64 = 1;

/// First bit of the admission's halvings in the flags of [`LiveEntry`].
pub const HALVINGS_SHIFT: u32 = 8;

/// Most halvings at admission.
pub const MAX_HALVINGS: u64 = 15;

/// Key of samples whose record was lost: enough to weigh each of them afterwards.
///
/// Sizes fall into buckets of relative width 1/32 ([`crate::sampling::size_bucket`]); the cell keeps
/// their number and sum, so that the mean size of a cell is exact and its weight wrong by less than 10⁻³.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct LostKey {
    /// λ the samples were charged with, raw.
    pub rate: u64,
    /// Process slot.
    pub slot: u32,
    /// Bucket of the requested size.
    pub bucket: u32,
}

/// Samples of one [`LostKey`].
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct LostCell {
    /// Number of samples.
    pub samples: u64,
    /// Sum of their requested bytes.
    pub bytes: u64,
}

/// What a ring record is; the first field of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RecordKind {
    /// [`AllocationRecord`], followed by the stack snapshot.
    AllocationSnapshot = 1,
    /// [`AllocationRecord`], followed by return addresses, leaf first (`--unwind fp`).
    AllocationFrames = 2,
    /// [`FreeRecord`]
    Free = 3,
    /// [`EventRecord`]: the process replaced its program image.
    Exec = 4,
    /// [`EventRecord`]: the live set passed [`crate::limits::THIN_AT_PERCENT`].
    LiveHigh = 5,
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
    /// Number of the [`Role`].
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
    /// λ it was charged with, raw.
    pub rate: u64,
    /// 0-based offset of the sampled byte.
    pub offset: u64,
    /// Address of the probe: in the allocating function.
    pub function: u64,
    /// Return address of the call: in the caller.
    pub ip: u64,
    /// Stack pointer after the return; where the snapshot starts.
    pub sp: u64,
    /// Frame pointer after the return.
    pub bp: u64,
    /// A stack slot whose return address the kernel has replaced (an outer probed call), or 0.
    pub hijacked_slot: u64,
    /// The address that belongs there.
    pub hijacked_ip: u64,
    /// 0 if the sample is not in the live set, else 1 + the admission's halvings.
    pub live: u32,
    /// Explicit padding, 0.
    pub pad: u32,
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
    /// The sample that ended.
    pub sample: u64,
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: u64,
}

/// Something happened to a process or to the live set.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EventRecord {
    /// [`RecordKind`]
    pub kind: u32,
    /// Explicit padding, 0.
    pub pad: u32,
    /// Address space (after the event).
    pub space: Space,
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: u64,
}

const _: () = assert!(size_of::<ProcessConfig>() == CLASSES * 8 + 16);
const _: () = assert!(size_of::<PendingKey>() == 16);
const _: () = assert!(size_of::<Pending>() == 96);
const _: () = assert!(size_of::<LiveKey>() == 16);
const _: () = assert!(size_of::<LiveEntry>() == 40);
const _: () = assert!(size_of::<LostKey>() == 16);
const _: () = assert!(size_of::<AllocationRecord>() == 128);
const _: () = assert!(size_of::<FreeRecord>() == 32);
const _: () = assert!(size_of::<EventRecord>() == 24);

/// What all processes share; the one value of the array `STATE`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct KernelState {
    /// Number of the last sample.
    pub sequence: u64,
    /// Entries of the live set.
    pub live: u64,
    /// Explicit padding to a cache line, 0.
    pub pad: [u64; 6],
}

const _: () = assert!(size_of::<KernelState>() == 64);

/// Counters of the free filter's front level: 64 KiB.
pub const FILTER_FRONT_COUNTERS: u32 = 1 << 14;

/// `shift` of the front level for [`filter_index`].
pub const FILTER_FRONT_SHIFT: u64 = 64 - FILTER_FRONT_COUNTERS.trailing_zeros() as u64;

/// Counter of the free filter that a block belongs to; `shift` is 64 − log2 of their number.
///
/// Multiplicative (Fibonacci) hashing of the address in units of 8 bytes, less than which no allocator
/// aligns. The shift before it breaks the regular distances of neighbouring blocks: without it the
/// live blocks of a heap of equal blocks meet either none of the others or a third of them.
#[inline(always)]
pub const fn filter_index(pointer: u64, slot: u32, shift: u64) -> u64 {
    let key = (pointer >> 3) ^ ((slot as u64) << 52);
    (key ^ (key >> 12)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (shift & 63)
}
