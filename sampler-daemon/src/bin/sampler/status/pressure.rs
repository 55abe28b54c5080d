//! Back-pressure: the processes whose interval is or was raised, why, how often and since when.

use sampler_common::units::{grouped, human_duration};
use sampler_daemon::rpc::v1::{Pressure, ProcessInterval, StatusResponse};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum number of processes with their own line. Further processes are only counted.
const SHOWN: usize = 8;

/// The back-pressure on a process in JSON.
pub(super) fn object(of: &Pressure) -> Value {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    json!({
        "factor": of.factor,
        "limit": some(&of.limit),
        "raises": of.raises,
        "since_unix_ns": Some(of.since_unix_ns).filter(|time| *time > 0),
        "ring_raises": of.ring_raises,
        "ring_factor": of.ring_factor,
        "ring_fills": of.ring_fills,
    })
}

/// A limit in JSON: null if there is none.
pub(super) fn limit(samples: f64) -> Option<f64> {
    Some(samples).filter(|samples| *samples > 0.0)
}

/// The limits in words.
pub(super) fn limits(status: &StatusResponse) -> String {
    let (each, preloaded) = (status.max_samples_per_process, status.max_samples_per_preloaded);
    let preloaded = if preloaded == each { 0.0 } else { preloaded };
    let limits = [
        (status.max_samples_per_second, "in all (--max-samples-per-second)"),
        (each, "of each process (--max-samples-per-process)"),
        (preloaded, "of each preloaded process (--max-samples-per-process)"),
    ];
    let limits = limits.into_iter().filter(|(samples, _)| *samples > 0.0);
    let each: Vec<String> = limits
        .map(|(samples, what)| format!("{} samples/s {what}", grouped(samples as u64)))
        .collect();
    each.join(", ")
}

/// Returns a line for each process whose interval is or was raised; currently raised ones first.
pub(crate) fn raised<'a>(intervals: impl Iterator<Item = &'a ProcessInterval>) -> Vec<String> {
    let raised = intervals.filter_map(|of| Some((of, of.pressure.as_ref()?)));
    let mut raised: Vec<(&ProcessInterval, &Pressure)> = raised.collect();
    raised.sort_by(|(_, a), (_, b)| b.factor.total_cmp(&a.factor));
    let more = raised.len().saturating_sub(SHOWN);
    let mut lines: Vec<String> =
        raised.into_iter().take(SHOWN).map(|(of, pressure)| sentence(of.pid, pressure)).collect();
    if more > 0 {
        lines.push(format!("and of {more} other processes (--json lists them)"));
    }
    lines
}

fn sentence(pid: u32, of: &Pressure) -> String {
    let mut text = format!("pid {pid}: ");
    text += &match (of.factor > 1.0, of.raises) {
        (true, _) => format!("{} times the interval that was asked for", short(of.factor)),
        (false, 0) => "not for a limit".to_owned(),
        (false, _) => "no longer".to_owned(),
    };
    if of.raises > 0 {
        let whose = match of.limit.as_str() {
            "daemon" => "its share of the limit",
            _ => "its limit",
        };
        text += &format!(", above {whose} {}", times(of.raises));
        let since = UNIX_EPOCH + Duration::from_nanos(of.since_unix_ns);
        if let Ok(ago) = SystemTime::now().duration_since(since) {
            text += &format!(", first {} ago", human_duration(ago));
        }
    }
    if of.ring_raises > 0 {
        let now = if of.ring_fills { ", also now" } else { "" };
        text += &format!(
            "; for a filling ring {}, up to {} times{now}",
            times(of.ring_raises),
            grouped(of.ring_factor as u64)
        );
    }
    text
}

/// Formats a factor with few digits.
fn short(factor: f64) -> String {
    if factor < 10.0 { format!("{factor:.1}") } else { grouped(factor.round() as u64) }
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{} times", grouped(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pid: u32, factor: f64, raises: u64, ring_raises: u64) -> ProcessInterval {
        let pressure = Pressure {
            factor,
            limit: "daemon".into(),
            raises,
            since_unix_ns: 1,
            ring_raises,
            ring_factor: 64.0,
            ring_fills: true,
        };
        ProcessInterval { pid, pressure: Some(pressure), ..ProcessInterval::default() }
    }

    #[test]
    fn each_raise_is_printed_with_its_reason() {
        let quiet = ProcessInterval { pid: 9, ..ProcessInterval::default() };
        let lines = raised([of(1, 1.0, 0, 3), of(2, 2.828, 1, 0), quiet].iter());
        assert_eq!(lines.len(), 2);
        let start = "pid 2: 2.8 times the interval that was asked for, above its share of the limit once, first ";
        assert!(lines[0].starts_with(start), "{}", lines[0]);
        assert_eq!(
            lines[1],
            "pid 1: not for a limit; for a filling ring 3 times, up to 64 times, also now"
        );
        let many: Vec<_> = (0..20).map(|pid| of(pid, 2.0, 1, 0)).collect();
        assert_eq!(raised(many.iter()).len(), SHOWN + 1);
    }

    #[test]
    fn limits_are_named_by_their_flags() {
        let status = StatusResponse { max_samples_per_second: 25_000.0, ..Default::default() };
        assert_eq!(limits(&status), "25,000 samples/s in all (--max-samples-per-second)");
        assert_eq!(limits(&StatusResponse::default()), "");
        let mut status =
            StatusResponse { max_samples_per_preloaded: 1_000.0, ..Default::default() };
        assert_eq!(
            limits(&status),
            "1,000 samples/s of each preloaded process (--max-samples-per-process)"
        );
        status.max_samples_per_process = 1_000.0;
        assert_eq!(limits(&status), "1,000 samples/s of each process (--max-samples-per-process)");
    }
}
