//! Limits that both sides of the kernel boundary share, and what happens at each limit.

use crate::sampling::token_bucket;

/// Process slots when only given processes are profiled: one slot for each address space that is
/// profiled at the same time. At the limit (`--max-processes`) a further process is refused with a
/// clear line.
pub const MAX_PROCESSES: u32 = 64;

/// Default number of process slots when processes come and go (`--all`, `--follow`). At the limit
/// (`--max-processes`) a further process is not profiled, and its probed calls are counted
/// ([`crate::wire::KernelState::unseen_calls`]).
pub const MAX_OPEN_PROCESSES: u32 = 1024;

/// Maximum number of process slots.
pub const MAX_SLOTS: u32 = 4096;

/// Maximum number of slots in the kernel's maps. The last slot counts the daemon's own hits when it
/// measures the cost of a hit.
pub const MAX_KERNEL_SLOTS: u32 = MAX_SLOTS + 1;

/// Processes known by pid, profiled or not: processes with a slot, excluded processes, and
/// processes that may get a slot.
pub const MAX_TARGETS: u32 = 32 * 1024;

/// Allocation size classes, see [`crate::sampling::class()`].
pub const CLASSES: usize = 32;

/// Sampled or followed calls that are between their entry and their return. At the limit a further
/// call is not followed: outcome `pending_full`.
pub const MAX_PENDING: u32 = 16 * 1024;

/// Cells of samples whose record found no room in the ring, see [`crate::wire::LostKey`]. At the
/// limit: outcome `lost_cells_full`, and allocated totals are marked as a lower bound.
pub const MAX_LOST_CELLS: u32 = 64 * 1024;

/// Requests of at least this many bytes are followed to their return even when not sampled. Such
/// requests are the ones that fail, and exact totals count only allocations that succeeded.
pub const FOLLOW_BYTES: u64 = 256 * 1024;

/// Requests of at least this many bytes, to a function whose return is not probed, count as failed:
/// outcome `refused`. The limit is more than any machine has, and less than what programs request
/// by mistake (a negative size).
pub const UNSEEN_REFUSED_BYTES: u64 = 1 << 40;

/// Stack snapshot sizes in bytes; a record has the smallest of these that holds the stack.
pub const SNAPSHOT_TIERS: [usize; 5] = [4096, 8192, 16384, 32768, 65536];

/// Frames of a stack that the kernel walks by frame pointers (`--unwind fp`).
/// `/proc/sys/kernel/perf_event_max_stack` is 127 by default; deeper stacks are truncated.
pub const MAX_KERNEL_FRAMES: usize = 127;

/// Maximum number of frames of an unwound stack; deeper stacks are truncated at the root's end.
pub const MAX_FRAMES: usize = 1024;

/// Default of `--max-live`: samples held in the kernel's live set.
pub const DEFAULT_MAX_LIVE: u32 = 128 * 1024;

/// Mapping calls of a process in a second (2^30 ns) whose stack is copied. Further calls are
/// recorded without a stack: outcome `mapping_flooded`.
pub const MAPPING_STACKS_PER_SECOND: u32 = 1000;

/// Stack snapshot sizes of mapping calls in bytes; a record has the smallest of these that holds
/// the stack.
pub const MAPPING_TIERS: [usize; 2] = [4096, 16384];

/// When this share of `--max-live` is used, in percent, the rate is halved and the live set
/// thinned.
pub const THIN_AT_PERCENT: u64 = 80;

/// Samples that a process which samples by itself may send in about a second (2^30 ns). At 512 KiB
/// between samples the process would have to allocate 5 GB a second to send more. Further samples:
/// outcome `usdt_flood`, and the process's totals are a lower bound without an upper end.
pub const EXTERNAL_PER_SECOND: u64 = 10_000;

/// The limit `EXTERNAL_PER_SECOND` for our own library, which limits itself and never sends as
/// many.
pub const LIBRARY_ACCEPTED_PER_SECOND: u64 = 50_000;

/// The highest limit of samples a second that our library in a process is ever given
/// ([`crate::sampling::token_bucket`]).
pub const LIBRARY_PER_SECOND: u64 = 20_000;

/// Default of the library's limit of samples a second, where neither samplerd nor
/// `--max-samples-per-process` sets one. A sample costs the process 7 to 11 µs: its two traps,
/// their programs, and cold cache lines. So 1,000 samples take 1 % of a CPU at most, whatever the
/// process allocates. At 512 KiB between samples it has to allocate 0.5 GB a second to reach the
/// limit.
pub const PRELOADED_PER_SECOND: u64 = 1_000;

/// Bytes above `mm->start_stack` that always belong to the first stack: a program's arguments, its
/// environment and its auxiliary vector.
///
/// Frames are below `start_stack`, except those of old dynamic linkers that were started as
/// programs themselves. Such a linker first removes its own arguments.
pub const ABOVE_FIRST_STACK: u64 = 256;

/// Maximum number of distinct places of USDT arguments. At the limit the probes of a further file
/// are not used, and a line reports it.
pub const MAX_SITES: u32 = 1024;

/// Maximum number of stacks that the kernel side knows. At the limit, stacks that were not seen
/// lately are evicted. A stack that finds no room is copied as before.
pub const MAX_CACHED_STACKS: u32 = 4096;

/// Maximum number of words that are compared for a cached stack. A stack that depends on more words
/// is copied each time.
pub const MAX_CACHED_WORDS: usize = 128;

/// Maximum number of stretches of a cached stack that are read to compare its words.
pub const MAX_CACHED_SPANS: usize = 16;

/// Maximum number of words of one stretch.
pub const CACHED_SPAN_WORDS: usize = 255;

/// Maximum number of words of all stretches of a stack.
pub const CACHE_READ_WORDS: usize = 2048;

/// Bytes of stack that can be copied in the time that it takes to begin a stretch.
pub const CACHED_SPAN_BYTES: u64 = 144;

/// Bytes of stack that can be copied in the time that it takes to read one more word of a stretch.
pub const CACHE_READ_BYTES: u64 = 4;

/// Bytes of stack that can be copied in the time that it takes to compare a word that was read.
pub const CACHED_WORD_BYTES: u64 = 12;

/// Bytes of stack that can be copied in the time of a copy's fixed cost: the check for hijacked
/// returns, and fresh cache lines of the ring.
pub const CACHE_COPY_BYTES: u64 = 1024;

const _: () = assert!(SNAPSHOT_TIERS[4] == 64 * 1024);
// A compared word may be as far away as the largest copy reaches, in words, see
// `wire::CachedStack`.
const _: () = assert!(SNAPSHOT_TIERS[4] / 8 <= u16::MAX as usize);
// Most samples that the library can send in 2^30 ns: the time, what its token bucket holds, and 33
// halvings of its rate.
const _: () = assert!(
    LIBRARY_PER_SECOND * ((1 << 30) + token_bucket::BURST_NS + 33 * token_bucket::DOUBLING_NS)
        < LIBRARY_ACCEPTED_PER_SECOND * 1_000_000_000
);
const _: () = assert!(MAX_PROCESSES.is_power_of_two());
// The free filter has 12 bits for a slot; the daemon's own slot shares its counters with the first
// slot.
const _: () = assert!(MAX_SLOTS <= 4096 && MAX_OPEN_PROCESSES <= MAX_SLOTS);
