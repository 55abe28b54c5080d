//! Live samples, as the daemon knows them. The live set in the kernel is the truth; this picture has
//! the stacks, and is repaired from it.

use super::{ProcessId, StackId};
use rustc_hash::FxHashMap;
use sampler_common::estimate::Sample;
use sampler_common::wire::Space;

/// A sampled block that is held.
#[derive(Clone, Copy, Debug)]
pub struct LiveSample {
    /// Whose.
    pub process: ProcessId,
    /// Its program image.
    pub space: Space,
    /// Where it was allocated.
    pub stack: StackId,
    /// What was sampled; `kept` is its chance of admission to the live set, and of every thinning since.
    pub sample: Sample,
    /// `CLOCK_MONOTONIC` at the allocation, nanoseconds.
    pub time_ns: u64,
}

/// Live samples by number. Bounded by the kernel's live set, of which it is a picture.
#[derive(Default)]
pub struct LiveSamples {
    samples: FxHashMap<u64, LiveSample>,
}

impl LiveSamples {
    /// Enters a sample.
    pub fn insert(&mut self, sample: u64, live: LiveSample) {
        self.samples.insert(sample, live);
    }

    /// The sample with this number.
    pub fn get_mut(&mut self, sample: u64) -> Option<&mut LiveSample> {
        self.samples.get_mut(&sample)
    }

    /// Whether the sample is there.
    pub fn contains(&self, sample: u64) -> bool {
        self.samples.contains_key(&sample)
    }

    /// Ends a sample; false if it was not there.
    pub fn remove(&mut self, sample: u64) -> bool {
        self.samples.remove(&sample).is_some()
    }

    /// Ends all samples for which `ends` holds; returns how many.
    pub fn remove_where(&mut self, mut ends: impl FnMut(u64, &LiveSample) -> bool) -> u64 {
        let before = self.samples.len();
        self.samples.retain(|sample, live| !ends(*sample, live));
        (before - self.samples.len()) as u64
    }

    /// All samples.
    pub fn iter(&self) -> impl Iterator<Item = (&u64, &LiveSample)> {
        self.samples.iter()
    }

    /// Samples held.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }
}
