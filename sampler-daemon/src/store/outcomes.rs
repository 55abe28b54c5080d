//! Counters of the daemon's own outcomes.

use sampler_common::counters::Outcome;

/// One counter for every outcome. The kernel's counts are added on request.
#[derive(Clone, Debug)]
pub struct Outcomes {
    counts: Vec<u64>,
}

impl Default for Outcomes {
    fn default() -> Outcomes {
        Outcomes { counts: vec![0; Outcome::ALL.len()] }
    }
}

impl Outcomes {
    /// Adds to a counter.
    pub fn add(&mut self, outcome: Outcome, count: u64) {
        self.counts[outcome as usize] += count;
    }

    /// The value of a counter.
    pub fn get(&self, outcome: Outcome) -> u64 {
        self.counts[outcome as usize]
    }

    /// All counters with their names.
    pub fn iter(&self) -> impl Iterator<Item = (Outcome, u64)> + '_ {
        Outcome::ALL.iter().map(|outcome| (*outcome, self.get(*outcome)))
    }
}
