//! Accuracy beside cost: samplerd's figures of the places that ask for most against exact ones of the same run.

use crate::attached::Attached;
use crate::exact::{Exact, Names, since};
use crate::program::Program;
use crate::repetitions::Plan;
use crate::scratch::Scratch;
use crate::toolbox::ours;
use crate::workload::Workload;
use anyhow::{Result, bail};
use fastrand::Rng;
use sampler_common::estimate::{Confidence, Estimate, Moments, weighted};
use sampler_tests::Profile;
use sampler_tests::spread::Spread;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Most places looked at, and the least share of all bytes that each asks for.
const TOP: usize = 10;
const LEAST: f64 = 0.01;
/// The frame of the counting library that stands two above the caller, see `benches/exact.c`.
const MARK: &str = "exact_take";

/// Intervals, as samplerd takes them, and in bytes.
pub(crate) const INTERVALS: [(&str, u64); 3] =
    [("64KiB", 64 << 10), ("512KiB", 512 << 10), ("4MiB", 4 << 20)];

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Accuracy {
    /// The program.
    pub(crate) workload: Workload,
    /// Mean bytes between samples.
    pub(crate) interval_bytes: u64,
    /// Samples.
    pub(crate) samples: u64,
    /// The places that ask for most, the largest first.
    pub(crate) places: Vec<Place>,
    /// The same error of all bytes.
    pub(crate) total_error: f64,
    /// What samplerd counts exactly by what the library counts, minus 1.
    pub(crate) count_error: f64,
}

/// Runs every workload with the library under samplerd with each interval, in random order. What fails is told and left out.
pub(crate) fn measure(workloads: &[Workload], plan: Plan, scratch: &Scratch) -> Vec<Accuracy> {
    let each = |workload: &Workload| INTERVALS.map(|interval| (*workload, interval));
    let mut order: Vec<(Workload, (&str, u64))> = workloads.iter().flat_map(each).collect();
    let mut random = Rng::with_seed(plan.seed);
    let mut all = Vec::new();
    for repetition in 1..=plan.repetitions {
        eprintln!("accuracy: repetition {repetition} of {}", plan.repetitions);
        random.shuffle(&mut order);
        for (workload, interval) in &order {
            match run(*workload, *interval, plan.seconds, scratch) {
                Ok(accuracy) => all.push(accuracy),
                Err(error) => eprintln!("  {}, {}: {error:#}", workload.name(), interval.0),
            }
        }
    }
    all
}

/// A function that calls malloc.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    /// Its name.
    name: String,
    /// Bytes that it asked for.
    exact: f64,
    /// What samplerd says, with its interval (95 %).
    estimate: f64,
    low: f64,
    high: f64,
}

impl Place {
    /// Estimated bytes by exact ones, minus 1.
    fn error(&self) -> f64 {
        self.estimate / self.exact - 1.0
    }

    /// Whether the interval holds the exact bytes.
    fn is_covered(&self) -> bool {
        self.low <= self.exact && self.exact <= self.high
    }
}

/// The runs of a workload, by interval.
pub(crate) struct Summary {
    /// The program.
    pub(crate) workload: Workload,
    /// In the order of [`INTERVALS`].
    pub(crate) by_interval: [Pooled; INTERVALS.len()],
}

/// Runs of one workload with one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pooled {
    /// Absolute errors of the top places, of all runs.
    pub(crate) errors: Vec<f64>,
    /// Places whose interval held the exact bytes.
    pub(crate) covered: usize,
    /// Samples of each run.
    pub(crate) samples: Vec<f64>,
    /// Absolute errors of all bytes.
    pub(crate) totals: Vec<f64>,
}

/// What was measured, by workload.
pub(crate) fn summaries(all: &[Accuracy]) -> Vec<Summary> {
    let pooled = |workload: Workload, bytes: u64| {
        let mut pooled = Pooled::default();
        let of = |run: &&Accuracy| run.workload == workload && run.interval_bytes == bytes;
        for run in all.iter().filter(of) {
            pooled.errors.extend(run.places.iter().map(|place| place.error().abs()));
            pooled.covered += run.places.iter().filter(|place| place.is_covered()).count();
            pooled.samples.push(run.samples as f64);
            pooled.totals.push(run.total_error.abs());
        }
        pooled
    };
    let has = |workload: &Workload| all.iter().any(|run| run.workload == *workload);
    let summary = |workload| Summary {
        workload,
        by_interval: INTERVALS.map(|(_, bytes)| pooled(workload, bytes)),
    };
    Workload::ALL.into_iter().filter(has).map(summary).collect()
}

