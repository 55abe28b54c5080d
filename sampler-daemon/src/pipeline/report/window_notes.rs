//! The notes on windows in a profile.

use super::gather::Gathered;
use crate::pipeline::worker::Worker;
use sampler_common::estimate::{Cluster, MIN_WINDOWS, PROBE_EFFECT_NS};
use sampler_common::units;
use sampler_common::windows::Groups;
use std::time::Duration;

/// The windows of the processes of a profile.
#[derive(Default)]
struct Coverage {
    windows: u32,
    /// Ticks in windows, and all ticks.
    seen: f64,
    all: u64,
    /// Processes with fewer than [`MIN_WINDOWS`] windows, and their ticks.
    few: (u32, u64),
    /// Windows that are missing in the process that has the fewest, and the CPU time that they take, nanoseconds; of running processes.
    missing: Option<(u32, f64)>,
    /// Processes that exited before a window was planned, and their ticks.
    unplanned: (u32, u64),
    /// Own time and traps in windows, of all processes.
    cluster: Cluster,
}

impl Coverage {
    /// Adds a process for which no window was planned.
    fn add_unplanned(&mut self, ticks: u64) {
        self.all += ticks;
        self.unplanned = (self.unplanned.0 + 1, self.unplanned.1 + ticks);
    }

    /// Adds a process; `next_ns` is the CPU time that it needs for one more window, if it is running.
    fn add(&mut self, of: Option<&Groups>, ticks: u64, next_ns: Option<f64>) {
        let windows = of.map_or(0, Groups::windows);
        self.windows += windows;
        self.seen += of.map_or(0.0, Groups::ticks);
        self.all += ticks;
        for group in of.into_iter().flat_map(Groups::iter) {
            self.cluster.own_ns += group.own_ns;
            self.cluster.traps += group.traps;
        }
        if windows < MIN_WINDOWS {
            self.few = (self.few.0 + 1, self.few.1 + ticks);
            let missing = MIN_WINDOWS - windows;
            let time = next_ns.map(|ns| (missing, f64::from(missing) * ns));
            let longer = |of: &(u32, f64)| self.missing.is_none_or(|before| before.1 < of.1);
            self.missing = time.filter(longer).or(self.missing);
        }
    }

    /// The notes, where a tick is so many nanoseconds of a program's own time.
    fn notes(&self, budget: &str, tick_ns: f64) -> Vec<String> {
        let time = |ns: f64| units::human_duration(Duration::from_nanos(ns as u64));
        let windows = units::grouped(u64::from(self.windows));
        let plural = if self.windows == 1 { "" } else { "s" };
        let mut notes = vec![format!(
            "--windows {budget}: probed in {windows} window{plural}, {} of {} of the programs' own time",
            time(self.seen * tick_ns),
            time(self.all as f64 * tick_ns)
        )];
        if self.windows >= MIN_WINDOWS {
            notes.push(format!(
                "code that takes less than {:.1} % of that time may be in no window, and in no interval",
                100.0 * may_be_missed(self.windows)
            ));
        }
        if self.windows >= MIN_WINDOWS && self.cluster.traps > 0.0 {
            let effect = self.cluster.effect();
            notes.push(match effect.is_finite() {
                true => format!(
                    "upper ends allow for {PROBE_EFFECT_NS:.0} ns that a trap may add to the program's own time: as a mean × {effect:.2}"
                ),
                false => format!(
                    "no upper end: there is a trap in every {PROBE_EFFECT_NS:.0} ns or less of the program's own time, and a trap may add that much"
                ),
            });
        }
        let (few, ticks) = self.few;
        if few > 0 {
            let who = if few == 1 { "1 process has" } else { &*format!("{few} processes have") };
            let of = time(ticks as f64 * tick_ns);
            let until = match self.missing {
                Some((missing, ns)) => {
                    format!("the {missing} missing ones take about {} of CPU time", time(ns))
                }
                None => "it has exited (give a larger share)".to_owned(),
            };
            notes.push(format!(
                "no interval where {who} fewer than {MIN_WINDOWS} windows ({of} of that time): {until}"
            ));
        }
        let (unplanned, ticks) = self.unplanned;
        if ticks > 0 {
            let who = if unplanned == 1 { "process" } else { "processes" };
            notes.push(format!(
                "a lower bound: {unplanned} {who} with {} of that time exited before a window was planned, and are in no number",
                time(ticks as f64 * tick_ns)
            ));
        }
        notes
    }
}

/// The share of its own time that code may take which no window has, at a confidence of 95 %.
fn may_be_missed(windows: u32) -> f64 {
    1.0 - 0.05f64.powf(f64::from(windows).recip())
}

impl Worker {
    /// The notes on windows.
    pub(in crate::pipeline) fn window_notes(&self, gathered: &Gathered) -> Vec<String> {
        let (Some(budget), Some(clock)) = (self.config.windows, self.window_clock()) else {
            return Vec::new();
        };
        let mut coverage = Coverage::default();
        for id in &gathered.processes {
            let (groups, ticks) = (self.ingest.window_samples.groups(*id), self.ticks_of(*id));
            match self.expansion(*id).is_none() {
                true => coverage.add_unplanned(ticks),
                false => coverage.add(groups, ticks, self.next_window_ns(*id)),
            }
        }
        coverage.notes(&budget.to_string(), clock.own_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_common::windows::Group;

    fn groups(windows: u32) -> Groups {
        let mut groups = Groups::default();
        for _ in 0..windows {
            groups.add(&Group { length: 100.0, ..Group::default() }, 0.01);
        }
        groups
    }

    #[test]
    fn too_few_windows_are_said() {
        let mut coverage = Coverage::default();
        coverage.add(Some(&groups(8)), 800, Some(1e9));
        let [covered, missed] = &coverage.notes("1 %", 1e7)[..] else { panic!("two notes") };
        assert_eq!(
            covered,
            "--windows 1 %: probed in 8 windows, 80 ms of 8.0 s of the programs' own time"
        );
        assert!(missed.contains("less than 31.2 %"), "{missed}");
        coverage.add(Some(&groups(3)), 300, Some(1e9));
        coverage.add(None, 100, Some(0.25e9));
        let notes = coverage.notes("1 %", 1e7);
        let expected = "no interval where 2 processes have fewer than 8 windows (4.0 s of that time): the 5 missing ones take about 5.0 s of CPU time";
        assert_eq!(notes[2], expected);
        let mut gone = Coverage::default();
        gone.add(None, 100, None);
        assert!(gone.notes("1 %", 1e7)[1].contains("1 process has fewer than 8 windows (1.0 s"));
    }

    #[test]
    fn many_windows_miss_little() {
        // The rule of three: about 3/n.
        assert!((may_be_missed(300) - 0.01).abs() < 1e-4, "{}", may_be_missed(300));
    }
}
