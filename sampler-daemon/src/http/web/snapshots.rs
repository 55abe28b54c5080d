//! The profiles that pages show. Search, table and download use the drawn profile, while the
//! program runs on.

use sampler_common::profile::Profile;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of kept profiles.
const MAX_SNAPSHOTS: usize = 8;
/// Maximum number of stacks in all kept profiles except the newest.
const MAX_STACKS: usize = 250_000;

/// The newest profiles.
#[derive(Default)]
pub(super) struct Snapshots {
    kept: Mutex<KeptProfile>,
}

#[derive(Default)]
struct KeptProfile {
    /// The number of the newest profile.
    number: u64,
    /// The profiles with their numbers, the newest first.
    profiles: VecDeque<(u64, Arc<Profile>)>,
}

impl Snapshots {
    /// Keeps a profile and returns its number.
    pub(super) fn keep(&self, profile: Arc<Profile>) -> u64 {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.number += 1;
        let number = kept.number;
        kept.profiles.push_front((number, profile));
        let mut stacks = 0;
        let fits = |(index, (_, of)): (usize, &(u64, Arc<Profile>))| {
            stacks += if index == 0 { 0 } else { of.stacks.len() };
            index < MAX_SNAPSHOTS && stacks <= MAX_STACKS
        };
        let fitting = kept.profiles.iter().enumerate().map(fits).take_while(|fits| *fits).count();
        kept.profiles.truncate(fitting);
        number
    }

    /// Returns the profile of a number, if it is still kept.
    pub(super) fn get(&self, number: u64) -> Option<Arc<Profile>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.profiles.iter().find(|(of, _)| *of == number);
        found.map(|(_, profile)| Arc::clone(profile))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_common::encode::json::read;

    /// A profile; its content does not matter.
    fn profile() -> Arc<Profile> {
        let text = include_str!("../../../../sampler-common/src/encode/golden/alloc.json");
        Arc::new(read(text).unwrap())
    }

    #[test]
    fn the_newest_snapshots_are_kept() {
        let (snapshots, profile) = (Snapshots::default(), profile());
        let numbers: Vec<u64> =
            (0..3 * MAX_SNAPSHOTS).map(|_| snapshots.keep(Arc::clone(&profile))).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b));
        let kept = numbers.iter().filter(|number| snapshots.get(**number).is_some()).count();
        assert_eq!(kept, MAX_SNAPSHOTS);
        assert!(
            snapshots.get(numbers[3 * MAX_SNAPSHOTS - 1]).is_some() && snapshots.get(99).is_none()
        );
    }

    #[test]
    fn a_large_snapshot_displaces_older_ones() {
        let (snapshots, small) = (Snapshots::default(), profile());
        let mut large = Profile::clone(&small);
        large.stacks = vec![large.stacks[0].clone(); MAX_STACKS + 1];
        let first = snapshots.keep(small);
        // The profile exceeds the bound for all profiles together; it is kept as the newest all the
        // same.
        let second = snapshots.keep(Arc::new(large));
        assert!(snapshots.get(first).is_some() && snapshots.get(second).is_some());
        let third = snapshots.keep(profile());
        assert!(snapshots.get(third).is_some() && snapshots.get(second).is_none());
        assert!(snapshots.get(first).is_none());
    }
}
