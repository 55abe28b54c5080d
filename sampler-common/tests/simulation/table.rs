//! The table: bias, coverage and width of every pair, size mix and number of samples.

use sampler_common::estimate::{Confidence, Estimate, Estimator, Row, of_row, unsampled};
use sampler_common::sampling::{Strategy, class};

use super::draw::{Program, only};
use super::program::Mix;
use crate::common::SplitMix;

/// Expected samples of the judged stack. Other stacks have four times as many.
pub(crate) const EXPECTED: [f64; 5] = [2.0, 5.0, 10.0, 30.0, 100.0];

/// Every existing pair whose estimates have intervals.
pub(crate) fn pairs() -> impl Iterator<Item = (Strategy, Vec<Estimator>)> {
    let strategies = Strategy::ALL.into_iter().filter(|strategy| *strategy != Strategy::Stride);
    strategies.map(|strategy| {
        let exists = |estimator: &Estimator| estimator.check(strategy).is_ok();
        (strategy, Estimator::ALL.into_iter().filter(exists).collect())
    })
}

/// How often an interval covered the truth.
#[derive(Clone, Copy, Default)]
pub(crate) struct Held {
    pub(crate) runs: u32,
    pub(crate) held: u32,
}

impl Held {
    pub(crate) fn see(&mut self, estimate: &Estimate, truth: f64) {
        self.runs += 1;
        // Sums of floats: an exact total is equal up to rounding.
        let slack = 1e-9 * truth;
        let holds = estimate.low <= truth + slack && truth <= estimate.high + slack;
        self.held += u32::from(holds);
    }

    pub(crate) fn share(&self) -> f64 {
        f64::from(self.held) / f64::from(self.runs.max(1))
    }

    /// Three standard errors at `level`.
    fn slack(&self, level: f64) -> f64 {
        3.0 * (level * (1.0 - level) / f64::from(self.runs.max(1))).sqrt()
    }

    /// The violated limit at nominal 95 %, if there is one. The coverage must be at least 94 % from
    /// 10 expected samples on, and at least 90 % from 2 on. It must be at most 99 %, unless the
    /// interval may be safe (`may_be_safe`).
    pub(crate) fn judge(&self, expected: f64, may_be_safe: bool) -> Option<&'static str> {
        let least = if expected >= 10.0 { 0.94 } else { 0.90 };
        if self.runs == 0 {
            None
        } else if self.share() < least - self.slack(least) {
            Some("low")
        } else if expected >= 10.0 && !may_be_safe && self.share() > 0.99 + self.slack(0.99) {
            Some("high")
        } else {
            None
        }
    }
}

/// One line of the table.
pub(crate) struct Cell {
    pub(crate) strategy: Strategy,
    pub(crate) estimator: Estimator,
    pub(crate) mix: &'static str,
    pub(crate) expected: f64,
    /// Mean error of the bytes divided by its standard error. Only size classes that stacks can
    /// have are included, not `[unsampled]`.
    pub(crate) bias: f64,
    /// Mean share of the true bytes in the classes of `[unsampled]`.
    pub(crate) unsampled: f64,
    pub(crate) bytes: Held,
    pub(crate) objects: Held,
    /// Objects of one size class, over the classes with `class_expected` samples or more.
    pub(crate) class_objects: Held,
    pub(crate) class_expected: f64,
    /// Mean width of the bytes' interval, divided by that of the normal interval with the true
    /// standard deviation.
    pub(crate) width: f64,
    /// Whether the mean half-width is under 1 %, or most objects are certain.
    pub(crate) nearly_exact: bool,
}

impl Cell {
    /// The limits that the cell violates.
    pub(crate) fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        if let Some(how) = self.bytes.judge(self.expected, self.nearly_exact) {
            broken.push(format!("bytes {how}"));
        }
        // Counts of a class are whole numbers. With few samples of large blocks nearly all of them
        // are certain.
        if let Some(how) = self.class_objects.judge(self.class_expected, self.nearly_exact) {
            broken.push(format!("objects per class {how}"));
        }
        if self.bias.abs() > BIAS_LIMIT {
            broken.push("bias".into());
        }
        // A standard deviation from n runs has a relative error of 1/√(2n). The bound is generous
        // if the true one is used.
        let slack = 3.0 / (2.0 * f64::from(self.bytes.runs)).sqrt();
        if self.expected >= 100.0 && self.width > 1.1 * (1.0 + slack) {
            broken.push("width".into());
        }
        broken
    }

    /// The violated limits that are known to hold.
    ///
    /// One limit is known not to hold for bernoulli, which samples large blocks as rarely as small
    /// ones. A few events then carry nearly all of the bytes. Intervals of such a skewed estimate
    /// are wider than normal ones, and rarely miss below.
    pub(crate) fn unexpected(&self) -> Vec<String> {
        let mut broken = self.broken();
        if self.strategy == Strategy::Bernoulli && self.mix != "small" {
            broken.retain(|limit| limit != "width" && limit != "bytes high");
        }
        broken
    }

    pub(crate) fn line(&self) -> String {
        let per_class = match self.class_objects.runs {
            0 => "      -".to_owned(),
            _ => format!("{:7.4}", self.class_objects.share()),
        };
        format!(
            "{:10} {:14} {:6} {:4} {:+6.2} {:7.4} {per_class} {:7.4} {:6.3} {:9.3} {}",
            self.strategy.name(),
            self.estimator.name(),
            self.mix,
            self.expected,
            self.bias,
            self.bytes.share(),
            self.objects.share(),
            self.width,
            self.unsampled,
            self.broken().join(", "),
        )
    }
}

