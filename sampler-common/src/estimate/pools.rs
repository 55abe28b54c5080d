//! Which processes' windows are judged together.
//!
//! A process that was met by a few windows says nothing of what they differ in, and most of the short ones that make or a web server starts are
//! met by none. But each allocation had the same chance κ to be seen as any other of its stratum, whether or not the process lived to see
//! the end of it: the sums stay unbiased, and their variance is that of many processes together. So all processes with fewer than
//! [`LEAST_WINDOWS`] are one pool, in which every group of windows, and every process without one, is a cluster of its length. What
//! processes differ in among themselves then counts as if chance had chosen them, which makes intervals wider, never narrower. Where
//! all of these have too few windows together, they join the process that has the fewest beyond that.

use super::clusters::{Cluster, Clusters, Spread};
use crate::duty::LEAST_WINDOWS;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::OnceLock;

/// The windows of processes, each by its own number.
#[derive(Clone, Debug, Default)]
pub struct ProcessClusters {
    of: BTreeMap<u32, Clusters>,
    /// Made when they are first asked for.
    pools: OnceLock<Pools>,
}

impl ProcessClusters {
    /// Enters those of a process.
    pub fn insert(&mut self, process: u32, clusters: Clusters) {
        self.pools.take();
        self.of.insert(process, clusters);
    }

    pub(super) fn pools(&self) -> &Pools {
        self.pools.get_or_init(|| Pools::new(&self.of))
    }
}

impl Deref for ProcessClusters {
    type Target = BTreeMap<u32, Clusters>;

    fn deref(&self) -> &BTreeMap<u32, Clusters> {
        &self.of
    }
}

impl PartialEq for ProcessClusters {
    fn eq(&self, other: &ProcessClusters) -> bool {
        self.of == other.of
    }
}

impl FromIterator<(u32, Clusters)> for ProcessClusters {
    fn from_iter<T: IntoIterator<Item = (u32, Clusters)>>(of: T) -> ProcessClusters {
        ProcessClusters { of: of.into_iter().collect(), pools: OnceLock::new() }
    }
}

/// What is judged together.
#[derive(Clone, Debug, Default)]
pub(super) struct Pools {
    /// Number of the pool of each process.
    of: BTreeMap<u32, usize>,
    pools: Vec<Pool>,
}

/// Processes that are judged together.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    members: BTreeMap<u32, Clusters>,
    /// Windows of all of them.
    pub(super) windows: u32,
    /// Groups that were met by windows: n.
    seen: f64,
    /// Λ
    length: f64,
    /// Σ Λ_g²
    squares: f64,
}

impl Pools {
    fn new(of: &BTreeMap<u32, Clusters>) -> Pools {
        let (mut pools, mut rest) = (Vec::new(), Pool::default());
        for (process, clusters) in of {
            if clusters.windows < LEAST_WINDOWS {
                rest.add(*process, clusters);
            } else {
                let mut pool = Pool::default();
                pool.add(*process, clusters);
                pools.push(pool);
            }
        }
        if rest.windows < LEAST_WINDOWS
            && let Some(fewest) = pools.iter_mut().min_by_key(|pool| pool.windows)
        {
            rest.members.iter().for_each(|(process, clusters)| fewest.add(*process, clusters));
        } else if !rest.members.is_empty() {
            pools.push(rest);
        }
        let places = (0..)
            .zip(&pools)
            .flat_map(|(number, pool)| pool.members.keys().map(move |process| (*process, number)));
        Pools { of: places.collect(), pools }
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter()
    }

    /// Those of some processes, each once, with which of the processes are in it.
    pub(super) fn of(&self, processes: &[u32]) -> Vec<(&Pool, Vec<u32>)> {
        let mut found: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for process in processes {
            if let Some(number) = self.of.get(process) {
                found.entry(*number).or_default().push(*process);
            }
        }
        found.into_iter().map(|(number, of)| (&self.pools[number], of)).collect()
    }
}

impl Pool {
    fn add(&mut self, process: u32, clusters: &Clusters) {
        self.windows += clusters.windows;
        self.seen += clusters.seen();
        self.length += clusters.groups.iter().map(|of| of.length).sum::<f64>();
        self.squares += clusters.groups.iter().map(|of| of.length * of.length).sum::<f64>();
        self.members.insert(process, clusters.clone());
    }

    /// Of everything in it.
    pub(super) fn whole(&self, pick: impl Fn(&[f64; 2]) -> f64) -> Spread {
        let each = self.members.values().map(|of| {
            let groups = of.groups.iter().enumerate();
            (of, groups.map(|(at, group)| (at, pick(&group.total))).collect::<Vec<_>>())
        });
        self.spread(each)
    }

