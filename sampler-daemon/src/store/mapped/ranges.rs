//! Which addresses of one address space are mapped by whose call: ranges that never overlap.
//!
//! As the kernel does it: a new range replaces what it covers, a gap that is cut out of a range leaves its two ends.

use std::collections::BTreeMap;

/// A mapping call in [`super::Mapped`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PieceId(pub u64);

/// Addresses, and the call that they are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// The call.
    pub piece: PieceId,
}

impl Part {
    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// What of it lies from `start` to `end`.
    fn within(&self, start: u64, end: u64) -> Option<Part> {
        let part = Part { start: self.start.max(start), end: self.end.min(end), ..*self };
        (part.start < part.end).then_some(part)
    }
}

/// The ranges of one address space.
#[derive(Debug, Default)]
pub struct Ranges {
    /// By first address: the end, and the call.
    ranges: BTreeMap<u64, (u64, PieceId)>,
}

impl Ranges {
    /// Takes out what lies from `start` to `end`, by address.
    pub fn take(&mut self, start: u64, end: u64) -> Vec<Part> {
        let mut taken = Vec::new();
        if start >= end {
            return taken;
        }
        // From the last one that begins before `end` back to the last one that reaches over `start`.
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

    /// Puts a range where nothing is.
    pub fn put(&mut self, part: Part) {
        if part.start < part.end {
            self.ranges.insert(part.start, (part.end, part.piece));
        }
    }

    /// The range that has an address.
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

    /// How many.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there is none.
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
