//! The live set as the daemon sees it: read whole, thinned, purged.

use super::shared::{Filter, ProcessSlots, State};
use super::sys;
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
    pub(super) fn new(
        map: MapData,
        filter: Filter,
        state: State,
        slots: ProcessSlots,
        bound: u32,
    ) -> LiveSet {
        LiveSet { map, filter, state, slots, bound }
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Entries now.
    pub fn len(&self) -> u64 {
        self.state.live()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries at most.
    pub fn bound(&self) -> u32 {
        self.bound
    }

    /// All entries: every one that is there from beginning to end of the call.
    pub fn entries(&self) -> io::Result<Vec<(LiveKey, LiveEntry)>> {
        sys::entries(self.map.fd().as_fd(), ZERO)
    }

    /// Whether the entry of `sample` is there.
    pub fn holds(&self, key: &LiveKey, sample: u64) -> bool {
        let there = sys::look_up::<_, LiveEntry>(self.map.fd().as_fd(), key);
        there.is_ok_and(|entry| entry.is_some_and(|entry| entry.sample == sample))
    }

    /// Takes the entry of `sample` out; false if it is gone already.
    ///
    /// Another sample that has come to the same address stays: a free of it must not find it missing. Should
    /// it come between the look and the taking, it is put back.
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
            // The address has a third sample by now, which counts for itself.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.forget(key, &taken);
            }
            Err(error) => return Err(error),
        }
        Ok(false)
    }

    /// The entry is in no counter any more.
    fn forget(&mut self, key: &LiveKey, taken: &LiveEntry) {
        if taken.is_filtered() {
            self.filter.leave(key.pointer, key.space.slot);
        }
        self.state.subtract_live(1);
        self.slots.subtract_live(key.space.slot);
    }
}
