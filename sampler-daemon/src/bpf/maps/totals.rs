//! Exact totals, outcomes and countdowns of the process slots, per CPU.

use crate::bpf::TotalsValue;
use anyhow::Context as _;
use aya::maps::{MapData, PerCpuArray, PerCpuValues};
use aya::util::nr_cpus;
use sampler_common::counters::{KERNEL_OUTCOMES, Outcome};
use sampler_common::limits::CLASSES;
use sampler_common::sampling;
use sampler_common::wire::{ClassTotals, ProcessTotals};

/// The totals of one process over all CPUs, by size class and outcome.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotTotals {
    /// Requested bytes, by size class.
    pub bytes: [u64; CLASSES],
    /// Allocations, by size class.
    pub objects: [u64; CLASSES],
    /// Kernel outcomes, by number.
    pub outcomes: [u64; KERNEL_OUTCOMES],
}

impl SlotTotals {
    /// Count of a kernel outcome.
    pub fn outcome(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(outcome as usize).copied().unwrap_or(0)
    }

    /// Allocations of all size classes.
    pub fn all_objects(&self) -> u64 {
        self.objects.iter().sum()
    }

    /// Requested bytes of all size classes.
    pub fn all_bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Adds the totals of another process.
    pub fn add(&mut self, other: &SlotTotals) {
        let add = |to: &mut [u64], from: &[u64]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        };
        add(&mut self.bytes, &other.bytes);
        add(&mut self.objects, &other.objects);
        add(&mut self.outcomes, &other.outcomes);
    }
}

/// The map `TOTALS`.
pub struct Totals {
    map: PerCpuArray<MapData, TotalsValue>,
    cpus: usize,
}

impl Totals {
    pub(in crate::bpf) fn new(map: PerCpuArray<MapData, TotalsValue>) -> anyhow::Result<Totals> {
        let cpus = nr_cpus().map_err(|(file, error)| anyhow::anyhow!("read {file}: {error}"))?;
        Ok(Totals { map, cpus })
    }

    /// Resets a slot: zero totals, and a random first countdown for every CPU, drawn like every
    /// later one.
    pub fn reset(&mut self, slot: u32) -> anyhow::Result<()> {
        let fresh = || {
            TotalsValue(ProcessTotals {
                countdown: sampling::draw(fastrand::u64(..)) as i64,
                // A random position below the largest stride, so that CPUs are not in step.
                position: fastrand::i64(0..1 << 32),
                classes: [ClassTotals::default(); CLASSES],
                outcomes: [0; KERNEL_OUTCOMES],
            })
        };
        let values = PerCpuValues::try_from((0..self.cpus).map(|_| fresh()).collect::<Vec<_>>())
            .context("one value for every CPU")?;
        self.map.set(slot, values, 0).with_context(|| format!("reset the totals of slot {slot}"))
    }

    /// The totals of a slot now.
    pub fn read(&self, slot: u32) -> anyhow::Result<SlotTotals> {
        let values =
            self.map.get(&slot, 0).with_context(|| format!("read the totals of slot {slot}"))?;
        let mut sum = SlotTotals::default();
        for TotalsValue(cpu) in values.iter() {
            sum.add(&SlotTotals {
                bytes: cpu.classes.map(|class| class.bytes),
                objects: cpu.classes.map(|class| class.objects),
                outcomes: cpu.outcomes,
            });
        }
        Ok(sum)
    }
}
