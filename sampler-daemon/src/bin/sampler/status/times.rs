//! Durations: histograms of the daemon.

use sampler_common::units::{grouped, human_cpu_time};
use sampler_daemon::rpc::v1::Histogram;
use serde_json::{Value, json};

/// The share of values that lie below the shown time.
const QUANTILE: f64 = 0.99;

/// A histogram in JSON: upper bounds, with the number of values up to each bound.
pub(super) fn object(of: &Histogram) -> Value {
    let buckets = of.bounds.iter().zip(&of.cumulative);
    json!({
        "name": of.name,
        "question": Some(&of.question).filter(|question| !question.is_empty()),
        "count": of.count,
        "sum": of.sum,
        "buckets": buckets.map(|(bound, count)| json!([bound, count])).collect::<Vec<_>>(),
    })
}

/// All durations in one sentence; `None` if nothing has been timed yet.
pub(super) fn text(all: &[Histogram]) -> Option<String> {
    let times = all.iter().filter(|of| of.count > 0 && of.name.ends_with("_seconds"));
    let each = times.filter_map(|of| {
        let what = match of.question.as_str() {
            "" => "samples stored".to_owned(),
            question => format!("{question} answered"),
        };
        let count = grouped(of.count);
        let time = |seconds: f64| human_cpu_time(seconds * 1e9);
        Some(match within(of) {
            Some(bound) => format!("{what} within {} ({count})", time(bound)),
            None => format!("{what} after more than {} ({count})", time(*of.bounds.last()?)),
        })
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| format!("{} (99 % of them)", each.join(", ")))
}

/// Returns the smallest bound that at least [`QUANTILE`] of the values keep; `None` if there is no
/// such bound.
fn within(of: &Histogram) -> Option<f64> {
    let enough = of.count as f64 * QUANTILE;
    let kept = of.bounds.iter().zip(&of.cumulative).find(|(_, count)| **count as f64 >= enough);
    kept.map(|(bound, _)| *bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(question: &str, cumulative: [u64; 2], count: u64) -> Histogram {
        let (bounds, cumulative) = (vec![0.01, 1.0], cumulative.to_vec());
        let name = "x_seconds".to_owned();
        Histogram { name, question: question.to_owned(), bounds, cumulative, count, sum: 1.0 }
    }

    #[test]
    fn latencies_are_printed_in_a_sentence() {
        let all = [
            histogram("", [99, 100], 100),
            histogram("profile", [0, 3], 3),
            histogram("status", [0, 0], 2),
            histogram("metrics", [0, 0], 0),
        ];
        assert_eq!(
            text(&all).unwrap(),
            "samples stored within 10.0 ms (100), profile answered within 1.00 s (3), \
             status answered after more than 1.00 s (2) (99 % of them)"
        );
        assert_eq!(text(&[]), None);
        assert_eq!(object(&all[0])["buckets"][1], json!([1.0, 100]));
    }
}
