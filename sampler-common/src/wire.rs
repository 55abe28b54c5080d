//! What crosses the kernel boundary: map keys, map values and ring records.
//!
//! All structs are `repr(C)` with explicit padding, so that hashing and comparing them as bytes is
//! sound. The daemon does not trust values from the kernel: it checks lengths and kinds before use.

mod cookie;
mod filter;
mod mapping;
mod memo;
mod python;
mod record;
mod shape;
mod site;
mod stack_cache;
mod windows;

pub use cookie::{Cookie, SHARED};
pub use filter::{
    FILTER_FRONT_COUNTERS, FILTER_FRONT_LIVE, FILTER_FRONT_SHIFT, FILTER_FULL, FILTER_LINE,
    filter_bit, filter_index, filter_lowered, filter_raised,
};
pub use mapping::{MappingCall, MappingRecord};
pub use memo::{
    MEMO_EXCLUDED, MEMO_EXPECTED, MEMO_NOT_PROFILED, MEMO_UNKNOWN, MEMOS, memo, memo_key,
    memo_value,
};
pub use python::{
    MAX_PYTHON_FRAMES, MAX_PYTHON_INTERPRETERS, PYTHON_BLOCK_MASK, PYTHON_BLOCK_WORDS,
    PYTHON_BYTES_OFFSET, PYTHON_CODE_WORDS, PYTHON_CUT, PYTHON_DIRECT, PYTHON_FRAME_BYTES,
    PYTHON_SCRATCH_WORDS, PYTHON_SEVERAL, PYTHON_SHARED, PYTHON_TABLE_WORDS, PYTHON_VERSION_WORD,
    PythonFrame, PythonRecord, PythonRuntime, PythonScratch, python_has_version, python_mixed,
    python_table_words,
};
pub use record::{AllocationRecord, EventRecord, FreeRecord, RecordKind};
pub use shape::{MAX_ARGUMENTS, NONE, Shape};
pub use site::{Operand, OperandKind, SITE_ARGUMENTS, Site};
pub use stack_cache::{
    CACHE_SETS, CACHE_WAYS, CacheScratch, CachedCall, CachedSpan, CachedStack, cache_set, cache_tag,
};
pub use windows::{Gate, PROBE_ADDRESSES, RETURN_SHADOW_NS, TRAP_SHADOW_BYTES, WindowState};

use crate::counters::KERNEL_OUTCOMES;
use crate::counting::Switch;
use crate::limits::CLASSES;
use crate::sampling::Design;
use core::mem::offset_of;

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
    /// The USDT `otel_memory:alloc(void *pointer, size_t size, size_t weighted_bytes)`: a process
    /// has sampled an allocation by itself.
    OtelAlloc = 12,
    /// The USDT `otel_memory:free(void *pointer)`: a block that the process has sampled by itself
    /// ends.
    OtelFree = 13,
    /// The USDT `sampler_preload:ended(uint64_t how)`: a sample of our own preloaded library has
    /// ended as an [`Unusual`] one.
    LibraryEnded = 14,
    /// `void *operator new(std::size_t size)` that does not call malloc. It can throw, so it never
    /// gets a return probe.
    New = 7,
    /// `void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)`.
    ///
    /// `Map` and the roles with higher numbers are of functions that change what is mapped. Their
    /// hits are not counted.
    Map = 16,
    /// `int munmap(void *address, size_t length)`
    Unmap = 17,
    /// `void *mremap(void *old_address, size_t old_length, size_t length, int flags, …)`
    Remap = 18,
    /// `void *sbrk(intptr_t increment)`
    MoveBreak = 19,
}

impl Role {
    /// Whether functions of the role change what is mapped, in any process.
    pub const fn is_mapping(self) -> bool {
        self as u8 >= Role::Map as u8
    }

    /// The role with this number, if there is one.
    pub const fn from_number(number: u8) -> Option<Role> {
        match number {
            1 => Some(Role::Malloc),
            2 => Some(Role::Calloc),
            3 => Some(Role::Realloc),
            4 => Some(Role::AlignedAlloc),
            5 => Some(Role::PosixMemalign),
            6 => Some(Role::Free),
            12 => Some(Role::OtelAlloc),
            13 => Some(Role::OtelFree),
            14 => Some(Role::LibraryEnded),
            7 => Some(Role::New),
            16 => Some(Role::Map),
            17 => Some(Role::Unmap),
            18 => Some(Role::Remap),
            19 => Some(Role::MoveBreak),
            _ => None,
        }
    }
}

