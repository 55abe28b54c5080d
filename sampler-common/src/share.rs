//! How much of a shared table one user, and one process of a user, may fill.
//!
//! Plainly: a user may hold six times as much as all users leave free. The processes of a user
//! share the user's part by a rule of the same form: a process may hold twice as much as the part
//! has left. Some room is kept for users and for processes that hold little.
//!
//! ```text
//! limit(holder) = max( a / (1 + a) · (common − others), kept / holders ),  at most bound − others
//! common        = bound − kept
//!
//! users of a table:      a = 6,  kept = ⅛ · bound,  64 holders
//! processes of a user:   a = 2,  kept = ⅛ · bound,  512 holders;  bound = limit(user)
//! ```
//!
//! `others` is what all other holders hold. One user alone fills ¾ of a table, and the first of its
//! processes 0.44. However many processes a greedy user starts, the next user finds a tenth of the
//! table. (Dynamic thresholds: Choudhury and Hahne, 1998.)
//!
//! The part of a user shrinks when other users grow, and may be less than what the user holds
//! already. A new process of that user still gets [`least`], as long as the user holds less than
//! ¾ of the table, and all users leave free what is kept for users.

use std::collections::BTreeMap;

/// Number of processes of one user that always find some room.
pub const PROCESSES: usize = 512;

/// Number of users that always find some room.
pub const USERS: usize = 64;

/// A rule by which holders share a bound.
struct Rule {
    /// A holder may hold this multiple of what all holders leave free.
    multiple: usize,
    /// The bound by the part of it that is kept for holders of little.
    kept_divisor: usize,
    /// Number of holders that find some of the kept room.
    holders: usize,
}

const OF_USERS: Rule = Rule { multiple: 6, kept_divisor: 8, holders: USERS };
const OF_PROCESSES: Rule = Rule { multiple: 2, kept_divisor: 8, holders: PROCESSES };

impl Rule {
    const fn kept(&self, bound: usize) -> usize {
        bound / self.kept_divisor
    }

    /// Entries that are kept for each holder of little.
    const fn least(&self, bound: usize) -> usize {
        self.kept(bound).div_ceil(self.holders)
    }

    /// Entries that a holder may have, if all other holders have `others` of `bound`.
    const fn limit(&self, others: usize, bound: usize) -> usize {
        let free = (bound - self.kept(bound)).saturating_sub(others);
        let fair = (self.multiple * free).div_ceil(self.multiple + 1);
        let least = self.least(bound);
        let limit = if fair > least { fair } else { least };
        let rest = bound.saturating_sub(others);
        if limit < rest { limit } else { rest }
    }
}

/// Entries of a table that one process alone can fill.
pub const fn alone(bound: usize) -> usize {
    OF_PROCESSES.limit(0, OF_USERS.limit(0, bound))
}

/// Entries of a table that a process may have even if its user has more than its part.
pub const fn least(bound: usize) -> usize {
    OF_PROCESSES.least(OF_USERS.limit(0, bound))
}

/// Whether a process that holds `own` entries of a table may hold one more. All processes of its
/// user hold `of_user`, and all processes together hold `used` of `bound`.
pub const fn may_grow(own: usize, of_user: usize, used: usize, bound: usize) -> bool {
    let part = OF_USERS.limit(used.saturating_sub(of_user), bound);
    let largest_part = OF_USERS.limit(0, bound);
    let has_room = of_user < largest_part && used < bound - OF_USERS.kept(bound);
    own < least(bound) && has_room || own < OF_PROCESSES.limit(of_user.saturating_sub(own), part)
}

/// The holder of an entry of a shared table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holder<P> {
    /// Id of the user; [`UNKNOWN_USER`] if it could not be read.
    pub user: u32,
    /// The process.
    pub process: P,
}

impl<P> Holder<P> {
    /// A process whose user is not known.
    pub const fn of_unknown_user(process: P) -> Holder<P> {
        Holder { user: UNKNOWN_USER, process }
    }
}

/// The user of processes whose user could not be read. Linux gives this id to nobody.
pub const UNKNOWN_USER: u32 = u32::MAX;

/// Numbers of a table's entries, by the process that holds them.
#[derive(Debug)]
pub struct Shares<P> {
    processes: BTreeMap<P, Part>,
    users: BTreeMap<u32, usize>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    user: u32,
    held: usize,
}

impl<P> Default for Shares<P> {
    fn default() -> Shares<P> {
        Shares { processes: BTreeMap::new(), users: BTreeMap::new() }
    }
}

impl<P: Copy + Ord> Shares<P> {
    /// Adds an entry to a process if the process may hold one more, and returns whether it may. All
    /// processes hold `used` of `bound`.
    pub fn grow(&mut self, holder: Holder<P>, used: usize, bound: usize) -> bool {
        self.grow_by(1, holder, used, bound)
    }

    /// Adds an entry of a given size, as [`Shares::grow`] does for size 1. A process may exceed its
    /// share by one entry.
    pub fn grow_by(&mut self, size: usize, holder: Holder<P>, used: usize, bound: usize) -> bool {
        let grows = self.has_room(holder, used, bound);
        if grows {
            self.add(holder, size);
        }
        grows
    }

    /// Whether a process could hold one more entry, if all processes hold `used` of `bound`.
    pub fn has_room(&self, holder: Holder<P>, used: usize, bound: usize) -> bool {
        let own = self.held_by(holder.process);
        let of_user = self.users.get(&holder.user).copied().unwrap_or(0);
        may_grow(own, of_user, used, bound)
    }

