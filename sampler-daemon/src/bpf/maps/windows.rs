//! Clocks and gates of processes with windows (map `WINDOWS`), and the timers that advance the
//! clocks.

use super::shared::pages;
use crate::bpf::cpu_timers::CpuTimers;
use crate::bpf::sys::SharedMemory;
use crate::bpf::verifier;
use anyhow::Context as _;
use aya::Ebpf;
use aya::programs::PerfEvent;
use sampler_common::windows::{Budget, Clock};
use sampler_common::wire::{Gate, PROBE_ADDRESSES, WindowState};
use std::mem::offset_of;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How often the CPUs are listed again.
const CPUS_PERIOD: Duration = Duration::from_secs(1);

/// The map `WINDOWS`, and the timers. Dropping it stops the timers.
pub struct WindowGates {
    memory: SharedMemory,
    clock: Clock,
    /// The program of a tick.
    program: OwnedFd,
    /// The running timers; `None` before the first process has a slot.
    timers: Option<CpuTimers>,
    next_cpus: Instant,
}

impl WindowGates {
    /// Maps the memory, and loads the program of a tick.
    ///
    /// # Errors
    /// If the kernel refuses the program.
    pub(in crate::bpf) fn start(
        ebpf: &mut Ebpf,
        map: BorrowedFd<'_>,
        slots: u32,
        budget: Budget,
    ) -> anyhow::Result<WindowGates> {
        let bytes = pages(slots as usize * size_of::<WindowState>());
        let memory = SharedMemory::map(map, bytes, 0, true).context("map WINDOWS")?;
        let program = load(ebpf)?.try_clone_to_owned().context("duplicate a descriptor")?;
        let clock = Clock::new(budget);
        tracing::debug!(?clock, "the clock of windows");
        Ok(WindowGates { memory, clock, program, timers: None, next_cpus: Instant::now() })
    }

    /// Starts a timer on every CPU. A tick may take a slot for the process that it interrupts, so
    /// slots must exist.
    ///
    /// # Errors
    /// If perf_event_open(2) refuses.
    pub fn begin(&mut self) -> anyhow::Result<()> {
        self.timers = Some(CpuTimers::new(self.program.as_fd(), self.clock.period_ns)?);
        Ok(())
    }

    /// Makes timers on CPUs that have come online. A CPU that was offline has lost its timer.
    pub fn follow_cpus(&mut self) {
        let Some(timers) = self.timers.as_mut().filter(|_| Instant::now() >= self.next_cpus) else {
            return;
        };
        self.next_cpus = Instant::now() + CPUS_PERIOD;
        let ended = timers.ended();
        if !ended.is_empty() {
            tracing::debug!(?ended, "timers of CPUs have ended and are made again");
        }
        if let Err(error) = timers.follow(&ended) {
            tracing::warn!("{error:#}");
        }
    }

    /// The clock's parameters.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    fn word(&self, slot: u32, field: usize) -> &AtomicU64 {
        self.memory.atomic_u64(slot as usize * size_of::<WindowState>() + field)
    }

    /// Prepares a slot for another process.
    pub fn reset(&mut self, slot: u32) {
        let fields = (0..size_of::<WindowState>()).step_by(8);
        fields.for_each(|field| self.word(slot, field).store(0, SeqCst));
    }

    /// The state of a slot's gate.
    pub fn gate(&self, slot: u32) -> Gate {
        Gate::from_number(self.word(slot, offset_of!(WindowState, gate)).load(SeqCst))
    }

    /// Ticks of the process in a slot.
    pub fn ticks(&self, slot: u32) -> u64 {
        self.word(slot, offset_of!(WindowState, clock)).load(SeqCst)
    }

    /// Ends a window, or cancels a planned one.
    pub fn shut(&mut self, slot: u32) {
        self.set_gate(slot, Gate::Shut);
    }

    /// Opens the gate of a slot for good, for the slot of the calibration.
    pub fn open(&mut self, slot: u32) {
        self.set_gate(slot, Gate::Open);
    }

    /// Plans a window: the daemon is woken at tick `due`.
    pub fn wait_for(&mut self, slot: u32, due: u64) {
        self.word(slot, offset_of!(WindowState, due)).store(due, SeqCst);
        self.set_gate(slot, Gate::Waiting);
    }

    /// Reports that the probes are attached: a window of `ticks` ticks opens at tick `open_at`.
    pub fn ready(&mut self, slot: u32, open_at: u64, ticks: u64) {
        self.word(slot, offset_of!(WindowState, open_at)).store(open_at, SeqCst);
        self.word(slot, offset_of!(WindowState, left)).store(ticks, SeqCst);
        self.set_gate(slot, Gate::Ready);
    }

    /// Remaining ticks of a window; 0 when the window has ended.
    pub fn left(&self, slot: u32) -> u64 {
        // Several CPUs may have counted ticks beyond the end.
        (self.word(slot, offset_of!(WindowState, left)).load(SeqCst) as i64).max(0) as u64
    }

    /// Sets the addresses of the probes. Ticks just behind these addresses are not counted.
    pub fn set_probes(&mut self, slot: u32, addresses: &[u64]) {
        for at in 0..PROBE_ADDRESSES {
            let address = addresses.get(at).copied().unwrap_or(0);
            self.word(slot, offset_of!(WindowState, probes) + at * 8).store(address, SeqCst);
        }
    }

    fn set_gate(&self, slot: u32, gate: Gate) {
        self.word(slot, offset_of!(WindowState, gate)).store(gate as u64, SeqCst);
    }
}

/// Loads the program of a tick.
fn load(ebpf: &mut Ebpf) -> anyhow::Result<BorrowedFd<'_>> {
    const NAME: &str = "clock_tick";
    let program: &mut PerfEvent = ebpf
        .program_mut(NAME)
        .with_context(|| format!("program {NAME} is not in the eBPF object"))?
        .try_into()?;
    program.load().with_context(|| format!("load the eBPF program {NAME}"))?;
    verifier::note(NAME, program.fd()?.as_fd());
    Ok(program.fd()?.as_fd())
}