    /// Of what each group of some members has, of those that have something.
    pub(super) fn part(&self, of: &[u32], groups: impl Fn(u32) -> Vec<(usize, f64)>) -> Spread {
        let members = of.iter().filter_map(|process| {
            let clusters = self.members.get(process)?;
            Some((clusters, groups(*process)))
        });
        self.spread(members)
    }

    fn spread<'a>(
        &self,
        members: impl Iterator<Item = (&'a Clusters, Vec<(usize, f64)>)>,
    ) -> Spread {
        let (mut total, mut squares, mut product, mut errors) = (0.0, 0.0, 0.0, [0.0; 2]);
        // Of one process, whose groups have an order.
        let alone = self.members.values().next().filter(|_| self.members.len() == 1);
        let mut each = vec![0.0; alone.map_or(0, |of| of.groups.len())];
        for (clusters, groups) in members {
            let mut own = 0.0;
            for (group, z) in groups {
                if let Some(each) = each.get_mut(group) {
                    *each += z;
                }
                own += z;
                squares += z * z;
                product += z * clusters.groups.get(group).map_or(0.0, |of: &Cluster| of.length);
            }
            total += own;
            // What traps add, and what ticks cost, is the machine's: of several processes these errors add as they are.
            for (sum, error) in errors.iter_mut().zip(clusters.errors) {
                *sum += if error.is_finite() { error * own } else { 0.0 };
            }
        }
        let (n, mean) = (self.seen, total / self.length);
        let (variance, freedom) = match alone {
            _ if n <= 1.0 => (f64::INFINITY, n - 1.0),
            Some(clusters) => clusters.variance(&each),
            None => {
                let squares = squares - 2.0 * mean * product + mean * mean * self.squares;
                (squares.max(0.0) * n / (n - 1.0), n - 1.0)
            }
        };
        Spread { total, variance, errors, freedom }
    }

    /// Whether it says too little for an interval.
    pub(super) fn is_small(&self) -> bool {
        let unknown = |of: &Clusters| of.errors.iter().any(|error| !error.is_finite());
        self.windows < LEAST_WINDOWS || self.members.values().any(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clusters(each: &[f64], windows: u32) -> Clusters {
        let groups = each.iter().map(|bytes| Cluster { length: 10.0, total: [*bytes, 1.0] });
        Clusters { groups: groups.collect(), windows, ..Clusters::default() }
    }

    fn pools(of: &[&Clusters]) -> ProcessClusters {
        (0..).zip(of).map(|(process, of)| (process, (*of).clone())).collect()
    }

    #[test]
    fn many_short_processes_have_an_interval_together() {
        // One in two was met, and then stands for two.
        let (met, missed) = (clusters(&[200.0], 1), clusters(&[0.0], 0));
        let all: Vec<&Clusters> =
            (0..40).map(|at| if at % 2 == 0 { &met } else { &missed }).collect();
        let of = pools(&all);
        let [pool] = &of.pools().pools[..] else { panic!("one pool") };
        let spread = pool.whole(|of| of[0]);
        assert!(!pool.is_small() && spread.total == 4000.0 && spread.freedom == 19.0);
        // 40 · 100² · 20/19
        assert!((spread.variance - 400_000.0 * 20.0 / 19.0).abs() < 1e-6, "{}", spread.variance);
    }

    #[test]
    fn few_windows_join_those_of_a_process_that_has_enough() {
        let (large, larger, small) =
            (clusters(&[90.0; 8], 8), clusters(&[90.0; 9], 9), clusters(&[5.0], 1));
        let of = pools(&[&larger, &small, &large]);
        let pools = of.pools();
        assert_eq!(pools.of, [(0, 0), (1, 1), (2, 1)].into());
        let found = pools.of(&[2, 1, 7]);
        assert_eq!((found.len(), &found[0].1), (1, &vec![2, 1]));
        assert_eq!(found[0].0.whole(|of| of[0]).total, 725.0);
        let part = found[0].0.part(&[1], |_| vec![(0, 5.0)]);
        assert_eq!(part.total, 5.0);
    }

    #[test]
    fn too_few_windows_are_too_few() {
        let small = clusters(&[5.0; 3], 3);
        let of = pools(&[&small, &small, &Clusters::default()]);
        assert!(of.pools().all().all(Pool::is_small));
        assert_eq!(of.pools().all().count(), 1);
        assert_eq!(ProcessClusters::default().pools().all().count(), 0);
    }

    #[test]
    fn what_comes_in_later_is_in_a_pool() {
        let mut of = pools(&[&clusters(&[5.0; 8], 8)]);
        assert_eq!(of.pools().all().count(), 1);
        of.insert(9, clusters(&[5.0; 8], 8));
        assert_eq!(of.pools().all().count(), 2);
    }
}