/// Head of the table.
pub(crate) const HEAD: &str = "strategy   estimator      sizes     n   bias   bytes   class objects  width unsampled broken limits";

/// The mean of an unbiased estimate exceeds this limit by chance once in 10⁷.
pub(crate) const BIAS_LIMIT: f64 = 5.5;

/// Values and intervals of one estimator over the runs.
struct Tally {
    estimator: Estimator,
    values: Vec<f64>,
    /// Estimated bytes less true bytes, without `[unsampled]`.
    errors: Vec<f64>,
    unsampled: f64,
    width: f64,
    bytes: Held,
    objects: Held,
    class_objects: Held,
}

/// The lines of a strategy, a mix and a number of samples: one for each estimator, over `runs` of
/// every seed.
pub(crate) fn cells(
    strategy: Strategy,
    estimators: &[Estimator],
    mix: &Mix,
    expected: f64,
    runs: u32,
    seeds: &[u64],
) -> Vec<Cell> {
    let designs = mix.designs(strategy);
    let counts = |expected| mix.counts(&designs, expected);
    let program = Program { designs, stacks: vec![counts(expected), counts(4.0 * expected)] };
    let (bytes, objects) = program.truth(0, None);
    let chance = |size: u64| designs[class(size)].inclusion(size).expect("not a stride");
    let (classes, class_expected) = classes(&program, chance);
    let new = |estimator: &Estimator| Tally {
        estimator: *estimator,
        values: Vec::new(),
        errors: Vec::new(),
        unsampled: 0.0,
        width: 0.0,
        bytes: Held::default(),
        objects: Held::default(),
        class_objects: Held::default(),
    };
    let mut tallies: Vec<Tally> = estimators.iter().map(new).collect();
    let empty = program.reference();
    for seed in seeds {
        let mut random = SplitMix(*seed);
        for _ in 0..runs {
            let (mut rows, reference) = program.run(&empty, &mut random);
            // The row belongs to this process, even without a sample.
            let row: Row = rows.swap_remove(0);
            for tally in &mut tallies {
                let of = |row: &Row, reference| {
                    of_row(row, reference, tally.estimator, Confidence::DEFAULT)
                };
                let whole = of(&row, &reference);
                let nobodys: f64 = unsampled(&reference, tally.estimator)
                    .strata()
                    .map(|(at, _)| program.truth(0, Some(at.class.into())).0)
                    .sum();
                tally.values.push(whole.alloc_space.value);
                tally.errors.push(whole.alloc_space.value - (bytes - nobodys));
                tally.unsampled += nobodys / bytes;
                tally.width += whole.alloc_space.high - whole.alloc_space.low;
                tally.bytes.see(&whole.alloc_space, bytes);
                tally.objects.see(&whole.alloc_objects, objects);
                for class in &classes {
                    let (row, reference) = only(*class, &row, &reference);
                    let of = of_row(&row, &reference, tally.estimator, Confidence::DEFAULT);
                    tally.class_objects.see(&of.alloc_objects, program.truth(0, Some(*class)).1);
                }
            }
        }
    }
    let likely: f64 =
        program.stacks[0].iter().map(|(size, count)| chance(*size) * *count as f64).sum();
    let cell = |tally: Tally| {
        let n = tally.values.len() as f64;
        let of = |values: &[f64]| {
            let mean = values.iter().sum::<f64>() / n;
            (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt())
        };
        // The true deviation, where it is known. The deviation of the runs does not include a block
        // that is sampled once in a million.
        let known = tally.estimator == Estimator::Weighted;
        let known = known.then(|| program.variance(0).0.sqrt());
        let deviation = known.unwrap_or_else(|| of(&tally.values).1);
        let (error, of_errors) = of(&tally.errors);
        let of_errors = known.unwrap_or(of_errors);
        let width = tally.width / n;
        Cell {
            strategy,
            estimator: tally.estimator,
            mix: mix.name,
            expected,
            bias: error / (of_errors / n.sqrt()).max(1e-12 * bytes),
            unsampled: tally.unsampled / n,
            bytes: tally.bytes,
            objects: tally.objects,
            class_objects: tally.class_objects,
            class_expected,
            width: if deviation > 0.0 { width / (2.0 * 1.959964 * deviation) } else { 1.0 },
            nearly_exact: width / 2.0 < 0.01 * bytes || likely > 0.5 * objects,
        }
    };
    tallies.into_iter().map(cell).collect()
}

/// Classes of the first stack with at least 10 expected samples, or else with 2. Returns the
/// threshold, too.
fn classes(program: &Program, chance: impl Fn(u64) -> f64) -> (Vec<usize>, f64) {
    let mut expected = std::collections::BTreeMap::<usize, f64>::new();
    for (size, count) in &program.stacks[0] {
        *expected.entry(class(*size)).or_default() += chance(*size) * *count as f64;
    }
    let of = |least: f64| -> Vec<usize> {
        expected.iter().filter(|(_, of)| **of >= least).map(|(class, _)| *class).collect()
    };
    match of(9.99) {
        none if none.is_empty() => (of(1.99), 2.0),
        some => (some, 10.0),
    }
}