/// How a sample of the preloaded library ends if it is not reported, or not reported as usual. The
/// library passes the number to the probe `ended`. The numbers are a contract between the library
/// and samplerd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Unusual {
    /// The table of blocks was full, or its slot for the address was not free in time. The sample
    /// was reported with its end at once, since a later free could not find the block.
    TableFull = 0,
    /// The end of a block was missed, and was reported when the block's address was allocated
    /// again.
    EndedLate = 1,
    /// A request for 0 bytes: the contract of `otel_memory` cannot report it.
    Empty = 2,
    /// The allocator returned no block: nothing was allocated.
    Failed = 3,
}

/// Entries of the array `HITS` for each process slot.
///
/// Every [`Role`] whose hits are counted has at least two: for instructions that the kernel
/// emulates, and for those that it single-steps ([`Cookie::counter`]). Their hits cost differently.
pub const HITS_PER_SLOT: u32 = 32;

/// Rule of the counters in `HITS`: approximate from 2^13 hits on (90 % within 1.6 %). From 2^29
/// hits on one hit in 65,536 writes, and the relative error falls further. The rule needs one
/// 32-bit random number.
pub const HITS_SWITCH: Switch = Switch::DEFAULT.capped(16);

/// In place of a slot in the map `TARGETS`: the process is not profiled.
pub const EXCLUDED: u32 = u32::MAX;

/// In place of a slot in the map `TARGETS`: the process gets a slot with its first allocation.
pub const EXPECTED: u32 = u32::MAX - 1;

/// An address space: a process slot and one program image of its process (each `execve` makes a new
/// image).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct Space {
    /// Index into the process tables.
    pub slot: u32,
    /// Number of the program image, counted over all uses of the slot.
    pub generation: u32,
}

/// What the probes need to know of a process; value of the array `PROCESSES`, indexed by slot.
///
/// The fields that a sample changes are on one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct ProcessConfig {
    /// Word of the [`crate::sampling::Design`] of each size class.
    pub designs: [u64; CLASSES],
    /// The current [`Space::generation`]; raised by the kernel side at `execve`.
    pub generation: u32,
    /// How often a thread that was not the first one has called `execve`; raised by the kernel
    /// side.
    pub leader_changes: u32,
    /// Entries of the live set that belong to the process.
    pub live: u64,
    /// Bytes of records that the process has put into the ring, over all uses of the slot.
    pub ring_sent: u64,
    /// Bytes of these records that the daemon has read.
    pub ring_read: u64,
    /// Number of the current second (2^30 ns), for `external_sent`.
    pub external_second: u64,
    /// Samples that the process has taken by itself and sent in `external_second`.
    pub external_sent: u64,
    /// Words of the designs that the daemon wants. `designs` are equal to them, or at
    /// lower rates ([`crate::sampling::ring_pressure`]).
    pub wanted: [u64; CLASSES],
    /// Bit n: ring level n has been in force since the daemon last read this field.
    pub levels: u64,
    /// How often ring pressure has raised the interval of a size class in this use of the slot.
    pub ring_raises: u64,
    /// Other than 0: no block enters the live set, since some ends would be missed.
    pub holds_nothing: u64,
    /// Padding to the next cache line.
    pub reserved: [u64; 7],
}

/// Countdown, exact totals and outcomes of a process on one CPU; value of the per-CPU array
/// `TOTALS`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct ProcessTotals {
    /// Hazard until the next sample, raw, see [`crate::sampling::trial`]. Trials are memoryless, so
    /// a countdown per CPU and process samples by the same law as one countdown for all CPUs.
    pub countdown: i64,
    /// Bytes requested so far under a stride, see [`mod@crate::sampling::decide`].
    pub position: i64,
    /// Allocations that happened, by size class.
    pub classes: [ClassTotals; CLASSES],
    /// Counters of the kernel's outcomes, by number.
    pub outcomes: [u64; KERNEL_OUTCOMES],
}

/// Exact totals of one size class.
///
/// The two numbers are adjacent, and small classes are next to the countdown: an unsampled call
/// then changes one or two cache lines.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ClassTotals {
    /// Requested bytes.
    pub bytes: u64,
    /// Number of allocations.
    pub objects: u64,
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
    /// Word of the [`crate::sampling::Design`] that the call was charged with.
    pub design: u64,
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
    /// Sample points that fell into the request; 0 when the call is followed but not sampled.
    pub hits: u32,
}

