//! How a process is sampled: what was asked for, what is in force, and what was in force ever.

use sampler_common::limits::CLASSES;
use sampler_common::sampling::{Design, Strategy};

/// A design for every size class.
pub type Designs = [Design; CLASSES];

/// What somebody asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The strategy.
    pub strategy: Strategy,
    /// Mean bytes between samples, 1 to 2^32.
    pub interval_bytes: u64,
    /// Bernoulli: one sample in so many allocations, instead of as many as the interval would give.
    pub one_in: Option<u64>,
    /// Samples wanted in a second, instead of a fixed interval.
    pub samples_per_second: Option<f64>,
}

/// How a process is sampled.
#[derive(Clone, Debug)]
pub struct SamplingRecord {
    /// What was asked for.
    pub asked: Sampling,
    /// Mean bytes between samples in force: the interval asked for unless back-pressure or a wanted number of samples has changed it.
    pub interval_bytes: f64,
    /// The designs in force.
    pub designs: Designs,
    /// Most objects and bytes of each size class that went unseen per unit of hazard, at any design that was in force.
    pub unseen: [(f64, f64); CLASSES],
    /// The largest interval that was in force, bytes.
    pub largest_interval_bytes: f64,
    /// Every strategy that was asked for.
    pub strategies: Vec<Strategy>,
}

impl SamplingRecord {
    /// From the start.
    pub fn new(asked: Sampling, designs: Designs) -> SamplingRecord {
        let mut record = SamplingRecord {
            asked,
            interval_bytes: asked.interval_bytes as f64,
            designs,
            unseen: [(0.0, 0.0); CLASSES],
            largest_interval_bytes: 1.0,
            strategies: Vec::new(),
        };
        record.ask(asked);
        record.set(designs, asked.interval_bytes as f64);
        record
    }

    /// Somebody asks for something else.
    pub fn ask(&mut self, asked: Sampling) {
        self.asked = asked;
        if !self.strategies.contains(&asked.strategy) {
            self.strategies.push(asked.strategy);
        }
    }

    /// Other designs come into force.
    pub fn set(&mut self, designs: Designs, interval_bytes: f64) {
        self.designs = designs;
        self.interval_bytes = interval_bytes;
        self.largest_interval_bytes = self.largest_interval_bytes.max(interval_bytes);
        for (class, (unseen, design)) in self.unseen.iter_mut().zip(designs).enumerate() {
            let (objects, bytes) = design.unseen(class);
            *unseen = (unseen.0.max(objects), unseen.1.max(bytes));
        }
    }
}
