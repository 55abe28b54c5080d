//! Accuracy of samplerd: compares its figures of the places that ask for most with exact ones of
//! the same run.

use crate::attached::Attached;
use crate::exact::{Exact, Names, since};
use crate::layout::Layout;
use crate::program::Program;
use crate::repetitions::Plan;
use crate::scratch::Scratch;
use crate::toolbox::ours;
use crate::workload::Workload;
use anyhow::{Result, bail};
use fastrand::Rng;
use sampler_common::estimate::{Confidence, Estimate, Moments, weighted};
use sampler_tests::Profile;
use sampler_tests::progress::Progress;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Largest number of places compared, and the least share of all bytes that each place asks for.
pub(crate) const TOP: usize = 10;
pub(crate) const MIN_SHARE: f64 = 0.01;
/// The frame of the counting library two frames above the caller, see `benches/exact.c`.
const MARK: &str = "exact_take";

/// Intervals, as samplerd's options and in bytes.
pub(crate) const INTERVALS: [(&str, u64); 3] =
    [("64KiB", 64 << 10), ("512KiB", 512 << 10), ("4MiB", 4 << 20)];

/// One run of a workload with one interval.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Accuracy {
    /// The program.
    pub(crate) workload: Workload,
    /// Mean bytes between samples.
    pub(crate) interval_bytes: u64,
    /// Number of samples.
    pub(crate) samples: u64,
    /// The places that ask for most, the largest first.
    pub(crate) places: Vec<Place>,
    /// Relative error of the estimate of all bytes.
    pub(crate) total_error: f64,
    /// samplerd's exact count divided by the library's count, minus 1.
    pub(crate) count_error: f64,
}

/// Runs every workload with the library under samplerd with each interval, in random order.
/// A run that fails is printed and left out.
pub(crate) fn measure(workloads: &[Workload], plan: Plan, scratch: &Scratch) -> Vec<Accuracy> {
    let each = |workload: &Workload| INTERVALS.map(|interval| (*workload, interval));
    let mut order: Vec<(Workload, (&str, u64))> = workloads.iter().flat_map(each).collect();
    let mut random = Rng::with_seed(plan.seed);
    let mut all = Vec::new();
    let progress = Progress::of("accuracy", plan.repetitions as usize * order.len());
    for _ in 0..plan.repetitions {
        random.shuffle(&mut order);
        for (workload, interval) in &order {
            match run(*workload, *interval, plan, scratch) {
                Ok(accuracy) => all.push(accuracy),
                Err(error) => {
                    progress.say(format_args!("{}, {}: {error:#}", workload.name(), interval.0));
                }
            }
            progress.done();
        }
    }
    all
}

/// A function that calls malloc.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    /// The function's name.
    pub(crate) name: String,
    /// Bytes that the function asked for, exactly.
    pub(crate) exact: f64,
    /// Estimate of samplerd.
    pub(crate) estimate: f64,
    /// Lower end of the estimate's interval (95 %).
    pub(crate) low: f64,
    /// Upper end of the estimate's interval.
    pub(crate) high: f64,
}

impl Place {
    /// Estimated bytes divided by exact bytes, minus 1.
    pub(crate) fn error(&self) -> f64 {
        self.estimate / self.exact - 1.0
    }

    /// Whether the interval holds the exact bytes.
    pub(crate) fn is_covered(&self) -> bool {
        self.low <= self.exact && self.exact <= self.high
    }
}

fn run(
    workload: Workload,
    (interval, interval_bytes): (&str, u64),
    plan: Plan,
    scratch: &Scratch,
) -> Result<Accuracy> {
    let exact = Exact::prepare(scratch)?;
    let mut program =
        Program::start(workload, plan.templates, Layout::Random, &exact.environment(), scratch)?;
    let attached = ours(program.pid(), &["--interval", interval])?;
    let Attached::Daemon(daemon) = &attached else { bail!("samplerd is no daemon") };
    let mut names = Names::of(program.pid())?;
    let before = exact.bytes()?;
    let (start, mut cpu_s) = (Instant::now(), 0.0);
    let patience = Duration::from_secs_f64(4.0 * plan.seconds);
    while !program.is_over() && cpu_s < plan.seconds && start.elapsed() < patience {
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
    places.retain(|(_, bytes)| *bytes >= MIN_SHARE * all);
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
