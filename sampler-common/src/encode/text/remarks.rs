//! The lines below the table: where the numbers come from, what was lost, what it cost, and what limits what they mean.

use super::{Page, plural};
use crate::encode::name;
use crate::estimate::{Estimator, plus_minus};
use crate::profile::{Lost, Profile};
use crate::sampling::Strategy;
use crate::source::SourceGroup;
use crate::units::{grouped, human_bytes};
use std::io::{self, Write};

pub(super) fn write(profile: &Profile, page: Page, out: &mut dyn Write) -> io::Result<()> {
    if !profile.sources.is_empty() {
        page.paragraph("source", &SourceGroup::text(&profile.sources), false, out)?;
    }
    if let Some(method) = method(profile) {
        page.paragraph("method", &method, false, out)?;
    }
    let lost: Vec<String> =
        profile.lost.iter().filter(|lost| lost.samples > 0).map(lost_samples).collect();
    if !lost.is_empty() {
        page.paragraph("lost", &lost.join(", "), false, out)?;
    }
    if let Some(cost) = &profile.cost {
        page.paragraph("cost", &name::shown(&cost.text()), false, out)?;
    }
    for note in &profile.notes {
        page.paragraph("note", &name::shown(&note.to_string()), false, out)?;
    }
    Ok(())
}

/// Estimator and strategy where they are not the usual ones.
fn method(profile: &Profile) -> Option<String> {
    let names = profile.strategy_names().replace(',', ", ");
    if profile.has_stride() {
        return Some(format!("strategy {names}: biased on periodic programs, no interval"));
    }
    if profile.estimator == Estimator::Exact {
        return None;
    }
    let mut parts = Vec::new();
    if profile.estimator != Estimator::default() {
        parts.push(format!("estimator {}", profile.estimator.name()));
    }
    if profile.strategies.iter().any(|of| *of != Strategy::Geometric) {
        parts.push(format!("strategy {names}"));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn lost_samples(lost: &Lost) -> String {
    let known = lost.alloc_space.as_ref().map(|space| {
        let bytes = &space.estimate;
        let range = if bytes.has_interval() { plus_minus(bytes) } else { "no interval".into() };
        format!(" ({} {range})", human_bytes(bytes.value))
    });
    let samples = plural(lost.samples, "sample");
    let outcome = name::shown(&lost.outcome);
    format!("{outcome} {} {samples}{}", grouped(lost.samples), known.unwrap_or_default())
}
