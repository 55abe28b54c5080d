//! Addresses for locations that are kept as file offsets.
//!
//! A profile spans processes, so an address of one of them has no meaning. Tools insist on ranges
//! that do not overlap. So every mapping gets 2^40 bytes of its own, and
//! `address − memory_start + file_offset` is the offset in the file, as the format defines it.
//!
//! A mapping begins where an executable segment begins, as in `/proc/PID/maps`. `go tool pprof`
//! takes the start of a mapping for the first address of that segment (`loadAddress` in
//! `cmd/internal/objfile`). The other tools use the offset. If the segment is unknown, or a
//! location lies outside of it, the mapping covers the pages of its locations.

use crate::profile::Profile;

const RANGE_SHIFT: u32 = 40;
const RANGE: u64 = 1 << RANGE_SHIFT;
const PAGE_MASK: u64 = 0xfff;

/// The address range of one mapping.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) limit: u64,
    pub(super) file_offset: u64,
}

impl Range {
    /// The address of a file offset.
    ///
    /// Offsets further than 2^40 apart in one mapping (anonymous code at both ends of the address
    /// space) wrap modulo 2^40. Their names stay apart.
    pub(super) fn address(self, offset: u64) -> u64 {
        self.start + (offset.wrapping_sub(self.file_offset) & (RANGE - 1))
    }
}

/// Whole pages of a file.
struct Pages {
    /// Offset in the file of the first page.
    offset: u64,
    bytes: u64,
}

/// The ranges of all mappings.
pub(super) struct Space {
    covered: Vec<Pages>,
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
        let found = lowest.into_iter().zip(highest).zip(&profile.mappings);
        let covered = found.map(|((lowest, highest), mapping)| match &mapping.code {
            Some(code) if code.contains(&lowest) && code.contains(&highest) => {
                pages(code.start, code.end - 1)
            }
            _ => pages(lowest, highest),
        });
        Space { covered: covered.collect() }
    }

    pub(super) fn range(&self, mapping: usize) -> Range {
        // 2^24 − 2 ranges fit; the daemon's limit of modules is far below.
        let start = ((mapping as u64 + 1) << RANGE_SHIFT).min(u64::MAX - RANGE);
        let Pages { offset, bytes } = self.covered[mapping];
        Range { start, limit: start + bytes, file_offset: offset }
    }
}

/// The pages from the lowest location to the highest one and its return address; one page if there
/// is no location.
fn pages(lowest: u64, highest: u64) -> Pages {
    let offset = lowest.min(highest) & !PAGE_MASK;
    let bytes = (highest - offset).saturating_add(2).min(RANGE).next_multiple_of(PAGE_MASK + 1);
    Pages { offset, bytes }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use crate::profile::Kind;

    #[test]
    fn a_mapping_begins_where_its_code_does() {
        let profile = fixture::profile(Kind::Alloc);
        let space = Space::of(&profile);
        let ranges: Vec<_> = (0..profile.mappings.len()).map(|of| space.range(of)).collect();
        // Code from 0x4310 to 0x9b42; a library without a known segment, with a location at
        // 0xa3f1c; no location at all.
        let found = [0, 2, 4]
            .map(|of: usize| (ranges[of].file_offset, ranges[of].limit - ranges[of].start));
        assert_eq!(found, [(0x4000, 0x6000), (0xa3000, 0x1000), (0, 0x1000)]);
        for location in &profile.locations {
            let range = ranges[location.mapping as usize];
            let address = range.address(location.address);
            assert_eq!(address - range.start + range.file_offset, location.address);
            assert!((range.start..range.limit).contains(&(address + 1)), "its return address");
        }
    }

    #[test]
    fn a_location_outside_of_the_code_widens_it() {
        let mut profile = fixture::profile(Kind::Alloc);
        for code in [0x4310..0x5a10, 0x5a11..0x9b42, 0..1, u64::MAX - 1..u64::MAX] {
            profile.mappings[0].code = Some(code);
            let range = Space::of(&profile).range(0);
            assert_eq!((range.file_offset, range.limit - range.start), (0x4000, 0x4000));
        }
    }
}
