//! The lines below the table: the sources of the numbers, losses, the cost, and what limits the
//! meaning of the numbers.

use super::{Page, plural};
use crate::encode::name;
use crate::encode::name::base_name;
use crate::estimate::{Estimator, plus_minus};
use crate::profile::{FunctionSum, Lost, Profile};
use crate::sampling::Strategy;
use crate::source::SourceGroup;
use crate::units::{grouped, human_bytes};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Writes the lines; `functions` are the functions that the table shows.
pub(super) fn write(
    profile: &Profile,
    page: Page,
    functions: &[FunctionSum],
    out: &mut dyn Write,
) -> io::Result<()> {
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
    if let Some(unnamed) = unnamed(profile, functions) {
        page.paragraph("note", &unnamed, false, out)?;
    }
    Ok(())
}

/// What would give names to code that is shown by its offset, for the first such file without a
/// build id. samplerd says what names the others.
fn unnamed(profile: &Profile, functions: &[FunctionSum]) -> Option<String> {
    // Names in brackets are of no file: generated code has a note of its own.
    let unnamed =
        functions.iter().filter(|of| of.frame().is_offset() && !of.module.starts_with('['));
    let has_no_id = |module: &str| {
        profile.mappings.iter().any(|of| of.path == module && of.build_id.is_empty())
    };
    let modules: BTreeSet<&str> =
        unnamed.map(|of| of.module.as_str()).filter(|module| has_no_id(module)).collect();
    let module = modules.first()?;
    let more = match modules.len() - 1 {
        0 => String::new(),
        1 => "; 1 more file has none either".to_owned(),
        more => format!("; {more} more files have none either"),
    };
    let note = format!(
        "{}+0x… has no name: the file has no build id (install or build it with symbols){more}",
        base_name(module)
    );
    Some(name::shown(&note).into_owned())
}

/// Estimator and strategy, if they are not the usual ones.
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
    // `source` says who samples where the strategy is not samplerd's.
    let usual = [Strategy::Geometric, Strategy::External];
    if profile.strategies.iter().any(|of| !usual.contains(of)) {
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
