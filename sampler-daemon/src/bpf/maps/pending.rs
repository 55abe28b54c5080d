//! Calls between their entry and their return.

use crate::bpf::sys;
use aya::maps::MapData;
use sampler_common::wire::{LiveEntry, Pending, PendingKey, Space};
use std::io;
use std::os::fd::AsFd;

const ZERO: (PendingKey, Pending) = (
    PendingKey { thread: 0, return_slot: 0 },
    Pending {
        size: 0,
        design: 0,
        offset: 0,
        argument: 0,
        function: 0,
        old: LiveEntry { sample: 0, size: 0, design: 0, time_ns: 0, flags: 0 },
        space: Space { slot: 0, generation: 0 },
        role: 0,
        hits: 0,
    },
);

/// The map `PENDING`.
pub struct PendingCalls(MapData);

impl PendingCalls {
    pub(in crate::bpf) fn new(map: MapData) -> PendingCalls {
        PendingCalls(map)
    }

    /// Number of pending calls now; 0 if the map cannot be read.
    pub fn len(&self) -> u64 {
        sys::entries(self.0.fd().as_fd(), ZERO).map_or(0, |calls| calls.len() as u64)
    }

    /// Whether no call is pending.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes the calls in address spaces that have `ended`: these calls never return. Returns how
    /// many of them were sampled.
    pub fn forget(&self, ended: impl Fn(Space) -> bool) -> io::Result<u64> {
        let mut sampled = 0;
        for (key, call) in sys::entries(self.0.fd().as_fd(), ZERO)? {
            if !ended(call.space) {
                continue;
            }
            if let Some(call) = sys::take::<_, Pending>(self.0.fd().as_fd(), &key)? {
                sampled += u64::from(call.hits != 0);
            }
        }
        Ok(sampled)
    }
}
