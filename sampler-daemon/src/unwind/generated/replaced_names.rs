//! Names of generated code that lines added to a perf map have replaced, for samples that are read
//! late.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Most replaced names that are kept. At the bound the oldest is forgotten.
const MAX_REPLACED: usize = 4096;

/// When a line was added to a perf map: after `from_ns` and not after `until_ns`
/// (`CLOCK_MONOTONIC`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::unwind) struct Added {
    pub(in crate::unwind) from_ns: u64,
    pub(in crate::unwind) until_ns: u64,
}

/// The earlier name of a range of addresses.
#[derive(Debug)]
struct Earlier {
    addresses: Range<u64>,
    name: Arc<str>,
    /// When the line was added that replaced the name.
    replaced: Added,
}

/// What a perf map says about an address at an earlier time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::unwind) enum EarlierName<'a> {
    /// The address had this name.
    Certain(&'a Arc<str>),
    /// The address had this name, or a later one already.
    Doubtful(&'a Arc<str>),
}

/// The replaced names, in the order of their replacement.
#[derive(Debug, Default)]
pub(in crate::unwind) struct ReplacedNames(VecDeque<Earlier>);

impl ReplacedNames {
    /// Keeps the name of a range of addresses that an added line has replaced.
    pub(in crate::unwind) fn add(&mut self, addresses: Range<u64>, name: Arc<str>, added: Added) {
        if self.0.len() >= MAX_REPLACED {
            self.0.pop_front();
        }
        self.0.push_back(Earlier { addresses, name, replaced: added });
    }

    /// The name of an address at a time, if the name was replaced after that time.
    pub(in crate::unwind) fn find(&self, address: u64, time_ns: u64) -> Option<EarlierName<'_>> {
        let later = self.0.partition_point(|it| it.replaced.until_ns <= time_ns);
        let of = self.0.range(later..).find(|it| it.addresses.contains(&address))?;
        Some(match time_ns <= of.replaced.from_ns {
            true => EarlierName::Certain(&of.name),
            false => EarlierName::Doubtful(&of.name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_doubtful_between_two_looks() {
        let mut names = ReplacedNames::default();
        let [first, second] = ["first", "second"].map(Arc::from);
        let added = |from_ns, until_ns| Added { from_ns, until_ns };
        names.add(0x1000..0x1010, Arc::clone(&first), added(100, 200));
        names.add(0x1008..0x1010, Arc::clone(&second), added(300, 400));
        assert_eq!(names.find(0x1000, 100), Some(EarlierName::Certain(&first)));
        assert_eq!(names.find(0x1000, 150), Some(EarlierName::Doubtful(&first)));
        assert_eq!(names.find(0x1000, 200), None);
        assert_eq!(names.find(0x1008, 150), Some(EarlierName::Doubtful(&first)));
        assert_eq!(names.find(0x1008, 250), Some(EarlierName::Certain(&second)));
        assert_eq!(names.find(0x1008, 350), Some(EarlierName::Doubtful(&second)));
        assert_eq!((names.find(0x1010, 150), names.find(0x1008, 400)), (None, None));
        (0..MAX_REPLACED).for_each(|_| names.add(0..1, Arc::clone(&first), added(500, 600)));
        assert_eq!((names.find(0x1000, 150), names.0.len()), (None, MAX_REPLACED));
    }
}
