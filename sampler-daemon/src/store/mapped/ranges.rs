//! The mapped addresses of one address space and the call of each: ranges that never overlap.
//!
//! The rules are the kernel's. A new range replaces the ranges that it covers. A gap that is cut
//! out of a range leaves the range's two ends.

use std::collections::BTreeMap;

/// A mapping call in [`super::Mapped`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PieceId(pub u64);

/// A range of addresses, and the call that mapped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First address.
    pub start: u64,
    /// End address, exclusive.
    pub end: u64,
    /// The mapping call.
    pub piece: PieceId,
}

impl Part {
    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// The part of the range from `start` to `end`.
    fn within(&self, start: u64, end: u64) -> Option<Part> {
        let part = Part { start: self.start.max(start), end: self.end.min(end), ..*self };
        (part.start < part.end).then_some(part)
    }
}

/// The ranges of one address space.
#[derive(Debug, Default)]
pub struct Ranges {
    /// By first address: end address and call.
    ranges: BTreeMap<u64, (u64, PieceId)>,
}

impl Ranges {
    /// Removes the addresses from `start` to `end` and returns the removed parts by address.
    pub fn take(&mut self, start: u64, end: u64) -> Vec<Part> {
        let mut taken = Vec::new();
        if start >= end {
            return taken;
        }
        // From the range that begins before `start` and reaches over it, to the last range that
        // begins before `end`.
        let first = self.ranges.range(..start).next_back().filter(|(_, (to, _))| *to > start);
        let first = first.map_or(start, |(from, _)| *from);
        let covered: Vec<Part> = self
            .ranges
            .range(first..end)
            .map(|(start, (end, piece))| Part { start: *start, end: *end, piece: *piece })
            .collect();
        for range in covered {
            self.ranges.remove(&range.start);
            for rest in [range.within(0, start), range.within(end, u64::MAX)].into_iter().flatten()
            {
                self.ranges.insert(rest.start, (rest.end, rest.piece));
            }
            taken.extend(range.within(start, end));
        }
        taken
    }

    /// Inserts a range. Its addresses must be free.
    pub fn put(&mut self, part: Part) {
        if part.start < part.end {
            self.ranges.insert(part.start, (part.end, part.piece));
        }
    }

    /// The range that contains an address.
    pub fn at(&self, address: u64) -> Option<Part> {
        let (start, (end, piece)) = self.ranges.range(..=address).next_back()?;
        (address < *end).then_some(Part { start: *start, end: *end, piece: *piece })
    }

    /// All ranges, by address.
    pub fn iter(&self) -> impl Iterator<Item = Part> {
        self.ranges.iter().map(|(start, (end, piece))| Part {
            start: *start,
            end: *end,
            piece: *piece,
        })
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there are no ranges.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: u64, end: u64, piece: u64) -> Part {
        Part { start, end, piece: PieceId(piece) }
    }

    #[test]
    fn removing_a_middle_range_keeps_both_ends() {
        let mut ranges = Ranges::default();
        ranges.put(part(10, 20, 1));
        ranges.put(part(20, 30, 2));
        assert_eq!(ranges.take(14, 16), [part(14, 16, 1)]);
        assert_eq!(ranges.take(18, 25), [part(18, 20, 1), part(20, 25, 2)]);
        let left: Vec<Part> = ranges.iter().collect();
        assert_eq!(left, [part(10, 14, 1), part(16, 18, 1), part(25, 30, 2)]);
        assert_eq!(ranges.take(0, 100).len(), 3);
        assert!(ranges.is_empty() && ranges.take(5, 5).is_empty());
    }

    #[test]
    fn a_range_is_found_by_the_addresses_inside_it() {
        let mut ranges = Ranges::default();
        ranges.put(part(10, 20, 1));
        assert_eq!(ranges.at(10), Some(part(10, 20, 1)));
        assert_eq!(ranges.at(19), Some(part(10, 20, 1)));
        assert_eq!((ranges.at(9), ranges.at(20)), (None, None));
    }
}
