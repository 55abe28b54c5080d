//! The cost of profiling some processes since they were attached.

use super::Range;
use crate::units::{half_width, human_cpu_time};

/// Costs of one process, or of several together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// CPU time of the processes in probes, nanoseconds; `None` if unknown, for the reason in
    /// `why`.
    pub spent_ns: Option<Range>,
    /// CPU time of the processes since they were attached, with probes, nanoseconds, to the
    /// resolution of the kernel's figure; `None` if it could not be read.
    pub processor_ns: Option<Range>,
    /// CPU time that samplerd has used for the samples of the processes: their part of all its
    /// time, by the number of records read.
    pub daemon_ns: u64,
    /// Hits and samples without a price, which are not in `spent_ns`.
    pub unpriced: u64,
    /// Why something is unknown; empty otherwise.
    pub why: String,
}

/// Of many processes the kernel's figure can be wrong by many ticks, but not by half where it means
/// anything.
const MAX_PLAUSIBLE_RATIO: f64 = 1.5;

impl Report {
    /// The share of CPU time that was spent in probes, at most 1, with an interval from the ends of
    /// both figures. `None` if one of them is unknown, or if the CPU time was read too early.
    ///
    /// For a process that has ended, the last value seen is reported. That value can be less than
    /// the time in its probes alone, by more than the kernel's rounding for one process.
    pub fn share(&self) -> Option<Range> {
        let (spent, of) = (self.spent_ns?, self.processor_ns?);
        if of.value <= 0.0 || spent.low > of.high || spent.low > MAX_PLAUSIBLE_RATIO * of.value {
            return None;
        }
        let value = (spent.value / of.value).min(1.0);
        let high = if of.low > 0.0 { spent.high / of.low } else { f64::INFINITY };
        let low = (spent.low / of.high).min(value);
        Some(Range { value, low, high: high.clamp(value, 1.0) })
    }

    /// The report in one sentence.
    pub fn text(&self) -> String {
        let mut text = match self.spent_ns {
            Some(spent) => {
                let time = human_cpu_time(spent.value);
                format!("{time}{} of CPU time in probes", plus_minus(&spent))
            }
            None => format!("not known: {}", self.why),
        };
        if let (Some(share), Some(of)) = (self.share(), self.processor_ns) {
            let (share, of) = (percent(share.value), human_cpu_time(of.value));
            text += &format!(", {share} of the {of} since attach");
        }
        text +=
            &format!("; samplerd used {} for the samples", human_cpu_time(self.daemon_ns as f64));
        if self.unpriced > 0 && self.spent_ns.is_some() {
            text += &format!("; {} events without a price", crate::units::grouped(self.unpriced));
        }
        text
    }
}

/// ` ±2%`, by the larger distance to an end; empty for a value of 0.
pub fn plus_minus(range: &Range) -> String {
    match range {
        of if of.value <= 0.0 => String::new(),
        // No cost is known better than to 0.1 %.
        of => format!(" {}", half_width(of.value, of.low, of.high.max(of.value * 1.001))),
    }
}

/// `0.03%`, `4.5%`, `31%`.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent < 0.995 => format!("{percent:.2}%"),
        percent if percent < 9.95 => format!("{percent:.1}%"),
        percent => format!("{percent:.0}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(value: f64, half: f64) -> Option<Range> {
        Some(Range { value, low: value - half, high: value + half })
    }

    #[test]
    fn the_cost_report_has_a_sentence_for_every_case() {
        let mut report = Report {
            spent_ns: range(1.23e9, 2.5e7),
            processor_ns: range(2e10, 2e7),
            daemon_ns: 104_000_000,
            ..Report::default()
        };
        assert_eq!(
            report.text(),
            "1.23 s ±2% of CPU time in probes, 6.2% of the 20.0 s since attach; \
             samplerd used 104 ms for the samples"
        );
        let share = report.share().unwrap();
        assert!(share.low < 0.0615 && share.high > 0.0615 && share.high < 0.07, "{share:?}");
        report.unpriced = 12_345;
        assert!(report.text().ends_with("; 12,345 events without a price"));
        let unknown = Report { why: "no memory".into(), ..Report::default() };
        assert!(unknown.text().starts_with("not known: no memory; "));
        assert_eq!(unknown.share(), None);
        // Less than the resolution: the share may be anything up to all.
        report.processor_ns = range(1.0e7, 2e7).map(|of| Range { low: 0.0, ..of });
        report.spent_ns = range(1e6, 1e4);
        assert_eq!(report.share().map(|of| of.high), Some(1.0));
        // A little more than the whole CPU time counts as all. Far more is impossible: the CPU time
        // was read too early.
        (report.spent_ns, report.processor_ns) = (range(3.95e8, 1.2e7), range(3.7e8, 2e7));
        assert_eq!(report.share().map(|of| (of.value, of.high)), Some((1.0, 1.0)));
        (report.spent_ns, report.processor_ns) = (range(1.44e8, 1e7), range(2e7, 2e7));
        assert_eq!(report.share(), None);
        // Hundreds of processes that ran for less than a tick each.
        report.processor_ns = Some(Range { value: 2e7, low: 0.0, high: 3e9 });
        assert_eq!(report.share(), None);
        assert!(
            report.text().starts_with("144 ms ±7% of CPU time in probes; "),
            "{}",
            report.text()
        );
    }

    #[test]
    fn percentages_and_errors_are_rounded_by_their_size() {
        assert_eq!([0.0, 0.0003, 0.045, 0.31].map(percent), ["0.00%", "0.03%", "4.5%", "31%"]);
        let text = |value, half| plus_minus(&range(value, half).unwrap_or_default());
        assert_eq!(text(100.0, 0.04), " ±0.1%");
        assert_eq!([text(0.0, 0.0), text(10.0, 50.0)], ["", " ±500%"]);
    }
}
