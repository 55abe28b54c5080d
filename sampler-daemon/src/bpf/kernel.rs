//! The loaded eBPF program with its maps: all kernel objects of the daemon.

use super::btf::{DivertedCalls, PidOffsets, TaskOffsets};
use super::diverted;
use super::engine::ProbeEngine;
use super::guardian::{Attacher, Link};
use super::link::{Points, Programs};
use super::maps::live::LiveSet;
use super::maps::lost::LostCells;
use super::maps::pending::PendingCalls;
use super::maps::python::PythonRuntimes;
use super::maps::shared::{Filter, Hits, ProcessSlots, RingPositions, State};
use super::maps::stack_cache::StackCache;
use super::maps::targets::Targets;
use super::maps::totals::Totals;
use super::maps::windows::WindowGates;
use super::object::ProgramText;
use super::ring::Ring;
use super::usdt::UsdtPrograms;
use super::verifier;
use anyhow::{Context as _, anyhow};
use aya::maps::{Map, MapData, PerCpuArray};
use aya::programs::RawTracePoint;
use aya::{Ebpf, EbpfLoader};
use aya_log::EbpfLogger;
use rustc_hash::FxHashSet;
use sampler_common::limits::{SNAPSHOT_TIERS, THIN_AT_PERCENT};
use sampler_common::windows::Budget;
use sampler_common::wire::{FILTER_LINE, HITS_PER_SLOT};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// The eBPF object, aligned as its parser requires.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/sampler.bpf.o"));

/// Parts into which the live set is divided. When the set is nearly full, a process with at most
/// one part keeps its probability of admission until that of the others has been halved often. Few
/// enough processes keep it that the set does not fill.
const LIVE_SHARES: u32 = 8;

/// Settings that are fixed when the program is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The way to attach uprobes.
    pub engine: ProbeEngine,
    /// Whether the kernel walks frame pointers instead of copying the stack.
    pub frame_pointers: bool,
    /// Largest stack snapshot, one of [`SNAPSHOT_TIERS`].
    pub snapshot_bytes: u32,
    /// Whether a cached stack is not copied again.
    pub stack_cache: bool,
    /// Whether frees are probed and the live set is kept.
    pub track_live: bool,
    /// Bound of the live set.
    pub max_live: u32,
    /// Size of the ring buffer: a power of two, at least a page.
    pub ring_bytes: u32,
    /// Number of process slots.
    pub slots: u32,
    /// Whether every process is profiled unless it is excluded.
    pub everyone: bool,
    /// Whether several processes share the ring, so that none may take all of it.
    pub shares: bool,
    /// Whether probes of processes that sample by themselves are used.
    pub usdt: bool,
    /// Whether functions that change mappings are probed.
    pub mappings: bool,
    /// Whether children of profiled processes are profiled as well; needs `tasks`.
    pub follow: bool,
    /// The daemon's pid namespace if it is not the initial one; needs `numbers` of `tasks`.
    pub pid_namespace: Option<u64>,
    /// Offsets in the kernel's tasks. Without them a process counts as gone when its first thread
    /// is gone.
    pub tasks: Option<TaskOffsets>,
    /// Whether the kernel side samples a process more rarely while its records fill the ring.
    pub ring_pressure: bool,
    /// The budget of windows, if allocations are recorded in windows only.
    pub windows: Option<Budget>,
}

/// The loaded program.
pub struct Kernel {
    /// Rates and generations of the process slots.
    pub slots: ProcessSlots,
    /// Exact totals, outcomes, countdowns.
    pub totals: Totals,
    /// Approximate counts of probe hits.
    pub hits: Hits,
    /// The live set.
    pub live: LiveSet,
    /// Samples whose record was lost.
    pub lost: LostCells,
    /// Calls between entry and return.
    pub pending: PendingCalls,
    /// Cached stacks, which are not copied again.
    pub stack_cache: StackCache,
    /// Where processes have their Python frames.
    pub python: PythonRuntimes,
    /// The ring buffer with the program's records.
    pub ring: Ring,
    programs: Programs,
    attacher: Attacher,
    /// The eBPF log; only an object that was built with its log has one.
    log: Option<EbpfLogger<&'static dyn log::Log>>,
    /// Slots by pid, and pids without a slot for a reason.
    pub targets: Targets,
    /// Probes of processes that sample by themselves. Present only if such probes are used and
    /// links can raise their semaphores.
    pub usdt: Option<UsdtPrograms>,
    /// The slot behind those of processes.
    calibration_slot: u32,
    /// Clocks and gates, if allocations are recorded in windows only.
    pub windows: Option<WindowGates>,
    // Also holds the tracepoints' links and the read-only data.
    ebpf: Ebpf,
}

