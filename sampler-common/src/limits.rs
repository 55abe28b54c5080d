//! The bounds that the two sides of the kernel boundary share, with what happens at each.

use crate::sampling::token_bucket;

/// Process slots when given processes are profiled and they are no more: one for each address space that is profiled at the same
/// time. At the bound (`--max-processes`) a further process is refused with a clear line.
pub const MAX_PROCESSES: u32 = 64;

/// Process slots when processes come and go (`--all`, `--follow`), by default. At the bound (`--max-processes`) a further process is not
/// seen, and its probed calls are counted ([`crate::wire::KernelState::unseen_calls`]).
pub const MAX_OPEN_PROCESSES: u32 = 1024;

/// Process slots at most.
pub const MAX_SLOTS: u32 = 4096;

/// Slots in the kernel's maps at most: behind those of processes is the one in which the daemon's own hits are counted when it measures what they cost.
pub const MAX_KERNEL_SLOTS: u32 = MAX_SLOTS + 1;

/// Processes known by pid, profiled or not: those with a slot, the excluded ones, and those that may get one.
pub const MAX_TARGETS: u32 = 32 * 1024;

/// Allocation size classes, see [`crate::sampling::class()`].
pub const CLASSES: usize = 32;

/// Sampled or followed calls that are between their entry and their return.
/// At the bound the call is not followed: outcome `pending_full`.
pub const MAX_PENDING: u32 = 16 * 1024;

/// Cells of samples whose record found no room in the ring, see [`crate::wire::LostKey`].
/// At the bound: outcome `lost_cells_full`, and allocated totals say that they are a lower bound.
pub const MAX_LOST_CELLS: u32 = 64 * 1024;

/// Requests of at least this many bytes are followed to their return even when not sampled,
/// because they are the ones that fail: exact totals mean allocations that happened.
pub const FOLLOW_BYTES: u64 = 256 * 1024;

/// A request of at least this many bytes to a function whose return is not seen is taken for one that fails: outcome `refused`.
/// More than any machine has, and less than what programs ask for by mistake (a negative size).
pub const UNSEEN_REFUSED_BYTES: u64 = 1 << 40;

/// Stack snapshot sizes in bytes; a record is as large as the smallest that holds the stack.
pub const SNAPSHOT_TIERS: [usize; 5] = [4096, 8192, 16384, 32768, 65536];

/// Frames of a stack that the kernel walks by frame pointers (`--unwind fp`).
/// `/proc/sys/kernel/perf_event_max_stack` is 127 by default; deeper stacks are truncated.
pub const MAX_KERNEL_FRAMES: usize = 127;

/// Frames of an unwound stack; deeper stacks are truncated at the root's end.
pub const MAX_FRAMES: usize = 1024;

/// Default of `--max-live`: samples held in the kernel's live set.
pub const DEFAULT_MAX_LIVE: u32 = 128 * 1024;

/// Mapping calls of a process in a second (2^30 ns) whose stack is copied. Further ones are recorded without it:
/// outcome `mapping_flooded`.
pub const MAPPING_STACKS_PER_SECOND: u32 = 1000;

/// Stack snapshot sizes of mapping calls in bytes; a record is as large as the smallest that holds the stack.
pub const MAPPING_TIERS: [usize; 2] = [4096, 16384];

/// At this share of `--max-live`, in percent, the rate is halved and the live set thinned.
pub const THIN_AT_PERCENT: u64 = 80;

/// Sampled allocations that a process which samples by itself may send in about a second (2^30 ns). At 512 KiB between samples it would
/// have to allocate 5 GB a second for more. Beyond: outcome `usdt_flood`, and its totals are a lower bound without an upper end.
pub const EXTERNAL_PER_SECOND: u64 = 10_000;

/// The same of our own library, which limits itself and never sends as many.
pub const LIBRARY_BELIEVED_PER_SECOND: u64 = 50_000;

/// Sampled allocations a second that our library in a process is ever let send ([`crate::sampling::token_bucket`]).
pub const LIBRARY_PER_SECOND: u64 = 20_000;

/// The same by default, where neither samplerd nor `--max-samples-per-process` says anything else. A sample costs the process 7 to 11 µs (its two traps, the programs
/// behind them, and cache lines that have gone cold), so that these take 1 % of a CPU at most, whatever it allocates; at 512 KiB between
/// samples it has to allocate 0.5 GB a second for that.
pub const PRELOADED_PER_SECOND: u64 = 1_000;

/// Bytes above `mm->start_stack` that always belong to the first stack: a program's arguments, its environment and its auxiliary vector. Frames are below
/// `start_stack`, but for those of old dynamic linkers that were started as programs themselves: these take their own arguments away first.
pub const ABOVE_FIRST_STACK: u64 = 256;

/// Different places that arguments of USDT probes are in, altogether. At the bound the probes of a further file are not used, and a line says so.
pub const MAX_SITES: u32 = 1024;

/// Stacks that the kernel side knows again. At the bound those make room that were not seen lately; a stack that finds none is copied as before.
pub const MAX_CACHED_STACKS: u32 = 4096;

/// Words of a known stack that are compared, at most; one that depends on more is copied each time.
pub const KNOWN_WORDS: usize = 128;

/// Stretches of a known stack that are read to compare its words, at most.
pub const KNOWN_SPANS: usize = 16;

/// Words of one such stretch, at most.
pub const KNOWN_SPAN_WORDS: usize = 255;

/// Words of all of them, at most.
pub const KNOWN_READ_WORDS: usize = 2048;

/// Bytes of stack whose copying takes as long as to begin a stretch.
pub const KNOWN_SPAN_BYTES: u64 = 144;

/// Bytes of stack whose copying takes as long as to read one more word of a stretch.
pub const KNOWN_READ_BYTES: u64 = 4;

/// Bytes of stack whose copying takes as long as to compare a word that was read.
pub const KNOWN_WORD_BYTES: u64 = 12;

/// Bytes of stack whose copying takes as long as what else a copy takes: a look for hijacked returns, and fresh lines of the ring.
pub const KNOWN_COPY_BYTES: u64 = 1024;

const _: () = assert!(SNAPSHOT_TIERS[4] == 64 * 1024);
// Whatever is compared may be as far away as the largest copy reaches, in words, see `wire::KnownStack`.
const _: () = assert!(SNAPSHOT_TIERS[4] / 8 <= u16::MAX as usize);
// Whatever the library is asked for, in 2^30 ns: the time, what its bucket holds, and 33 halvings of its rate.
const _: () = assert!(
    LIBRARY_PER_SECOND * ((1 << 30) + token_bucket::BURST_NS + 33 * token_bucket::DOUBLING_NS)
        < LIBRARY_BELIEVED_PER_SECOND * 1_000_000_000
);
const _: () = assert!(MAX_PROCESSES.is_power_of_two());
// The free filter has 12 bits for a slot; the daemon's own shares its counters with the first.
const _: () = assert!(MAX_SLOTS <= 4096 && MAX_OPEN_PROCESSES <= MAX_SLOTS);
