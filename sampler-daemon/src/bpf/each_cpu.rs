//! One object for every CPU, while CPUs come and go.

use std::collections::BTreeMap;

/// The CPUs that are online.
///
/// # Errors
/// If the CPUs cannot be listed.
pub(super) fn online() -> anyhow::Result<Vec<u32>> {
    aya::util::online_cpus().map_err(|(path, error)| anyhow::anyhow!("read {path}: {error}"))
}

/// One object for every CPU, by the CPU's number.
pub(super) struct EachCpu<T>(BTreeMap<u32, T>);

impl<T> EachCpu<T> {
    /// No objects yet.
    pub(super) fn new() -> EachCpu<T> {
        EachCpu(BTreeMap::new())
    }

    /// Makes an object for each online CPU without one. Drops the objects of CPUs that are offline
    /// or in `ended`. (A kernel object of a CPU ends when the CPU goes offline, and does not begin
    /// again when the CPU comes back.)
    /// Returns how many objects were made or dropped, and the last error of `make`.
    pub(super) fn follow(
        &mut self,
        online: &[u32],
        ended: &[u32],
        mut make: impl FnMut(u32) -> anyhow::Result<T>,
    ) -> (usize, anyhow::Result<()>) {
        let before = self.0.len();
        self.0.retain(|cpu, _| online.contains(cpu) && !ended.contains(cpu));
        let (kept, mut made) = (self.0.len(), Ok(()));
        for cpu in online {
            if !self.0.contains_key(cpu) {
                match make(*cpu) {
                    Ok(new) => drop(self.0.insert(*cpu, new)),
                    Err(error) => made = Err(error),
                }
            }
        }
        (before - kept + self.0.len() - kept, made)
    }

    /// CPUs whose object is `over`.
    pub(super) fn over(&mut self, mut over: impl FnMut(&mut T) -> bool) -> Vec<u32> {
        self.0.iter_mut().filter_map(|(cpu, it)| over(it).then_some(*cpu)).collect()
    }

    /// The objects of all CPUs.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.values()
    }

    /// The objects of all CPUs.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.values_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_follow_online_and_offline_cpus() {
        let mut each = EachCpu::new();
        let mut number = 0;
        let mut make = |_| {
            number += 1;
            Ok(number)
        };
        let mut changed = |each: &mut EachCpu<i32>, online: &[u32], ended: &[u32]| {
            let (changed, made) = each.follow(online, ended, &mut make);
            made.map(|()| changed).unwrap()
        };
        assert_eq!(changed(&mut each, &[0, 1], &[]), 2);
        assert_eq!(changed(&mut each, &[0, 2], &[]), 2);
        assert_eq!(each.iter().copied().collect::<Vec<i32>>(), [1, 3]);
        assert_eq!(each.over(|number| *number == 3), [2]);
        // The CPU was offline, and is back.
        assert_eq!(changed(&mut each, &[0, 2], &[2]), 2);
        assert_eq!(each.iter().copied().collect::<Vec<i32>>(), [1, 4]);
        assert_eq!(changed(&mut each, &[0, 2], &[]), 0);
        let refuse = |cpu| match cpu {
            3 => Err(anyhow::anyhow!("refused")),
            _ => Ok(5),
        };
        let (changed, made) = each.follow(&[0, 3, 4], &[], refuse);
        assert_eq!((changed, made.is_err()), (2, true));
        // An object that is refused again and again does not count as a change.
        let (changed, made) = each.follow(&[0, 3, 4], &[], refuse);
        assert_eq!((changed, made.is_err()), (0, true));
        assert_eq!(each.iter().copied().collect::<Vec<i32>>(), [1, 5]);
    }
}
