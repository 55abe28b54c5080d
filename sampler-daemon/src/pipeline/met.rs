//! What is to be said of the windows of some processes.

use sampler_common::duty::{Groups, LEAST_WINDOWS};
use sampler_common::estimate::Correction;
use sampler_common::units;
use std::time::Duration;

/// What windows have met of some processes.
#[derive(Default)]
pub(super) struct Met {
    windows: u32,
    /// Ticks of the windows.
    ticks: f64,
    clock: u64,
    /// Processes that no window has met, and their ticks.
    unmet: (u32, u64),
    /// Those for which none was planned.
    unplanned: (u32, u64),
    /// CPU time that each running one needs for one more window, nanoseconds.
    pub(super) periods_ns: Vec<f64>,
}

impl Met {
    pub(super) fn add(&mut self, of: Option<&Groups>, clock: u64, was_planned: bool) {
        let windows = of.map_or(0, Groups::windows);
        self.windows += windows;
        self.ticks += of.map_or(0.0, Groups::ticks);
        self.clock += clock;
        if windows == 0 {
            let of = if was_planned { &mut self.unmet } else { &mut self.unplanned };
            of.0 += 1;
            of.1 += clock;
        }
    }

    /// What is to be said of them, where a tick stands for so many nanoseconds.
    pub(super) fn notes(&self, budget: &str, unit: f64) -> Vec<String> {
        let time = |ns: f64| units::human_duration(Duration::from_nanos(ns as u64));
        let seconds = |ticks: f64| time(ticks * unit);
        let mut notes = vec![format!(
            "--max-overhead {budget}: seen in {} {}, {} of {} of the programs' own time",
            units::grouped(u64::from(self.windows)),
            if self.windows == 1 { "window" } else { "windows" },
            seconds(self.ticks),
            seconds(self.clock as f64)
        )];
        if self.windows >= LEAST_WINDOWS {
            notes.push(format!(
                "what takes less than {:.1} % of that time may have been met by no window, and is then in no interval",
                100.0 * may_be_missed(self.windows)
            ));
        }
        let (unmet, ticks) = self.unmet;
        // Of one process it is what the next line says.
        if ticks > 0 && self.windows > 0 {
            notes.push(format!(
                "no window has met {} with {} of that; those that were met stand for them",
                processes(unmet),
                seconds(ticks as f64)
            ));
        }
        let (unplanned, ticks) = self.unplanned;
        if ticks > 0 {
            notes.push(format!(
                "a lower bound: {} with {} of that gone before windows could be planned, in no number",
                processes(unplanned),
                seconds(ticks as f64)
            ));
        }
        if self.windows < LEAST_WINDOWS {
            let missing = f64::from(LEAST_WINDOWS - self.windows);
            let mean = self.periods_ns.iter().sum::<f64>() / self.periods_ns.len() as f64;
            notes.push(match self.periods_ns.is_empty() {
                false => format!(
                    "no interval yet: it takes {LEAST_WINDOWS} windows, which are there after about {} more of CPU time",
                    time(mean * missing)
                ),
                true => format!(
                    "no interval: nobody runs any more, and there were fewer than {LEAST_WINDOWS} windows (give a larger --max-overhead)"
                ),
            });
        }
        notes
    }
}

fn processes(count: u32) -> String {
    match count {
        1 => "1 process".to_owned(),
        n => format!("{} processes", units::grouped(u64::from(n))),
    }
}

/// What a program's numbers were corrected for, and what that leaves open.
pub(super) fn correction(of: &Correction, told_by: Option<&str>) -> String {
    const USUALLY: f64 = 1.96;
    let percent = |part: f64| format!("±{:.0}%", 100.0 * USUALLY * part);
    let [below, above] = [of.of_drag_below, of.of_drag].map(|part| 100.0 * USUALLY * part);
    let of_drag = match (below.round(), above.round()) {
        (below, above) if below == above => format!("±{above:.0}%"),
        _ => format!("−{below:.0} … +{above:.0}%"),
    };
    if of.traffic_bytes > 0 {
        return format!(
            "windows stand for all by what the program has read and written ({} in them), which probes do not slow down: of every interval {} is that",
            units::human_bytes(of.traffic_bytes as f64),
            of_drag
        );
    }
    if of.tallied > 0 {
        let counters = match of.tallies {
            0 | 1 => "a counter",
            _ => "counters",
        };
        let others = match of.tallies.saturating_sub(1) {
            0 => String::new(),
            others => format!("; beside {others} more"),
        };
        return format!(
            "windows stand for all by {counters} of the program's own ({}, {} in them{others}), which probes do not slow down: of every interval {of_drag} is that",
            told_by.unwrap_or("in its memory"),
            units::grouped(of.tallied),
        );
    }
    let by = match (of.marks, told_by.unwrap_or("rarer functions")) {
        (0, _) => String::new(),
        (marks, name) => {
            format!("; {} calls of {name}, probed for that, tell so", units::grouped(marks))
        }
    };
    format!(
        "behind each probe of an allocation the program's own code takes {:.0} ns ±{:.0} longer, which is corrected for: of every interval {} is that, {} the clock's{by}",
        of.allocating_ns,
        USUALLY * of.allocating_error_ns,
        of_drag,
        percent(of.of_clock)
    )
}

/// The share of its own time that a program may spend in something that none of so many windows has met, with one chance in twenty that they would.
fn may_be_missed(windows: u32) -> f64 {
    1.0 - 0.05f64.powf(f64::from(windows).recip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_says_what_it_leaves_open() {
        let of = Correction {
            allocating_ns: 60.0,
            allocating_error_ns: 25.0,
            of_drag: 0.25,
            of_drag_below: 0.15,
            of_clock: 0.02,
            ..Correction::default()
        };
        let said = correction(&of, Some("f"));
        assert!(said.contains("60 ns ±49 longer"), "{said}");
        assert!(said.ends_with("−29 … +49% is that, ±4% the clock's"), "{said}");
        let by_traffic = Correction { traffic_bytes: 3 << 20, ..of };
        let said = correction(&by_traffic, Some("f"));
        assert!(said.contains("read and written (3.00 MiB in them)"), "{said}");
        assert!(said.ends_with("of every interval −29 … +49% is that"), "{said}");
        let by_counter = Correction { tallied: 1_234, tally: 1, ..of };
        let said = correction(&by_counter, Some("app+0x80"));
        assert!(said.contains("own (app+0x80, 1,234 in them), which"), "{said}");
        let said = correction(&Correction { tallies: 3, ..by_counter }, Some("app+0x80"));
        assert!(
            said.contains(
                "by counters of the program's own (app+0x80, 1,234 in them; beside 2 more)"
            ),
            "{said}"
        );
        let of = Correction { marks: 4_711, ..of };
        let said = correction(&of, Some("f"));
        assert!(said.ends_with("; 4,711 calls of f, probed for that, tell so"), "{said}");
    }

    #[test]
    fn one_process_is_no_processes() {
        assert_eq!([1, 2, 1000].map(processes), ["1 process", "2 processes", "1,000 processes"]);
    }

    #[test]
    fn many_windows_miss_little() {
        // The rule of three: about 3/n.
        assert!((may_be_missed(300) - 0.01).abs() < 1e-4, "{}", may_be_missed(300));
        assert!((may_be_missed(8) - 0.312).abs() < 1e-3, "{}", may_be_missed(8));
    }
}
