//! Addresses for locations that are kept as file offsets.
//!
//! A profile spans processes, so no address of any one of them is meaningful. Tools insist on ranges
//! that do not overlap: every mapping is laid out in a range of its own of at least 2^40 bytes, and
//! `address − memory_start + file_offset` is the offset in the file, as the format defines it.

use crate::profile::Profile;

const RANGE_SHIFT: u32 = 40;
const RANGE: u64 = 1 << RANGE_SHIFT;
const PAGE_MASK: u64 = 0xfff;

/// Addresses of one mapping.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) limit: u64,
    pub(super) file_offset: u64,
}

impl Range {
    /// The address of a file offset. Offsets further than 2^40 apart in one mapping (anonymous code at
    /// both ends of the address space) come to lie modulo 2^40; their names stay apart.
    pub(super) fn address(self, offset: u64) -> u64 {
        self.start + (offset.wrapping_sub(self.file_offset) & (RANGE - 1))
    }
}

/// The ranges of all mappings.
pub(super) struct Space {
    file_offsets: Vec<u64>,
}

impl Space {
    pub(super) fn of(profile: &Profile) -> Space {
        let mut lowest = vec![u64::MAX; profile.mappings.len()];
        let mut highest = vec![0; profile.mappings.len()];
        for location in &profile.locations {
            let mapping = location.mapping as usize;
            lowest[mapping] = location.address.min(lowest[mapping]);
            highest[mapping] = location.address.max(highest[mapping]);
        }
        // Anonymous code has addresses, which lie beyond a range that begins at 0.
        let file_offset = |(low, high): (u64, u64)| if high < RANGE { 0 } else { low & !PAGE_MASK };
        Space { file_offsets: lowest.into_iter().zip(highest).map(file_offset).collect() }
    }

    pub(super) fn range(&self, mapping: usize) -> Range {
        // 2^24 − 2 ranges fit; the daemon's bound on modules is far below.
        let start = ((mapping as u64 + 1) << RANGE_SHIFT).min(u64::MAX - RANGE);
        Range { start, limit: start + RANGE, file_offset: self.file_offsets[mapping] }
    }
}
