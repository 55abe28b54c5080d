//! Which processes are profiled: slots by pid, and the slots that new processes may take.

use super::shared::State;
use anyhow::Context as _;
use aya::maps::{HashMap as BpfHashMap, MapData, Queue};
use sampler_common::wire::{EXCLUDED, EXPECTED};

/// The maps `TARGETS` and `VACANT`.
pub struct Targets {
    slots: BpfHashMap<MapData, u32, u32>,
    vacant: Queue<MapData, u32>,
    /// The kernel side keeps what it has looked up until the next epoch.
    state: State,
}

impl Targets {
    pub(super) fn new(
        slots: BpfHashMap<MapData, u32, u32>,
        vacant: Queue<MapData, u32>,
        state: State,
    ) -> Targets {
        Targets { slots, vacant, state }
    }

    /// Process `pid` has this slot.
    pub fn enter(&mut self, pid: u32, slot: u32) -> anyhow::Result<()> {
        let entered = self.slots.insert(pid, slot, 0);
        self.state.begin_epoch();
        entered.with_context(|| format!("enter pid {pid} in the eBPF map"))
    }

    /// Process `pid` gets this slot, if nothing stands for it yet.
    pub fn claim(&mut self, pid: u32, slot: u32) -> anyhow::Result<()> {
        const NOEXIST: u64 = 1;
        let claimed = self.slots.insert(pid, slot, NOEXIST);
        self.state.begin_epoch();
        claimed.with_context(|| format!("pid {pid} is in the eBPF map already"))
    }

    /// Process `pid` is not profiled, and gets no slot.
    pub fn exclude(&mut self, pid: u32) -> anyhow::Result<()> {
        self.enter(pid, EXCLUDED)
    }

    /// Process `pid` gets a slot with its first allocation.
    pub fn expect(&mut self, pid: u32) -> anyhow::Result<()> {
        self.enter(pid, EXPECTED)
    }

    /// Forgets process `pid`.
    pub fn forget(&mut self, pid: u32) {
        // It is missing only if it was never entered.
        let _ = self.slots.remove(&pid);
        self.state.begin_epoch();
    }

    /// The process that had this slot is gone: its entry goes, unless a new process of the same number has it already.
    pub fn vacate(&mut self, pid: u32, slot: u32) {
        if self.slots.get(&pid, 0).is_ok_and(|of| of == slot) {
            self.forget(pid);
        }
    }

    /// Whether process `pid` is known.
    pub fn knows(&self, pid: u32) -> bool {
        self.slots.get(&pid, 0).is_ok()
    }

    /// All processes known, with what stands for them.
    pub fn all(&self) -> Vec<(u32, u32)> {
        // An entry that goes while it is read is no entry.
        self.slots.iter().filter_map(Result::ok).collect()
    }

    /// Whether process `pid` has this slot.
    pub fn has(&self, pid: u32, slot: u32) -> bool {
        self.slots.get(&pid, 0).is_ok_and(|of| of == slot)
    }

    /// The process that has a slot.
    pub fn pid_of(&self, slot: u32) -> Option<u32> {
        self.all().into_iter().find(|(_, of)| *of == slot).map(|(pid, _)| pid)
    }

    /// Takes back a slot that was offered, if there is one left.
    pub fn withdraw(&mut self) -> Option<u32> {
        self.vacant.pop(0).ok()
    }

    /// A new process may take this slot, which has been made ready.
    pub fn add_free_slot(&mut self, slot: u32) -> anyhow::Result<()> {
        self.vacant.push(slot, 0).with_context(|| format!("offer slot {slot} to new processes"))
    }
}
