//! The profiled processes in eBPF maps: slots by pid, and the free slots that new processes may
//! take.

use super::shared::State;
use anyhow::Context as _;
use aya::maps::{HashMap as BpfHashMap, MapData, Queue};
use sampler_common::wire::{EXCLUDED, EXPECTED};

/// The maps `TARGETS` and `VACANT`.
pub struct Targets {
    slots: BpfHashMap<MapData, u32, u32>,
    vacant: Queue<MapData, u32>,
    /// Holds the generation of the map: the kernel side caches its look-ups until the generation
    /// changes.
    state: State,
}

impl Targets {
    pub(in crate::bpf) fn new(
        slots: BpfHashMap<MapData, u32, u32>,
        vacant: Queue<MapData, u32>,
        state: State,
    ) -> Targets {
        Targets { slots, vacant, state }
    }

    /// Gives slot `slot` to process `pid`.
    pub fn enter(&mut self, pid: u32, slot: u32) -> anyhow::Result<()> {
        let entered = self.slots.insert(pid, slot, 0);
        self.state.begin_epoch();
        entered.with_context(|| format!("enter pid {pid} in the eBPF map"))
    }

    /// Gives slot `slot` to process `pid`, if the map has no entry for the process yet.
    pub fn claim(&mut self, pid: u32, slot: u32) -> anyhow::Result<()> {
        const NOEXIST: u64 = 1;
        let claimed = self.slots.insert(pid, slot, NOEXIST);
        self.state.begin_epoch();
        claimed.with_context(|| format!("pid {pid} is in the eBPF map already"))
    }

    /// Excludes process `pid`: it is not profiled and gets no slot.
    pub fn exclude(&mut self, pid: u32) -> anyhow::Result<()> {
        self.enter(pid, EXCLUDED)
    }

    /// Lets process `pid` take a slot at its first allocation.
    pub fn expect(&mut self, pid: u32) -> anyhow::Result<()> {
        self.enter(pid, EXPECTED)
    }

    /// Removes the entry of process `pid`.
    pub fn forget(&mut self, pid: u32) {
        // The removal fails only if the process was never entered.
        let _ = self.slots.remove(&pid);
        self.state.begin_epoch();
    }

    /// Removes the entry of process `pid`, which had slot `slot` and is gone. The entry stays if a
    /// new process with the same pid has it already.
    pub fn vacate(&mut self, pid: u32, slot: u32) {
        if self.slots.get(&pid, 0).is_ok_and(|of| of == slot) {
            self.forget(pid);
        }
    }

    /// Whether process `pid` has an entry.
    pub fn knows(&self, pid: u32) -> bool {
        self.slots.get(&pid, 0).is_ok()
    }

    /// All processes with an entry, and their values: a slot, `EXCLUDED` or `EXPECTED`.
    pub fn all(&self) -> Vec<(u32, u32)> {
        // An entry that disappears while it is read is left out.
        self.slots.iter().filter_map(Result::ok).collect()
    }

    /// Whether process `pid` has slot `slot`.
    pub fn has(&self, pid: u32, slot: u32) -> bool {
        self.slots.get(&pid, 0).is_ok_and(|of| of == slot)
    }

    /// The process that has slot `slot`.
    pub fn pid_of(&self, slot: u32) -> Option<u32> {
        self.all().into_iter().find(|(_, of)| *of == slot).map(|(pid, _)| pid)
    }

    /// Takes back a free slot that was offered to new processes, if one is left.
    pub fn withdraw(&mut self) -> Option<u32> {
        self.vacant.pop(0).ok()
    }

    /// Offers a prepared slot to new processes.
    pub fn add_free_slot(&mut self, slot: u32) -> anyhow::Result<()> {
        self.vacant.push(slot, 0).with_context(|| format!("offer slot {slot} to new processes"))
    }
}
