//! Groups of windows of a process. With groups, a row needs the same memory after a day as after a
//! minute.
//!
//! The n-th window is in the group n modulo [`MAX_GROUPS`]: each group is a sample of the whole
//! time (interpenetrating samples: P. C. Mahalanobis, Journal of the Royal Statistical Society 109,
//! 1946; Cochran, chapter 13.15). The variance between groups is that of their sum.

use crate::estimate::{Cluster, Clusters};
use crate::limits::CLASSES;

/// Most groups of a process.
pub const MAX_GROUPS: usize = 128;

/// Windows of a process: exact totals of one window, or sums over several windows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Ticks that the windows stand for.
    pub length: f64,
    /// Bytes by size class; in sums the bytes of each window are divided by its probability κ.
    pub bytes: [f64; CLASSES],
    /// Objects by size class; in sums the objects of each window are divided by its probability κ.
    pub objects: [f64; CLASSES],
    /// The program's own time in the windows, nanoseconds.
    pub own_ns: f64,
    /// Traps in the windows: calls, and returns of followed calls.
    pub traps: f64,
}

impl Group {
    /// Adds another group, with bytes and objects divided by `kappa`.
    fn add(&mut self, other: &Group, kappa: f64) {
        self.length += other.length;
        self.own_ns += other.own_ns;
        self.traps += other.traps;
        self.bytes.iter_mut().zip(other.bytes).for_each(|(to, from)| *to += from / kappa);
        self.objects.iter_mut().zip(other.objects).for_each(|(to, from)| *to += from / kappa);
    }
}

/// The groups of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Groups {
    groups: Vec<Group>,
    windows: u32,
    /// Ticks of all windows.
    ticks: f64,
}

impl Groups {
    /// Adds an ended window with its probability κ; returns the number of its group.
    pub fn add(&mut self, window: &Group, kappa: f64) -> u16 {
        self.ticks += window.length * kappa;
        let group = self.windows as usize % MAX_GROUPS;
        self.windows += 1;
        self.group(group).add(window, kappa);
        group as u16
    }

    /// Adds the windows of another process. Its group g becomes the group g + n modulo
    /// [`MAX_GROUPS`]; n is returned.
    pub fn fold(&mut self, other: &Groups) -> u16 {
        let shift = self.windows as usize % MAX_GROUPS;
        for (number, group) in other.groups.iter().enumerate() {
            self.group((shift + number) % MAX_GROUPS).add(group, 1.0);
        }
        self.windows += other.windows;
        self.ticks += other.ticks;
        shift as u16
    }

    fn group(&mut self, number: usize) -> &mut Group {
        if self.groups.len() <= number {
            self.groups.resize(number + 1, Group::default());
        }
        &mut self.groups[number]
    }

    /// Adds ticks of a stratum whose window never came. Negative ticks: the last stratum was cut
    /// short.
    pub fn lengthen(&mut self, ticks: f64) {
        self.group(self.last()).length += ticks;
    }

    /// Number of the group of the last window.
    fn last(&self) -> usize {
        self.windows.saturating_sub(1) as usize % MAX_GROUPS
    }

    /// The groups in order of their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Group> {
        self.groups.iter()
    }

    /// Windows in all groups.
    pub fn windows(&self) -> u32 {
        self.windows
    }

    /// Ticks of all strata.
    pub fn length(&self) -> f64 {
        self.groups.iter().map(|group| group.length).sum()
    }

    /// Ticks of all windows.
    pub fn ticks(&self) -> f64 {
        self.ticks
    }

    /// The groups as clusters that stand for all progress. All progress is `factor` times as long
    /// as the strata and `tail` ticks together.
    pub fn clusters(&self, factor: f64, tail: f64) -> Clusters {
        let cluster = |(at, group): (usize, &Group)| Cluster {
            length: (group.length + if at == self.last() { tail } else { 0.0 }).max(0.0) * factor,
            total: [&group.bytes, &group.objects].map(|of| of.iter().sum::<f64>() * factor),
            own_ns: group.own_ns,
            traps: group.traps,
        };
        let groups = self.groups.iter().enumerate().map(cluster).collect();
        Clusters { groups, windows: self.windows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(length: f64, bytes: f64) -> Group {
        let mut window = Group { length, own_ns: 1e6, traps: 10.0, ..Group::default() };
        window.bytes[3] = bytes;
        window.objects[3] = 1.0;
        window
    }

    fn bytes(of: &Groups) -> Vec<f64> {
        of.iter().map(|group| group.bytes[3]).collect()
    }

    #[test]
    fn the_sums_stay_however_many_windows_there_are() {
        let mut groups = Groups::default();
        let mut row = vec![0.0; MAX_GROUPS];
        for number in 0..1000 {
            let of = f64::from(number);
            row[usize::from(groups.add(&window(100.0 + of, of), 0.5))] += of * 2.0;
        }
        assert_eq!((groups.windows(), bytes(&groups)), (1000, row));
        assert_eq!(groups.length(), 100.0 * 1000.0 + 499_500.0);
        assert_eq!(groups.iter().map(|group| group.traps).sum::<f64>(), 10_000.0);
        assert_eq!(groups.ticks(), groups.length() / 2.0);
    }

    #[test]
    fn processes_fold_with_the_end_of_their_last_stratum() {
        let (mut sum, mut gone) = (Groups::default(), Groups::default());
        gone.lengthen(7.0);
        assert_eq!((gone.length(), gone.windows(), gone.ticks()), (7.0, 0, 0.0));
        assert_eq!(sum.fold(&gone), 0);
        assert_eq!(sum.add(&window(100.0, 3.0), 0.5), 0);
        let mut other = Groups::default();
        other.add(&window(100.0, 4.0), 0.5);
        other.add(&window(100.0, 5.0), 0.5);
        other.lengthen(-30.0);
        assert_eq!(sum.fold(&other), 1);
        assert_eq!((sum.length(), sum.windows(), sum.ticks()), (277.0, 3, 150.0));
        assert_eq!(bytes(&sum), [6.0, 8.0, 10.0]);
    }

    #[test]
    fn clusters_stand_for_all_progress() {
        let mut groups = Groups::default();
        groups.add(&window(100.0, 3.0), 0.5);
        groups.add(&window(50.0, 4.0), 0.5);
        let of = groups.clusters(2.0, 10.0);
        assert_eq!(of.windows, 2);
        assert_eq!(of.groups.iter().map(|of| of.length).collect::<Vec<_>>(), [200.0, 120.0]);
        let totals: Vec<_> = of.groups.iter().map(|of| of.total).collect();
        assert_eq!(totals, [[12.0, 4.0], [16.0, 4.0]]);
    }
}