    /// Adds entries of a total size to a process, without regard to its share.
    pub fn add(&mut self, holder: Holder<P>, size: usize) {
        let Holder { user, process } = holder;
        let part = self.processes.entry(process).or_insert(Part { user, held: 0 });
        let moved = if part.user == user { 0 } else { part.held };
        if let Some(before) = self.users.get_mut(&part.user) {
            *before = before.saturating_sub(moved);
        }
        *part = Part { user, held: part.held + size };
        *self.users.entry(user).or_default() += moved + size;
    }

    /// Entries of a process.
    pub fn held_by(&self, process: P) -> usize {
        self.processes.get(&process).map_or(0, |part| part.held)
    }

    /// All processes that hold something, with the number of their entries.
    pub fn iter(&self) -> impl Iterator<Item = (P, usize)> {
        self.processes.iter().map(|(process, part)| (*process, part.held))
    }

    /// Counts all entries again, given the holder of each.
    pub fn recount(&mut self, holders: impl Iterator<Item = Holder<P>>) {
        self.recount_sizes(holders.map(|holder| (holder, 1)));
    }

    /// Counts all entries again, given the holder and the size of each.
    pub fn recount_sizes(&mut self, holders: impl Iterator<Item = (Holder<P>, usize)>) {
        *self = Shares::default();
        holders.for_each(|(holder, size)| self.add(holder, size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUND: usize = 64 * 1024;
    const LEAST_OF_USER: usize = BOUND / 8 / USERS;

    /// A table that has as many entries as its shares count.
    #[derive(Default)]
    struct Table {
        shares: Shares<usize>,
        used: usize,
    }

    impl Table {
        /// Takes up to `wanted` entries for a process; returns the number granted.
        fn take(&mut self, user: u32, process: usize, wanted: usize) -> usize {
            let holder = Holder { user, process };
            let mut taken = 0;
            while taken < wanted && self.shares.grow(holder, self.used, BOUND) {
                self.used += 1;
                taken += 1;
            }
            taken
        }
    }

    #[test]
    fn greedy_processes_of_a_user_leave_a_third_of_the_free_room() {
        let mut table = Table::default();
        let taken: Vec<usize> = (0..8).map(|process| table.take(1, process, BOUND)).collect();
        assert_eq!(taken[..4], [28672, 9558, 3186, 1062]);
        assert_eq!(taken[0], alone(BOUND));
        assert!(taken[7] >= least(BOUND));
    }

    /// Two large processes of a user, then thirty of another user: new processes of the first user
    /// are not shut out.
    #[test]
    fn a_user_whose_part_has_shrunk_finds_room_for_new_processes() {
        let mut table = Table::default();
        let large: usize = (0..2).map(|process| table.take(1, process, BOUND)).sum();
        let _others: usize = (10..40).map(|process| table.take(2, process, BOUND)).sum();
        assert!(OF_USERS.limit(table.used - large, BOUND) < large, "the part has not shrunk");
        for process in 1000..1100 {
            assert_eq!(table.take(1, process, least(BOUND)), least(BOUND));
        }
    }

    #[test]
    fn a_user_of_endless_processes_leaves_a_tenth_to_the_next() {
        let mut table = Table::default();
        let taken: usize = (0..20_000).map(|process| table.take(1, process, BOUND)).sum();
        assert!(taken <= BOUND * 3 / 4, "{taken}");
        let next: usize = (20_000..20_002).map(|process| table.take(2, process, BOUND)).sum();
        assert!(next > BOUND / 16, "{next}");
    }

    #[test]
    fn a_process_that_changes_its_user_takes_its_entries_along() {
        let mut table = Table::default();
        assert_eq!(table.take(1, 7, 100), 100);
        assert_eq!(table.take(2, 7, 10), 10);
        assert_eq!(table.shares.users, BTreeMap::from([(1, 0), (2, 110)]));
        let holders = [(2, 7), (2, 7), (3, 8)];
        table.shares.recount(holders.map(|(user, process)| Holder { user, process }).into_iter());
        assert_eq!(table.shares.users, BTreeMap::from([(2, 2), (3, 1)]));
        assert_eq!(table.shares.iter().collect::<Vec<_>>(), [(7, 2), (8, 1)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Whatever other processes of its user have taken before, a process finds some room.
        #[test]
        fn a_process_with_little_always_finds_room(
            greedy in prop::collection::vec((0usize..64, 1usize..BOUND), 0..200),
        ) {
            let mut table = Table::default();
            for (process, wanted) in greedy {
                table.take(1, process, wanted);
            }
            for process in 64..PROCESSES {
                prop_assert_eq!(table.take(1, process, least(BOUND)), least(BOUND));
            }
            prop_assert!(table.used <= BOUND);
        }

        /// Whatever other users have taken before, by however many processes, a user finds room
        /// for two processes.
        #[test]
        fn a_user_with_little_always_finds_room(
            greedy in prop::collection::vec((0u32..32, 0usize..500, 1usize..BOUND), 0..200),
        ) {
            let mut table = Table::default();
            for (user, process, wanted) in greedy {
                table.take(user, process, wanted);
            }
            for user in 32..USERS as u32 {
                let processes = [1000 + user as usize, 2000 + user as usize];
                for process in processes {
                    prop_assert!(table.take(user, process, LEAST_OF_USER / 8) > 0);
                }
            }
            prop_assert!(table.used <= BOUND);
        }
    }
}
