//! Notes on processes whose allocations are probed in windows only.

use crate::estimate::{MIN_WINDOWS, PROBE_EFFECT_NS};
use crate::units::{grouped, human_duration};
use crate::windows::Budget;
use std::fmt::{self, Formatter};
use std::time::Duration;

/// What was seen in windows. Times count only the programs' own code, nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub enum Windows {
    /// The budget, the number of windows, the time in windows and all time.
    Probed(Budget, u32, [f64; 2]),
    /// Code that takes less than this share of the time may be in no window.
    MayMiss(f64),
    /// Mean factor of upper ends for the probe effect; infinite: there are no upper ends.
    ProbeEffect(f64),
    /// Processes that have fewer than [`MIN_WINDOWS`].
    TooFew {
        /// Number of processes.
        processes: u32,
        /// Time of the processes.
        own_ns: f64,
        /// Number of missing windows and the CPU time that they take; `None`: no process is
        /// running.
        missing: Option<(u32, f64)>,
    },
    /// Number and time of processes that exited before a window was planned.
    Unplanned(u32, f64),
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let time = |ns: f64| human_duration(Duration::from_nanos(ns as u64));
        match self {
            Windows::Probed(budget, windows, [seen_ns, all_ns]) => {
                let plural = if *windows == 1 { "" } else { "s" };
                let (windows, seen, all) =
                    (grouped(u64::from(*windows)), time(*seen_ns), time(*all_ns));
                write!(
                    f,
                    "--windows {budget}: probed in {windows} window{plural}, {seen} of {all} of the programs' own time"
                )
            }
            Windows::MayMiss(share) => write!(
                f,
                "code that takes less than {:.1} % of that time may be in no window, and in no interval",
                100.0 * share
            ),
            Windows::ProbeEffect(effect) if effect.is_finite() => write!(
                f,
                "upper ends allow for {PROBE_EFFECT_NS:.0} ns that a trap may add to the program's own time: as a mean × {effect:.2}"
            ),
            Windows::ProbeEffect(_) => write!(
                f,
                "no upper end: there is a trap in every {PROBE_EFFECT_NS:.0} ns or less of the program's own time, and a trap may add that much"
            ),
            Windows::TooFew { processes, own_ns, missing } => {
                match processes {
                    1 => f.write_str("no interval where 1 process has")?,
                    many => write!(f, "no interval where {many} processes have")?,
                }
                write!(f, " fewer than {MIN_WINDOWS} windows ({} of that time): ", time(*own_ns))?;
                match missing {
                    Some((missing, ns)) => {
                        write!(f, "the {missing} missing ones take about {} of CPU time", time(*ns))
                    }
                    None => f.write_str("it has exited (give a larger share)"),
                }
            }
            Windows::Unplanned(processes, own_ns) => {
                let who = if *processes == 1 { "process" } else { "processes" };
                write!(
                    f,
                    "a lower bound: {processes} {who} with {} of that time exited before a window was planned, and are in no number",
                    time(*own_ns)
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_windows_are_noted() {
        let probed = Windows::Probed(Budget::parse("1%").unwrap(), 8, [8e7, 8e9]).to_string();
        assert_eq!(
            probed,
            "--windows 1 %: probed in 8 windows, 80 ms of 8.0 s of the programs' own time"
        );
        let few =
            |processes, missing| Windows::TooFew { processes, own_ns: 4e9, missing }.to_string();
        let two = "no interval where 2 processes have fewer than 8 windows (4.0 s of that time): the 5 missing ones take about 5.0 s of CPU time";
        assert_eq!(few(2, Some((5, 5e9))), two);
        let one = "no interval where 1 process has fewer than 8 windows (4.0 s of that time): it has exited (give a larger share)";
        assert_eq!(few(1, None), one);
    }
}