impl Kernel {
    /// Loads the program and its maps, and attaches to process events. `attacher` makes and closes
    /// the probes.
    pub fn load(settings: &Settings, attacher: Attacher) -> anyhow::Result<Kernel> {
        let counters = filter_counters(settings.max_live);
        let mut ebpf = load_object(settings, counters)?;
        let descriptors = descriptors(&ebpf)?;
        let text = ProgramText::new(OBJECT, &descriptors)?;
        trace(&mut ebpf, "process_exec", "sched_process_exec")?;
        trace(&mut ebpf, "process_exit", "sched_process_exit")?;
        if settings.follow {
            trace(&mut ebpf, "process_fork", "sched_process_fork")?;
        }
        let programs = Programs::load(settings.engine, &text)?;
        let log = EbpfLogger::init(&mut ebpf).ok();
        let windows = settings.windows.map(|budget| start_clocks(&mut ebpf, settings, budget));
        let windows = windows.transpose().context("--windows")?;
        let mut take = |name: &str| {
            ebpf.take_map(name).with_context(|| format!("map {name} is not in the eBPF object"))
        };
        let ring_map = take("RING")?;
        let positions = RingPositions::map(data(&ring_map)?.fd().as_fd())
            .context("map the ring buffer's positions")?;
        let (slots, state) = (take("PROCESSES")?, take("STATE")?);
        let sites = take("SITES")?.try_into()?;
        let usdt = || UsdtPrograms::load(&text, attacher.clone(), sites);
        let usdt = settings.uses_usdt().then(usdt).transpose()?;
        let hits = Hits::map(data(&take("HITS")?)?.fd().as_fd(), settings.all_slots());
        let hits = hits.context("map HITS")?;
        let (front, back) = (take("FILTER_FRONT")?, take("FILTER")?);
        let filter = Filter::map(data(&front)?.fd().as_fd(), data(&back)?.fd().as_fd(), counters)
            .context("map FILTER")?;
        let (tags, stacks) = (take("CACHED_TAGS")?, take("CACHED_STACKS")?);
        let stack_cache = StackCache::map(data(&tags)?.fd().as_fd(), data(&stacks)?.fd().as_fd())
            .context("map CACHED_STACKS")?;
        let python = PythonRuntimes::map(data(&take("PYTHON")?)?.fd().as_fd(), settings.slots);
        let python = python.context("map PYTHON")?;
        let map_state = || State::map(data(&state)?.fd().as_fd()).context("map STATE");
        let (mut state, state_again) = (map_state()?, map_state()?);
        let map_slots = || {
            let mapped = ProcessSlots::map(data(&slots)?.fd().as_fd(), settings.all_slots());
            mapped.context("map PROCESSES")
        };
        state.set_live_share(u64::from(settings.max_live / LIVE_SHARES));
        Ok(Kernel {
            slots: map_slots()?,
            totals: Totals::new(PerCpuArray::try_from(take("TOTALS")?)?)?,
            hits,
            live: LiveSet::new(
                into_data(take("LIVE")?)?,
                filter,
                state,
                map_slots()?,
                settings.max_live,
            ),
            lost: LostCells::new(into_data(take("LOST")?)?),
            pending: PendingCalls::new(into_data(take("PENDING")?)?),
            stack_cache,
            python,
            ring: Ring::new(ring_map.try_into()?, positions, map_slots()?),
            programs,
            attacher,
            log,
            targets: Targets::new(
                take("TARGETS")?.try_into()?,
                take("VACANT")?.try_into()?,
                state_again,
            ),
            usdt,
            calibration_slot: settings.slots,
            windows,
            ebpf,
        })
    }

