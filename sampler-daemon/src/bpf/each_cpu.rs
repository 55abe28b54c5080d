//! What there is one of on every CPU, while CPUs come and go.

use std::collections::BTreeMap;

/// The CPUs that are there.
///
/// # Errors
/// If they cannot be listed.
pub(super) fn online() -> anyhow::Result<Vec<u32>> {
    aya::util::online_cpus().map_err(|(path, error)| anyhow::anyhow!("read {path}: {error}"))
}

/// One on every CPU, by the CPU's number.
pub(super) struct EachCpu<T>(BTreeMap<u32, T>);

impl<T> EachCpu<T> {
    /// None yet.
    pub(super) fn new() -> EachCpu<T> {
        EachCpu(BTreeMap::new())
    }

    /// Makes what CPUs that are online lack, and drops what is of others or has `ended`; how many were made. (What the kernel has of a CPU ends with it, and does
    /// not begin again when the CPU comes back.)
    ///
    /// # Errors
    /// If one of them cannot be made; the others are there.
    pub(super) fn follow(
        &mut self,
        online: &[u32],
        ended: &[u32],
        mut make: impl FnMut(u32) -> anyhow::Result<T>,
    ) -> anyhow::Result<usize> {
        self.0.retain(|cpu, _| online.contains(cpu) && !ended.contains(cpu));
        let (before, mut made) = (self.0.len(), Ok(()));
        for cpu in online {
            if !self.0.contains_key(cpu) {
                match make(*cpu) {
                    Ok(new) => drop(self.0.insert(*cpu, new)),
                    Err(error) => made = Err(error),
                }
            }
        }
        made.map(|()| self.0.len() - before)
    }

    /// CPUs whose own one is `over`.
    pub(super) fn over(&mut self, mut over: impl FnMut(&mut T) -> bool) -> Vec<u32> {
        self.0.iter_mut().filter_map(|(cpu, it)| over(it).then_some(*cpu)).collect()
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.values()
    }

    /// All of them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.values_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_come_and_go() {
        let mut each = EachCpu::new();
        let mut number = 0;
        let mut make = |_| {
            number += 1;
            Ok(number)
        };
        assert_eq!(each.follow(&[0, 1], &[], &mut make).unwrap(), 2);
        assert_eq!(each.follow(&[0, 2], &[], &mut make).unwrap(), 1);
        assert_eq!(each.iter().copied().collect::<Vec<i32>>(), [1, 3]);
        assert_eq!(each.over(|number| *number == 3), [2]);
        // It was away, and is back.
        assert_eq!(each.follow(&[0, 2], &[2], &mut make).unwrap(), 1);
        assert_eq!(each.iter().copied().collect::<Vec<i32>>(), [1, 4]);
        assert_eq!(each.follow(&[0, 2], &[], &mut make).unwrap(), 0);
        let refused = each.follow(&[0, 3, 4], &[], |cpu| match cpu {
            3 => Err(anyhow::anyhow!("refused")),
            _ => Ok(5),
        });
        assert!(refused.is_err());
        assert_eq!(each.iter().copied().collect::<Vec<i32>>(), [1, 5]);
    }
}