impl Pooled {
    /// Median and largest error, how many were covered, and of how many samples.
    pub(crate) fn text(&self) -> String {
        if self.errors.is_empty() {
            return "not run".to_owned();
        }
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        let (errors, samples) = (spread(&self.errors), spread(&self.samples).median);
        format!(
            "{:.1} % (≤ {:.0} %), {}/{} of {samples:.0}",
            100.0 * errors.median,
            100.0 * errors.max,
            self.covered,
            self.errors.len()
        )
    }
}

/// As JSON: a list of runs.
pub(crate) fn json(all: &[Accuracy]) -> Value {
    let place = |of: &Place| {
        json!({
            "name": of.name, "exact": of.exact,
            "estimate": of.estimate, "low": of.low, "high": of.high,
        })
    };
    let run = |run: &Accuracy| {
        json!({
            "workload": run.workload.name(), "interval_bytes": run.interval_bytes,
            "samples": run.samples, "places": run.places.iter().map(place).collect::<Vec<_>>(),
            "total_error": run.total_error, "count_error": run.count_error,
        })
    };
    all.iter().map(run).collect()
}

/// As a table for the terminal.
pub(crate) fn text(all: &[Accuracy]) -> String {
    let mut out = format!(
        "\nerror of the callers of malloc that ask for most (at least {:.0} % of all bytes,\n\
         at most {TOP}), against a counting library: median (largest), intervals\n\
         (95 %) that hold the exact bytes, of n samples\n",
        100.0 * LEAST
    );
    for summary in summaries(all) {
        for ((interval, _), pooled) in INTERVALS.iter().zip(&summary.by_interval) {
            // Writing to a String cannot fail.
            let _ =
                writeln!(out, "  {:<16}{interval:>8}  {}", summary.workload.name(), pooled.text());
        }
    }
    let counted = Spread::of(all.iter().map(|run| run.count_error.abs()));
    let _ = writeln!(
        out,
        "  samplerd's exact totals differ from the library's by {:.4} % (at most {:.4} %)",
        100.0 * counted.median,
        100.0 * counted.max
    );
    out
}

fn run(
    workload: Workload,
    (interval, interval_bytes): (&str, u64),
    seconds: f64,
    scratch: &Scratch,
) -> Result<Accuracy> {
    let exact = Exact::prepare(scratch)?;
    let mut program = Program::start(workload, &exact.environment(), scratch)?;
    let attached = ours(program.pid(), &["--interval", interval])?;
    let Attached::Daemon(daemon) = &attached else { bail!("samplerd is no daemon") };
    let mut names = Names::of(program.pid())?;
    let before = exact.bytes()?;
    let (start, mut cpu_s) = (Instant::now(), 0.0);
    let patience = Duration::from_secs_f64(4.0 * seconds);
    while !program.is_over() && cpu_s < seconds && start.elapsed() < patience {
        cpu_s += program.round()?.cpu_s;
    }
    let truth = names.sum(&since(&before, &exact.bytes()?));
    let profile = daemon.profile("alloc", &[])?;
    attached.detach()?;
    compare(workload, interval_bytes, &truth, &profile)
}

fn compare(
    workload: Workload,
    interval_bytes: u64,
    truth: &HashMap<String, f64>,
    profile: &Profile,
) -> Result<Accuracy> {
    let found = by_caller(profile);
    let mut places: Vec<(&String, f64)> =
        truth.iter().map(|(name, bytes)| (name, *bytes)).collect();
    places.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    places.truncate(TOP);
    let all: f64 = truth.values().sum();
    places.retain(|(_, bytes)| *bytes >= LEAST * all);
    let place = |(name, exact): (&String, f64)| {
        let moments = found.get(name).copied().unwrap_or_default();
        let Estimate { value: estimate, low, high, .. } =
            weighted(&moments, interval_bytes as f64, Confidence::DEFAULT);
        Place { name: name.clone(), exact, estimate, low, high }
    };
    Ok(Accuracy {
        workload,
        interval_bytes,
        samples: profile.samples,
        places: places.into_iter().map(place).collect(),
        total_error: profile.totals.alloc_space.value / all - 1.0,
        count_error: profile.exact_space as f64 / all - 1.0,
    })
}

/// Moments of allocated bytes by the function that called the counting library.
fn by_caller(profile: &Profile) -> HashMap<String, Moments> {
    let mut sums: HashMap<String, Moments> = HashMap::new();
    for stack in &profile.stacks {
        let mark = stack.frames.iter().rposition(|frame| frame == MARK);
        let caller = mark.and_then(|mark| stack.frames.get(mark.checked_sub(2)?));
        if let Some(caller) = caller {
            sums.entry(caller.clone()).or_default().add(&stack.quantities.alloc_space.moments);
        }
    }
    sums
}
