//! Samples of a program, drawn by shortcuts that have the distribution of the kernel's decision (a
//! test compares them).

use sampler_common::estimate::{Reference, Row, Sample, Stratum};
use sampler_common::limits::CLASSES;
use sampler_common::sampling::rate::HAZARD_ONE;
use sampler_common::sampling::{Design, Strategy, class};

use super::program::INTERVAL;
use crate::common::SplitMix;

/// Calls `each` with every sample of `count` requests of `size` bytes. Gaps between samples are
/// drawn, so that the cost is that of the samples.
pub(crate) fn sample(
    design: Design,
    size: u64,
    count: u64,
    random: &mut SplitMix,
    mut each: impl FnMut(Sample),
) {
    let chance = design.inclusion(size).expect("not a stride");
    let miss = (-chance).ln_1p();
    let mut at = 0.0;
    loop {
        // With a chance of 1 the quotient is 0.
        at += (random.uniform().ln() / miss).floor() + 1.0;
        if at > count as f64 {
            return;
        }
        each(one(design, size, chance, random));
    }
}

/// The sample of a sampled request, with the number of its points or the position of its hit.
fn one(design: Design, size: u64, chance: f64, random: &mut SplitMix) -> Sample {
    let sample = Sample::new(size, design);
    match design.strategy() {
        Some(Strategy::Poisson) if chance < 1.0 => {
            let mean = design.charge(size) as f64 / HAZARD_ONE as f64;
            // The first point has a truncated exponential position. The distances of the others are
            // exponential.
            let mut left = mean + (-chance * random.uniform()).ln_1p();
            let mut hits = 1;
            loop {
                left += random.uniform().ln();
                if left < 0.0 {
                    return Sample { hits, ..sample };
                }
                hits += 1;
            }
        }
        Some(Strategy::Geometric | Strategy::Adaptive) => {
            let hazard = design.rate().raw() as f64 / HAZARD_ONE as f64;
            let offset = (-(-chance * random.uniform()).ln_1p() / hazard).floor();
            Sample { tail: Some(size - (offset as u64).min(size - 1)), ..sample }
        }
        _ => sample,
    }
}

/// Variance of the weighted estimate of one request over its square: (1 − π)/π, or one over the
/// mean number of points.
fn relative_variance(design: Design, size: u64) -> f64 {
    let chance = design.inclusion(size).expect("not a stride");
    if design.strategy() == Some(Strategy::Poisson) && chance < 1.0 {
        return HAZARD_ONE as f64 / design.charge(size) as f64;
    }
    (1.0 - chance) / chance
}

/// A program of one process: its stacks, each with sizes and counts.
pub(crate) struct Program {
    pub(crate) designs: [Design; CLASSES],
    pub(crate) stacks: Vec<Vec<(u64, u64)>>,
}

impl Program {
    /// True bytes and objects of a stack, of one size class or of all.
    pub(crate) fn truth(&self, stack: usize, of_class: Option<usize>) -> (f64, f64) {
        let sizes = self.stacks[stack].iter();
        let sizes = sizes.filter(|(size, _)| of_class.is_none_or(|of| of == class(*size)));
        sizes.fold((0.0, 0.0), |(bytes, objects), (size, count)| {
            (bytes + (size * count) as f64, objects + *count as f64)
        })
    }

    /// True variance of the weighted bytes and objects of a stack.
    pub(crate) fn variance(&self, stack: usize) -> (f64, f64) {
        self.stacks[stack].iter().fold((0.0, 0.0), |(bytes, objects), (size, count)| {
            let each = relative_variance(self.designs[class(*size)], *size) * *count as f64;
            (bytes + each * (*size as f64).powi(2), objects + each)
        })
    }

    /// The reference with exact totals and rates, without samples.
    pub(crate) fn reference(&self) -> Reference {
        let mut reference = Reference { interval_bytes: INTERVAL as f64, ..Reference::default() };
        for (size, count) in self.stacks.iter().flatten() {
            let class = class(*size);
            let totals =
                reference.strata.entry(Stratum { process: 0, class: class as u8 }).or_default();
            let exact = totals.exact.get_or_insert_default();
            *exact = (exact.0 + size * count, exact.1 + count);
            (totals.unseen_objects, totals.unseen_bytes) = self.designs[class].unseen(class);
        }
        reference
    }

    /// One run: a row for each stack. Stacks without a sample are in the process, too.
    pub(crate) fn run(&self, empty: &Reference, random: &mut SplitMix) -> (Vec<Row>, Reference) {
        let (mut rows, mut reference) = (Vec::new(), empty.clone());
        for stack in &self.stacks {
            let mut row = Row::default();
            for (size, count) in stack {
                let class = class(*size);
                let stratum = Stratum { process: 0, class: class as u8 };
                sample(self.designs[class], *size, *count, random, |sample| {
                    row.stratum(stratum).add_allocation(&sample);
                });
            }
            reference.add(&row);
            rows.push(row);
        }
        (rows, reference)
    }
}

/// The part of a row and of its reference that is in one size class.
pub(crate) fn only(class: usize, row: &Row, reference: &Reference) -> (Row, Reference) {
    let (mut of_row, mut of_all) = (Row::default(), reference.clone());
    for (stratum, moments) in
        row.strata().filter(|(stratum, _)| usize::from(stratum.class) == class)
    {
        of_row.stratum(stratum).add(moments);
    }
    of_all.strata.retain(|stratum, _| usize::from(stratum.class) == class);
    (of_row, of_all)
}
