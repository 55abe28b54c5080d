//! `sampler plan`: what an interval will give, and what N samples are worth. Only `--compare --pid`
//! asks samplerd.

mod compare;

use crate::args::PlanVerb;
use crate::connect::Address;
use crate::{output, page};
use anyhow::Result;
use sampler_common::encode::text::layout::paragraph;
use sampler_common::estimate::plan::bytes_seen;
use sampler_common::estimate::{Confidence, DomainError, Edges, Estimate, Plan, failed_trials};
use sampler_common::units::{exact_bytes, grouped, human_bytes, human_count};
use serde_json::{Value, json};

/// Probabilities for which the smallest number of bytes is printed that a sample hits with that
/// probability.
const COVERAGE: [f64; 4] = [0.5, 0.8, 0.95, 0.99];

/// Width of the labels.
const LABEL: usize = 10;

/// All printed figures.
pub(crate) struct Figures {
    plan: Plan,
    /// A probability, and the smallest number of bytes that are seen with it.
    coverage: [(f64, u64); COVERAGE.len()],
    failed_trials: Option<Estimate>,
}

impl Figures {
    /// Computes the figures of a command line. The error says which number is invalid.
    pub(crate) fn of(verb: &PlanVerb) -> Result<Figures, DomainError> {
        let (interval, bytes) = verb.numbers();
        let plan = Plan::new(interval, bytes, verb.size.unwrap_or(1))?;
        let mut coverage = COVERAGE.map(|probability| (probability, 0));
        for (probability, bytes) in &mut coverage {
            *bytes = bytes_seen(interval, *probability)?;
        }
        let failed_trials = verb.samples.map(|samples| {
            failed_trials(
                samples,
                verb.tail_bytes.unwrap_or(0),
                interval as f64,
                Edges::Aligned,
                verb.confidence.unwrap_or(Confidence::DEFAULT),
            )
        });
        Ok(Figures { plan, coverage, failed_trials: failed_trials.transpose()? })
    }
}

pub(crate) async fn run(given: Option<Address>, verb: &PlanVerb, json: bool) -> Result<()> {
    if verb.compare {
        return compare::run(given, verb, json).await;
    }
    let figures = Figures::of(verb)?;
    let contents = if json {
        format!("{}\n", object(verb, &figures))
    } else {
        text(verb, &figures, page::width())
    };
    output::print(contents.as_bytes())
}

/// The JSON form; its keys are stable.
fn object(verb: &PlanVerb, Figures { plan, coverage, failed_trials }: &Figures) -> Value {
    let coverage: Vec<Value> = coverage
        .iter()
        .map(|(probability, bytes)| json!({ "probability": probability, "bytes": bytes }))
        .collect();
    let (interval, bytes) = verb.numbers();
    json!({
        "interval_bytes": interval,
        "bytes": bytes,
        "size_bytes": verb.size,
        "expected_samples": plan.expected_samples(),
        "hit_probability": match verb.size {
            Some(_) => plan.allocation_hit_probability(),
            None => plan.hit_probability(),
        },
        "bytes_hit_probability": plan.hit_probability(),
        "relative_error": plan.relative_error(),
        "relative_error_if_seen": plan.relative_error_if_seen(),
        "relative_deviation": plan.relative_deviation(),
        "variance": plan.variance(),
        "variance_bound": plan.variance_bound(),
        "coverage": coverage,
        "failed_trials": failed_trials.as_ref().map(|of| json!({
            "low": of.low as u64,
            "high": of.high as u64,
            "value": of.value as u64,
            "samples": of.samples,
            "tail_bytes": verb.tail_bytes.unwrap_or(0),
            "confidence": of.confidence.level(),
        })),
    })
}

fn text(verb: &PlanVerb, figures: &Figures, width: usize) -> String {
    let Figures { plan, coverage, failed_trials } = figures;
    let (interval, bytes) = verb.numbers();
    let (interval, bytes) = (exact_bytes(interval), exact_bytes(bytes));
    let size = verb.size.map(exact_bytes);
    let pieces = size
        .as_ref()
        .map_or("small allocations".to_owned(), |size| format!("allocations of {size}"));
    let plan_line = format!("one sample per {interval}, {bytes} in {pieces}");
    let mut out = paragraph("plan", &plan_line, LABEL, width);
    out += &paragraph(
        "samples",
        &format!("{} expected", number(plan.expected_samples())),
        LABEL,
        width,
    );
    let mut seen = format!("{} chance of at least one sample", percent(plan.hit_probability()));
    if let Some(size) = size {
        let once = percent(plan.allocation_hit_probability());
        seen += &format!("; {once} for one allocation of {size}");
    }
    out += &paragraph("seen", &seen, LABEL, width);
    let error = format!(
        "±{} on average, ±{} if seen; standard deviation {}",
        percent(plan.relative_error()),
        percent(plan.relative_error_if_seen()),
        percent(plan.relative_deviation()),
    );
    out += &paragraph("error", &error, LABEL, width);
    let coverage = coverage.map(|(probability, bytes)| {
        format!("{} {}", percent(probability), human_bytes(bytes as f64))
    });
    out += &paragraph("seen from", &coverage.join(", "), LABEL, width);
    if let Some(of) = failed_trials {
        out += &trials(verb, of, width);
    }
    out
}

/// The total that the given number of samples stands for.
fn trials(verb: &PlanVerb, of: &Estimate, width: usize) -> String {
    let samples = if of.samples == 1 { "sample" } else { "samples" };
    let tail = grouped(verb.tail_bytes.unwrap_or(0));
    let [value, low, high] = [of.value, of.low, of.high].map(|bytes| grouped(bytes as u64));
    let line = format!(
        "{} {samples}: {value} bytes ({low} … {high} at {})",
        grouped(of.samples),
        percent(of.confidence.level()),
    );
    paragraph("trials", &line, LABEL, width)
        + &paragraph("", &format!("{tail} of them tail bytes"), LABEL, width)
}

/// Formats a number with three significant digits, also below 1.
fn number(value: f64) -> String {
    match value {
        999.5..1e6 => grouped(value.round() as u64),
        100.0.. => human_count(value),
        _ => digits(value),
    }
}

/// Formats a share in percent with three significant digits.
fn percent(share: f64) -> String {
    match share * 100.0 {
        // A share just below 100 % keeps its nines, so that it does not look certain.
        p if p < 100.0 && p > 99.9 => {
            let places = (-(1.0 - share).log10()).floor() as usize;
            if places > 14 { "100%".to_owned() } else { format!("{p:.places$}%") }
        }
        p if p >= 1e6 => format!("{p:.2e}%"),
        p if p >= 999.5 => format!("{}%", grouped(p.round() as u64)),
        p => format!("{}%", digits(p)),
    }
}

/// Formats a number with up to three significant digits, without trailing zeros.
fn digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if value < 1e-4 {
        return format!("{value:.2e}");
    }
    let places = (2 - value.log10().floor() as i32).max(0) as usize;
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
