//! The maps, with their bounds. The daemon overrides sizes before it loads the program.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, Queue, RingBuf};
use sampler_common::limits::{
    DEFAULT_MAX_LIVE, MAX_CACHED_STACKS, MAX_LOST_CELLS, MAX_PENDING, MAX_PROCESSES, MAX_SITES,
    MAX_TARGETS,
};
use sampler_common::wire::{
    self, CACHE_SETS, CACHE_WAYS, CacheScratch, CachedStack, FILTER_FRONT_COUNTERS, FILTER_LINE,
    HITS_PER_SLOT, KernelState, LiveEntry, LiveKey, LostCell, LostKey, Pending, PendingKey,
    ProcessConfig, ProcessTotals, PythonRuntime, PythonScratch, Site, WindowState,
};

/// The daemon maps the memory of such a map and reads and writes it with atomic operations.
const MMAPABLE: u32 = 1 << 10;
/// The kernel allocates an entry's memory when the entry is inserted.
const NO_PREALLOC: u32 = 1;

/// Rates and state of each process slot.
#[map]
pub static PROCESSES: Array<ProcessConfig> = Array::with_max_entries(MAX_PROCESSES, MMAPABLE);

/// Exact totals, outcomes and the countdown of each process slot, per CPU.
#[map]
pub static TOTALS: PerCpuArray<ProcessTotals> = PerCpuArray::with_max_entries(MAX_PROCESSES, 0);

/// Hits of each process slot's probes, by role: approximate counts that all CPUs share. Each count
/// has a cache line of its own.
#[map]
pub static HITS: Array<[u64; 8]> = Array::with_max_entries(MAX_PROCESSES * HITS_PER_SLOT, MMAPABLE);

/// Counters and state that all processes share.
#[map]
pub static STATE: Array<KernelState> = Array::with_max_entries(1, MMAPABLE);

/// Slots by process id, for events without a cookie and for links that processes share. A value may
/// also be `EXCLUDED` or `EXPECTED`.
#[map]
pub static TARGETS: HashMap<u32, u32> = HashMap::with_max_entries(MAX_TARGETS, NO_PREALLOC);

/// Cached results of look-ups in `TARGETS`, by the lower bits of the process ids.
#[map]
pub static MEMOS: Array<u64> = Array::with_max_entries(wire::MEMOS, 0);

/// Free slots, which the daemon has prepared for new processes.
#[map]
pub static VACANT: Queue<u32> = Queue::with_max_entries(MAX_PROCESSES, 0);

/// Calls between entry and return.
#[map]
pub static PENDING: HashMap<PendingKey, Pending> = HashMap::with_max_entries(MAX_PENDING, 0);

/// The latest outer call of each thread that left its work to an inner call: thread → (return slot,
/// return address). New entries replace old ones.
#[map]
pub static HIJACKED: LruHashMap<u64, [u64; 2]> = LruHashMap::with_max_entries(MAX_PENDING, 0);

/// The live set.
#[map]
pub static LIVE: HashMap<LiveKey, LiveEntry> =
    HashMap::with_max_entries(DEFAULT_MAX_LIVE, NO_PREALLOC);

/// Counters in front of the live set, 128 to a cache line.
#[map]
pub static FILTER: Array<[u32; 16]> = Array::with_max_entries(1 << 12, MMAPABLE);

/// A few counters in front of `FILTER`, small enough to stay in a CPU's cache. While the live set
/// is small, most frees end here.
#[map]
pub static FILTER_FRONT: Array<[u32; 16]> =
    Array::with_max_entries(FILTER_FRONT_COUNTERS / FILTER_LINE, MMAPABLE);

/// Samples whose record was lost.
#[map]
pub static LOST: HashMap<LostKey, LostCell> =
    HashMap::with_max_entries(MAX_LOST_CELLS, NO_PREALLOC);

/// Tags of the cached stacks, set by set, one cache line each.
#[map]
pub static CACHED_TAGS: Array<[u64; CACHE_WAYS as usize]> =
    Array::with_max_entries(CACHE_SETS, MMAPABLE);

/// Cached stacks, set by set.
#[map]
pub static CACHED_STACKS: Array<CachedStack> = Array::with_max_entries(MAX_CACHED_STACKS, MMAPABLE);

/// The place of each CPU for the values that it compares with a cached stack.
#[map]
pub static CACHE_SCRATCH: PerCpuArray<CacheScratch> = PerCpuArray::with_max_entries(1, 0);

/// The place of each CPU for the record of Python frames that it makes.
#[map]
pub static PYTHON_SCRATCH: PerCpuArray<PythonScratch> = PerCpuArray::with_max_entries(1, 0);

/// Number of stacks of mapping calls that each process slot has copied in the present second. The
/// upper half of a word is the second (in units of 2^30 ns), the lower half the number.
#[map]
pub static MAPPING_STACKS: Array<u64> = Array::with_max_entries(MAX_PROCESSES, 0);

/// Clocks and gates of processes with windows, by slot.
#[map]
pub static WINDOWS: Array<WindowState> = Array::with_max_entries(MAX_PROCESSES, MMAPABLE);

/// Where the interpreter of each process slot has its Python frames.
#[map]
pub static PYTHON: Array<PythonRuntime> = Array::with_max_entries(MAX_PROCESSES, MMAPABLE);

/// Address and time of the last return of a followed call on this CPU.
#[map]
pub static RETURNED: PerCpuArray<[u64; 2]> = PerCpuArray::with_max_entries(1, 0);

/// Records to the daemon.
#[map]
pub static RING: RingBuf = RingBuf::with_byte_size(16 << 20, 0);

/// The places of USDT arguments, by the site number in the cookie.
#[map]
pub static SITES: Array<Site> = Array::with_max_entries(MAX_SITES, 0);