    /// Forwards what the program has logged.
    pub fn flush_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }

    /// The slot that counts hits of the daemon's own functions. No process has this slot.
    pub fn calibration_slot(&self) -> u32 {
        self.calibration_slot
    }

    /// The engine in use.
    pub fn engine(&self) -> ProbeEngine {
        self.programs.engine()
    }

    /// Attaches to `points` of `file` in process `pid`, or in every process that maps the file. On
    /// an error nothing stays attached.
    pub fn attach(
        &mut self,
        file: &File,
        pid: Option<u32>,
        points: &Points,
    ) -> anyhow::Result<Vec<Link>> {
        self.programs.attach(&self.attacher, file, pid, points)
    }

    /// The attacher, which makes and closes the probes.
    pub fn attacher(&self) -> &Attacher {
        &self.attacher
    }

    /// Returns processes with threads whose system calls do not reach the kernel.
    pub fn diverted(&mut self) -> anyhow::Result<FxHashSet<u32>> {
        diverted::list(&mut self.ebpf)
    }

    /// The state that all processes share.
    pub fn state(&self) -> &State {
        self.live.state()
    }
}

impl Settings {
    /// Whether probes of processes that sample by themselves are used. Perf events, as we attach
    /// them, do not raise a semaphore.
    pub fn uses_usdt(&self) -> bool {
        self.usdt && self.engine != ProbeEngine::Perf
    }

    /// Number of process slots and of the calibration slot behind them; at most
    /// [`MAX_KERNEL_SLOTS`].
    ///
    /// [`MAX_KERNEL_SLOTS`]: sampler_common::limits::MAX_KERNEL_SLOTS
    fn all_slots(&self) -> u32 {
        self.slots + 1
    }
}

/// Number of filter counters: sixteen for every live sample. With a full live set, fifteen of
/// sixteen frees of unsampled blocks then end at the filter.
fn filter_counters(max_live: u32) -> usize {
    (max_live as usize * 16).next_power_of_two().clamp(1 << 16, 1 << 24)
}

fn load_object(settings: &Settings, counters: usize) -> anyhow::Result<Ebpf> {
    let tier = SNAPSHOT_TIERS.iter().position(|tier| *tier == settings.snapshot_bytes as usize);
    let largest_tier = tier
        .with_context(|| format!("snapshot size {} is no tier", settings.snapshot_bytes))?
        as u64;
    let frame_pointers = u64::from(settings.frame_pointers);
    let track_live = u64::from(settings.track_live);
    let filter_shift = 64 - u64::from(counters.ilog2());
    let live_high = (u64::from(settings.max_live) * THIN_AT_PERCENT / 100).max(1);
    // Sixteen steps lie between `live_high` and the bound. In the last step, one of 2^15 samples is
    // admitted.
    let live_step = (u64::from(settings.max_live).saturating_sub(live_high) / 16).max(1);
    let shared_ring_bytes = if settings.shares { u64::from(settings.ring_bytes) } else { 0 };
    let pressure_ring_bytes =
        if settings.ring_pressure { u64::from(settings.ring_bytes) } else { 0 };
    let wake_bytes = u64::from(settings.ring_bytes / 8);
    let of_task = |offset: fn(TaskOffsets) -> u32| settings.tasks.map_or(0, offset).into();
    let (task_pid, task_tgid): (u64, u64) = (of_task(|of| of.pid), of_task(|of| of.tgid));
    let (signal, live): (u64, u64) = (of_task(|of| of.signal), of_task(|of| of.live));
    let (task_mm, start_stack): (u64, u64) = (of_task(|of| of.mm), of_task(|of| of.start_stack));
    let fs_base: u64 = of_task(|of| of.fs_base);
    let diverted = settings.tasks.and_then(|of| of.diverted).unwrap_or(DivertedCalls::USUAL);
    let numbers = settings.tasks.and_then(|of| of.numbers);
    let of_number = |offset: fn(PidOffsets) -> u32| numbers.map_or(0, offset).into();
    let (leader, thread_pid): (u64, u64) =
        (of_number(|of| of.leader), of_number(|of| of.thread_pid));
    let (level, numbers): (u64, u64) = (of_number(|of| of.level), of_number(|of| of.numbers));
    let namespace_inode: u64 = of_number(|of| of.namespace_inode);
    EbpfLoader::new()
        // The object needs nothing of the kernel's own BTF (`new` has parsed the BTF all the same).
        .btf(None)
        .override_global("FRAME_POINTERS", &frame_pointers, true)
        .override_global("LARGEST_TIER", &largest_tier, true)
        .override_global("STACK_CACHE", &u64::from(settings.stack_cache), true)
        .override_global("TRACK_LIVE", &track_live, true)
        .override_global("FILTER_SHIFT", &filter_shift, true)
        .override_global("LIVE_HIGH", &live_high, true)
        .override_global("LIVE_STEP", &live_step, true)
        .override_global("SHARED_RING_BYTES", &shared_ring_bytes, true)
        .override_global("WINDOW_GATES", &u64::from(settings.windows.is_some()), true)
        .override_global("PRESSURE_RING_BYTES", &pressure_ring_bytes, true)
        .override_global("WAKE_BYTES", &wake_bytes, true)
        .override_global("EVERYONE", &u64::from(settings.everyone), true)
        .override_global("PID_NAMESPACE", &settings.pid_namespace.unwrap_or(0), true)
        .override_global("TASK_LEADER", &leader, true)
        .override_global("TASK_THREAD_PID", &thread_pid, true)
        .override_global("PID_LEVEL", &level, true)
        .override_global("PID_NUMBERS", &numbers, true)
        .override_global("NAMESPACE_INODE", &namespace_inode, true)
        .override_global("TASK_PID", &task_pid, true)
        .override_global("TASK_TGID", &task_tgid, true)
        .override_global("TASK_SIGNAL", &signal, true)
        .override_global("SIGNAL_LIVE", &live, true)
        .override_global("SYSCALL_WORK", &u64::from(diverted.work), true)
        .override_global("DIVERTING_WORK", &diverted.flags, true)
        .override_global("TASK_MM", &task_mm, true)
        .override_global("START_STACK", &start_stack, true)
        .override_global("TASK_FS_BASE", &fs_base, true)
        .map_max_entries("PROCESSES", settings.all_slots())
        .map_max_entries("TOTALS", settings.all_slots())
        .map_max_entries("HITS", settings.all_slots() * HITS_PER_SLOT)
        .map_max_entries("WINDOWS", settings.all_slots())
        .map_max_entries("VACANT", settings.slots)
        .map_max_entries("MAPPING_STACKS", settings.slots)
        .map_max_entries("PYTHON", settings.slots)
        .map_max_entries("LIVE", settings.max_live)
        .map_max_entries("FILTER", counters as u32 / FILTER_LINE)
        .map_max_entries("RING", settings.ring_bytes)
        .load(OBJECT)
        .context("load the eBPF object")
}

