//! The maps, with their bounds. The daemon overrides sizes before it loads the program.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, Queue, RingBuf};
use sampler_common::limits::{
    DEFAULT_MAX_LIVE, MAX_CACHED_STACKS, MAX_LOST_CELLS, MAX_PENDING, MAX_PROCESSES, MAX_SITES,
    MAX_TARGETS,
};
use sampler_common::wire::{
    self, FILTER_FRONT_COUNTERS, FILTER_LINE, HITS_PER_SLOT, KNOWN_SETS, KNOWN_WAYS, KernelState,
    KnownScratch, KnownStack, LiveEntry, LiveKey, LostCell, LostKey, Pending, PendingKey,
    ProcessConfig, ProcessTotals, PythonRuntime, Site, WindowState,
};

/// The daemon reads and writes the map's memory directly, with atomic operations.
const MMAPABLE: u32 = 1 << 10;
/// Memory is taken when an entry is made.
const NO_PREALLOC: u32 = 1;

/// Rates and state of each process slot.
#[map]
pub static PROCESSES: Array<ProcessConfig> = Array::with_max_entries(MAX_PROCESSES, MMAPABLE);

/// Exact totals, outcomes and the countdown of each process slot, per CPU.
#[map]
pub static TOTALS: PerCpuArray<ProcessTotals> = PerCpuArray::with_max_entries(MAX_PROCESSES, 0);

/// Hits of each process slot's probes, by role: approximate counts that all CPUs share, each on a cache
/// line of its own.
#[map]
pub static HITS: Array<[u64; 8]> = Array::with_max_entries(MAX_PROCESSES * HITS_PER_SLOT, MMAPABLE);

/// What all processes share.
#[map]
pub static STATE: Array<KernelState> = Array::with_max_entries(1, MMAPABLE);

/// Slots by process id, for events that carry no cookie and for links that processes share; also `EXCLUDED` and `EXPECTED`.
#[map]
pub static TARGETS: HashMap<u32, u32> = HashMap::with_max_entries(MAX_TARGETS, NO_PREALLOC);

/// What stands for processes in `TARGETS`, by the lower bits of their ids.
#[map]
pub static MEMOS: Array<u64> = Array::with_max_entries(wire::MEMOS, 0);

/// Slots that a new process may take. The daemon has made them ready.
#[map]
pub static VACANT: Queue<u32> = Queue::with_max_entries(MAX_PROCESSES, 0);

/// Calls between entry and return.
#[map]
pub static PENDING: HashMap<PendingKey, Pending> = HashMap::with_max_entries(MAX_PENDING, 0);

/// The latest outer call of a thread that left its work to an inner one: thread → (return slot, return
/// address). Old entries make room for new ones.
#[map]
pub static HIJACKED: LruHashMap<u64, [u64; 2]> = LruHashMap::with_max_entries(MAX_PENDING, 0);

/// The live set.
#[map]
pub static LIVE: HashMap<LiveKey, LiveEntry> =
    HashMap::with_max_entries(DEFAULT_MAX_LIVE, NO_PREALLOC);

/// Counters in front of the live set, 128 to a cache line.
#[map]
pub static FILTER: Array<[u32; 16]> = Array::with_max_entries(1 << 12, MMAPABLE);

/// Few counters in front of those, small enough to stay in a CPU's cache: while the live set is
/// small, most frees end here.
#[map]
pub static FILTER_FRONT: Array<[u32; 16]> =
    Array::with_max_entries(FILTER_FRONT_COUNTERS / FILTER_LINE, MMAPABLE);

/// Samples whose record was lost.
#[map]
pub static LOST: HashMap<LostKey, LostCell> =
    HashMap::with_max_entries(MAX_LOST_CELLS, NO_PREALLOC);

/// Tags of the known stacks, set by set, one cache line each.
#[map]
pub static KNOWN_TAGS: Array<[u64; KNOWN_WAYS as usize]> =
    Array::with_max_entries(KNOWN_SETS, MMAPABLE);

/// Known stacks, set by set.
#[map]
pub static KNOWN: Array<KnownStack> = Array::with_max_entries(MAX_CACHED_STACKS, MMAPABLE);

/// Where each CPU reads what it compares with a known stack.
#[map]
pub static KNOWN_SCRATCH: PerCpuArray<KnownScratch> = PerCpuArray::with_max_entries(1, 0);

/// Stacks of mapping calls that each process slot has copied: the second (in units of 2^30 ns) above, their number below.
#[map]
pub static MAPPING_STACKS: Array<u64> = Array::with_max_entries(MAX_PROCESSES, 0);

/// Clocks and gates of processes with windows, by slot.
#[map]
pub static WINDOWS: Array<WindowState> = Array::with_max_entries(MAX_PROCESSES, MMAPABLE);

/// Where each process slot has Python frames.
#[map]
pub static PYTHON: Array<PythonRuntime> = Array::with_max_entries(MAX_PROCESSES, MMAPABLE);

/// Where and when the last sampled call on this CPU has returned.
#[map]
pub static RETURNED: PerCpuArray<[u64; 2]> = PerCpuArray::with_max_entries(1, 0);

/// Records to the daemon.
#[map]
pub static RING: RingBuf = RingBuf::with_byte_size(16 << 20, 0);

/// Where USDTs find their arguments, by the number in their cookie.
#[map]
pub static SITES: Array<Site> = Array::with_max_entries(MAX_SITES, 0);
