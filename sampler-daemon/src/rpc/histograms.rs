//! Histograms in the protocol's form.

use super::v1;
use crate::pipeline::Histogram;

/// The daemon's histograms.
pub(super) fn all(
    answers: &[(&'static str, Histogram)],
    delays: &Histogram,
    ring_fill: &Histogram,
) -> Vec<v1::Histogram> {
    let mut all = vec![
        to_wire("sample_delay_seconds", "", delays),
        to_wire("ring_fill_ratio", "", ring_fill),
    ];
    let answers = answers.iter();
    all.extend(answers.map(|(of, times)| to_wire("answer_duration_seconds", of, times)));
    all
}

fn to_wire(name: &str, question: &str, of: &Histogram) -> v1::Histogram {
    let (bounds, cumulative) = of.cumulative().into_iter().unzip();
    v1::Histogram {
        name: name.to_owned(),
        question: question.to_owned(),
        bounds,
        cumulative,
        count: of.count(),
        sum: of.sum(),
    }
}