/// File descriptors of the object's maps by name.
pub(super) fn descriptors(ebpf: &Ebpf) -> anyhow::Result<HashMap<String, RawFd>> {
    ebpf.maps()
        .map(|(name, map)| Ok((name.to_owned(), data(map)?.fd().as_fd().as_raw_fd())))
        .collect()
}

fn start_clocks(
    ebpf: &mut Ebpf,
    settings: &Settings,
    budget: Budget,
) -> anyhow::Result<WindowGates> {
    let map = ebpf.take_map("WINDOWS").context("map WINDOWS is not in the eBPF object")?;
    let mut gates =
        WindowGates::start(ebpf, data(&map)?.fd().as_fd(), settings.all_slots(), budget)?;
    // The gate of the calibration slot stays open: the daemon's own functions are probed to measure
    // costs.
    gates.open(settings.slots);
    Ok(gates)
}

fn trace(ebpf: &mut Ebpf, name: &str, tracepoint: &str) -> anyhow::Result<()> {
    let program: &mut RawTracePoint = ebpf
        .program_mut(name)
        .with_context(|| format!("program {name} is not in the eBPF object"))?
        .try_into()?;
    program.load().with_context(|| format!("load the eBPF program {name}"))?;
    verifier::note(name, program.fd()?.as_fd());
    program.attach(tracepoint).with_context(|| format!("attach to tracepoint {tracepoint}"))?;
    Ok(())
}

fn data(map: &Map) -> anyhow::Result<&MapData> {
    match map {
        Map::Array(data)
        | Map::PerCpuArray(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::Queue(data)
        | Map::RingBuf(data)
        | Map::StackTraceMap(data) => Ok(data),
        other => Err(anyhow!("unexpected map in the eBPF object: {other:?}")),
    }
}

fn into_data(map: Map) -> anyhow::Result<MapData> {
    match map {
        Map::HashMap(data) => Ok(data),
        other => Err(anyhow!("unexpected map in the eBPF object: {other:?}")),
    }
}
