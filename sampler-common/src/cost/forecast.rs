//! What uprobes will cost a process, from its first moments under them.

use super::{Range, plus_minus};
use crate::units::{grouped, human_cpu_time};

/// What an injected sampler costs a program (docs/benchmarks.md).
const INJECTED: &str = "2 to 7 %";

/// Whether the in-process sampler could be injected into a process instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Injection {
    /// No obstacle was found.
    Possible,
    /// The injection would be refused, for this reason.
    Refused(String),
    /// The injection was not checked, for this reason.
    Unknown(String),
}

/// The expected cost of uprobes in a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Seconds of wall time that were measured.
    pub seconds: f64,
    /// Probe hits per second of that time.
    pub hits_per_second: f64,
    /// CPU time in probes per second of that time, nanoseconds; `None` without prices.
    pub spent_ns: Option<Range>,
    /// The cheaper alternative.
    pub injection: Injection,
}

impl Forecast {
    /// The forecast in one line.
    pub fn text(&self) -> String {
        let hits = grouped(self.hits_per_second.round() as u64);
        let cost = match &self.spent_ns {
            Some(spent) => {
                format!("take {}{} of its CPU time", human_cpu_time(spent.value), plus_minus(spent))
            }
            None => "have no price".to_owned(),
        };
        let instead = match &self.injection {
            Injection::Possible => format!("--inject would cost {INJECTED}"),
            Injection::Refused(why) => format!("--inject cannot be used: {why}"),
            Injection::Unknown(why) => format!("whether --inject can be used is not known: {why}"),
        };
        format!("{hits} probe hits each second {cost} (as in its first second); {instead}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forecast_names_price_and_injection() {
        let mut forecast = Forecast {
            seconds: 1.02,
            hits_per_second: 812_345.4,
            spent_ns: Some(Range { value: 4.12e8, low: 4.0e8, high: 4.24e8 }),
            injection: Injection::Possible,
        };
        assert_eq!(
            forecast.text(),
            "812,345 probe hits each second take 412 ms ±3% of its CPU time (as in its first second); --inject would cost 2 to 7 %"
        );
        forecast.spent_ns = None;
        forecast.injection = Injection::Refused("it runs under musl".into());
        let text = forecast.text();
        assert!(text.contains(" have no price ") && text.ends_with("be used: it runs under musl"));
    }
}
