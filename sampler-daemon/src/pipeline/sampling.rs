//! How processes are sampled: from what was asked for to the designs in the kernel.

use super::worker::Worker;
use crate::store::{Designs, Sampling};
use sampler_common::limits::CLASSES;
use sampler_common::sampling::{Design, Rate, Strategy};

/// The designs to begin with: as asked for where nothing has to be learned first, else geometric at the same interval.
/// The request is in the strategy's domain ([`check`]).
pub(super) fn first_designs(asked: &Sampling) -> Designs {
    let interval = asked.interval_bytes;
    let design = match (asked.strategy, asked.one_in) {
        (Strategy::Bernoulli, Some(calls)) => {
            Rate::from_interval(calls).map(|rate| Design::new(Strategy::Bernoulli, rate))
        }
        (Strategy::Bernoulli, None) => Design::from_interval(Strategy::Geometric, interval, 1.0),
        (strategy, _) => Design::from_interval(strategy, interval, 1.0),
    };
    [design.unwrap_or(Design::NEVER); CLASSES]
}

/// What is wrong with a request, in one line.
pub(super) fn check(asked: &Sampling) -> Result<(), String> {
    if first_designs(asked)[0] == Design::NEVER {
        let interval = asked.interval_bytes;
        return Err(match asked.strategy {
            Strategy::Stride => {
                format!("interval {interval}: a stride must be 64 to 4294967296 bytes")
            }
            _ => format!("interval {interval}: must be 1 to 4294967296 bytes"),
        });
    }
    Ok(())
}

impl Worker {
    /// Changes how the process in `slot` is sampled, from the next call on.
    pub(super) fn ask(&mut self, slot: u32, asked: Sampling) {
        let Some(source) = self.ingest.sources.get(&slot) else { return };
        self.ingest.processes.get_mut(source.process).sampling.ask(asked);
        self.set_designs(slot, first_designs(&asked), asked.interval_bytes as f64);
    }

    /// Puts designs into force.
    pub(super) fn set_designs(&mut self, slot: u32, designs: Designs, interval_bytes: f64) {
        let Some(source) = self.ingest.sources.get(&slot) else { return };
        self.kernel.slots.set_designs(slot, &designs);
        self.ingest.processes.get_mut(source.process).sampling.set(designs, interval_bytes);
    }

    /// Halves the rate of the process in `slot`; the designs then in force.
    pub(super) fn halve(&mut self, slot: u32) -> Option<Designs> {
        let source = self.ingest.sources.get(&slot)?;
        let sampling = &self.ingest.processes.get(source.process).sampling;
        let designs = sampling.designs.map(Design::halved);
        let interval_bytes = (sampling.interval_bytes * 2.0).min((1u64 << 32) as f64);
        self.set_designs(slot, designs, interval_bytes);
        Some(designs)
    }
}
