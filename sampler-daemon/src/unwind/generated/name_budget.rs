//! The budget for the names of generated code in bytes. Each user and each process has a share
//! ([`share`](sampler_common::share)).

use sampler_common::share::may_grow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Most bytes of all perf maps that are held, and of the names that samples have used. Code with
/// further names is shown as `[jit PID]+0xaddress`.
pub const MAX_NAME_BYTES: usize = 128 << 20;

/// The bytes that all shares hold.
#[derive(Debug, Default)]
pub(in crate::unwind) struct NameBudget {
    used: AtomicUsize,
    /// Bytes that the shares of each user hold.
    users: Mutex<BTreeMap<u32, Arc<AtomicUsize>>>,
    refused: AtomicU64,
}

impl NameBudget {
    /// Number of names for which there was no room.
    pub(in crate::unwind) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Bytes that all shares hold.
    pub(in crate::unwind) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// The counter of a user's bytes. Counters of users without a share are removed.
    fn of_user(&self, user: u32) -> Arc<AtomicUsize> {
        // The counters are valid even after a panic.
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.retain(|_, bytes| Arc::strong_count(bytes) > 1);
        Arc::clone(users.entry(user).or_default())
    }
}

/// The share of one program image. Dropping the share gives its bytes back.
#[derive(Debug)]
pub(in crate::unwind) struct NameShare {
    budget: Arc<NameBudget>,
    of_user: Arc<AtomicUsize>,
    own: usize,
}

impl NameShare {
    pub(in crate::unwind) fn of(budget: &Arc<NameBudget>, user: u32) -> NameShare {
        NameShare { budget: Arc::clone(budget), of_user: budget.of_user(user), own: 0 }
    }

    /// Takes bytes; false if the share is full.
    pub(in crate::unwind) fn take(&mut self, bytes: usize) -> bool {
        let of_user = self.of_user.load(Relaxed);
        let may = may_grow(self.own, of_user, self.budget.used(), MAX_NAME_BYTES);
        if may {
            self.own += bytes;
            self.of_user.fetch_add(bytes, Relaxed);
            self.budget.used.fetch_add(bytes, Relaxed);
        } else {
            self.budget.refused.fetch_add(1, Relaxed);
        }
        may
    }

    /// Gives bytes back.
    pub(in crate::unwind) fn give(&mut self, bytes: usize) {
        let bytes = bytes.min(self.own);
        self.own -= bytes;
        self.of_user.fetch_sub(bytes, Relaxed);
        self.budget.used.fetch_sub(bytes, Relaxed);
    }
}

impl Drop for NameShare {
    fn drop(&mut self) {
        self.give(self.own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_common::share::alone;

    #[test]
    fn a_process_of_endless_names_leaves_room_and_frees_its_share() {
        let budget = Arc::default();
        let take = |share: &mut NameShare| (0..1 << 20).filter(|_| share.take(1000)).count();
        let (mut first, mut second) = (NameShare::of(&budget, 1), NameShare::of(&budget, 1));
        assert_eq!(take(&mut first), alone(MAX_NAME_BYTES) / 1000 + 1);
        assert_eq!(budget.refused(), (1 << 20) - (alone(MAX_NAME_BYTES) as u64 / 1000 + 1));
        assert!(take(&mut second) > MAX_NAME_BYTES / 10 / 1000);
        let mut other_user = NameShare::of(&budget, 2);
        assert!(take(&mut other_user) > MAX_NAME_BYTES / 20 / 1000);
        drop(other_user);
        drop(first);
        assert!(second.take(1000));
        drop(second);
        assert_eq!(budget.used(), 0);
    }
}