/// Key of the live set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct LiveKey {
    /// The block's address.
    pub pointer: u64,
    /// The address space of `pointer`.
    pub space: Space,
}

/// A sampled block that is held; value of the live set, which is authoritative for what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct LiveEntry {
    /// Unique number of the sample, never 0.
    pub sample: u64,
    /// Requested bytes.
    pub size: u64,
    /// Word of the [`crate::sampling::Design`] that the sample was charged with.
    pub design: u64,
    /// `CLOCK_MONOTONIC` in nanoseconds at the allocation's return.
    pub time_ns: u64,
    /// [`STACK_LOST`] or 0, the admission's halvings, and the sample points.
    ///
    /// The halvings stand from bit [`HALVINGS_SHIFT`] on: the block was sampled *and* admitted with
    /// probability π·2^(−halvings). The sample points stand from bit [`HITS_SHIFT`] on.
    pub flags: u64,
}

impl LiveEntry {
    /// Whether the free filter counts the block.
    ///
    /// The filter leaves out samples that a process took by itself. The process reports their ends
    /// too, and nearly all blocks that it reports are in the live set. Asking the filter would cost
    /// two cache lines, and keeping it up to date two more at the allocation and at the free.
    #[inline(always)]
    pub const fn is_filtered(&self) -> bool {
        !Design::from_word(self.design).is_external()
    }
}

/// Flag of [`LiveEntry`]: the record with the stack found no room in the ring.
pub const STACK_LOST: u64 = 1;

/// First bit of the admission's halvings in the flags of [`LiveEntry`].
pub const HALVINGS_SHIFT: u32 = 8;

/// First bit of the sample points in the flags of [`LiveEntry`].
pub const HITS_SHIFT: u32 = 32;

/// Most halvings at admission.
pub const MAX_HALVINGS: u64 = 15;

/// Key of samples whose record was lost: enough to weight each of the samples afterwards.
///
/// Sizes fall into buckets of relative width 1/32 ([`crate::sampling::size_bucket`]). The cell
/// keeps the number of samples and the sum of their sizes. So the mean size of a cell is exact, and
/// its weight is wrong by less than 10⁻³.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct LostKey {
    /// Word of the [`crate::sampling::Design`] that the samples were charged with.
    pub design: u64,
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
    /// Sum of their sample points.
    pub hits: u64,
    /// Sum over the samples of the bytes from the (first) sampled byte to the end of the block.
    pub tails: u64,
}

const _: () = assert!(size_of::<ProcessConfig>() == CLASSES * 16 + 128);
// The fields from `generation` to `external_sent` are on one cache line.
const _: () = assert!(offset_of!(ProcessConfig, generation) % 64 == 0);
const _: () = assert!(offset_of!(ProcessConfig, wanted) % 64 == 48);
const _: () = assert!(size_of::<PendingKey>() == 16);
const _: () = assert!(size_of::<Pending>() == 96);
const _: () = assert!(size_of::<LiveKey>() == 16);
const _: () = assert!(size_of::<LiveEntry>() == 40);
const _: () = assert!(size_of::<LostKey>() == 16);

/// What all processes share; the one value of the array `STATE`.
///
/// Fields that are read for every call come first, on another cache line than fields that may be
/// written for every call.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct KernelState {
    /// Number of the last sample.
    pub sequence: u64,
    /// Entries of the live set.
    pub live: u64,
    /// Number of slots that new processes have taken.
    pub claims: u64,
    /// Children of followed processes that are not followed, because `TARGETS` had no room for
    /// them.
    pub unfollowed: u64,
    /// Entries of the live set that each process may have before it has to make room for others;
    /// set by the daemon.
    pub live_share: u64,
    /// How often `TARGETS` has changed, see [`memo_value`].
    pub epoch: u64,
    /// Explicit padding to a cache line, 0.
    pub pad: [u64; 2],
    /// Calls of processes that are to be profiled but found no slot.
    pub unseen_calls: u64,
    /// Calls of excluded processes, which pay the trap of a shared link as well.
    pub excluded_calls: u64,
    /// Explicit padding to a cache line, 0.
    pub last_pad: [u64; 6],
}

const _: () = assert!(size_of::<KernelState>() == 128);
