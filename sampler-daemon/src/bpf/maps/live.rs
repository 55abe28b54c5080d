//! The daemon's access to the live set: reading, thinning, purging.

use super::shared::{Filter, ProcessSlots, State};
use crate::bpf::sys;
use aya::maps::MapData;
use sampler_common::wire::{LiveEntry, LiveKey, Space};
use std::io;
use std::os::fd::AsFd;

const ZERO: (LiveKey, LiveEntry) = (
    LiveKey { pointer: 0, space: Space { slot: 0, generation: 0 } },
    LiveEntry { sample: 0, size: 0, design: 0, time_ns: 0, flags: 0 },
);

/// The live set.
pub struct LiveSet {
    map: MapData,
    filter: Filter,
    state: State,
    slots: ProcessSlots,
    bound: u32,
}

impl LiveSet {
    pub(in crate::bpf) fn new(
        map: MapData,
        filter: Filter,
        state: State,
        slots: ProcessSlots,
        bound: u32,
    ) -> LiveSet {
        LiveSet { map, filter, state, slots, bound }
    }

    pub(in crate::bpf) fn state(&self) -> &State {
        &self.state
    }

    /// Number of entries now.
    pub fn len(&self) -> u64 {
        self.state.live()
    }

    /// Whether the live set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Maximum number of entries.
    pub fn bound(&self) -> u32 {
        self.bound
    }

    /// Returns the entries. Every entry that exists from the beginning to the end of the call is
    /// included.
    pub fn entries(&self) -> io::Result<Vec<(LiveKey, LiveEntry)>> {
        sys::entries(self.map.fd().as_fd(), ZERO)
    }

    /// Whether the live set has the entry of `sample`.
    pub fn holds(&self, key: &LiveKey, sample: u64) -> bool {
        let there = sys::look_up::<_, LiveEntry>(self.map.fd().as_fd(), key);
        there.is_ok_and(|entry| entry.is_some_and(|entry| entry.sample == sample))
    }

    /// Removes the entry of `sample`. Returns false if the entry is gone already.
    ///
    /// Another sample that has come to the same address stays: a free of that sample must find its
    /// entry. If that sample comes between the look-up and the removal, its entry is put back.
    pub fn remove(&mut self, key: &LiveKey, sample: u64) -> io::Result<bool> {
        let map = self.map.fd().as_fd();
        let there = sys::look_up::<_, LiveEntry>(map, key)?;
        if there.is_none_or(|entry| entry.sample != sample) {
            return Ok(false);
        }
        let Some(taken) = sys::take::<_, LiveEntry>(map, key)? else { return Ok(false) };
        if taken.sample == sample {
            self.forget(key, &taken);
            return Ok(true);
        }
        match sys::insert_new(map, key, &taken) {
            Ok(()) => {}
            // The address has a third sample by now, which is counted itself.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.forget(key, &taken);
            }
            Err(error) => return Err(error),
        }
        Ok(false)
    }

    /// Removes an entry from all counters.
    fn forget(&mut self, key: &LiveKey, taken: &LiveEntry) {
        if taken.is_filtered() {
            self.filter.leave(key.pointer, key.space.slot);
        }
        self.state.subtract_live(1);
        self.slots.subtract_live(key.space.slot);
    }
}
