//! Two profiles compared, stack by stack.
//!
//! Stacks are the same if their functions are the same. Pid and addresses may differ: between two
//! runs of a program, or between two processes of one profile. Rows of one profile with the same
//! functions are added, by their moments.
//!
//! All numbers are the weighted estimates of the samples, whatever estimator the profiles used. Two
//! profiles that were calibrated to different totals are comparable stack by stack only by their
//! samples alone.

mod growth;
mod judge;
mod relation;

pub use growth::growth;
pub use judge::{Judge, Rows, rows};
pub use relation::{Relation, parted, span};

use crate::estimate::{Confidence, Difference, Moments, Row, Side, benjamini_hochberg, weighted};
use crate::profile::{Kind, Profile, Quantities};
use std::collections::BTreeMap;

/// Stacks with fewer samples on both sides are shown, but not tested.
pub const MIN_SAMPLES: u64 = 5;

/// Share of the significant stacks that may be due to chance.
pub const FALSE_DISCOVERY_RATE: f64 = 0.05;

/// What to compare, and how.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// Name of the first profile for people.
    pub a_name: &'a str,
    /// The first profile, from which the difference counts.
    pub a: &'a Profile,
    /// Name of the second profile for people.
    pub b_name: &'a str,
    /// The second profile.
    pub b: &'a Profile,
    /// Confidence of each interval by itself.
    pub confidence: Confidence,
    /// Rates (per second) in place of totals.
    pub per_second: bool,
    /// Whether the profiles share no sample, whatever times and pids say: profiles of two machines.
    pub independent: bool,
}

/// Profiles that cannot be compared; one line with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotCompare {
    /// One profile is of allocated bytes, the other of held bytes.
    #[error("{a} is a profile of {a_kind} bytes and {b} of {b_kind} bytes (give two of one kind)")]
    Kinds {
        /// Name of the first profile.
        a: String,
        /// Kind of the first profile.
        a_kind: &'static str,
        /// Name of the second profile.
        b: String,
        /// Kind of the second profile.
        b_kind: &'static str,
    },
    /// Stacks are missing that may be in the other profile.
    #[error("{name} holds {stacks} of {total} stacks (make it without --top)")]
    Cut {
        /// Name of the profile.
        name: String,
        /// Stacks in it.
        stacks: usize,
        /// Stacks before the cut.
        total: u64,
    },
    /// Some samples are in both profiles, and it is unknown which.
    #[error(
        "{a} and {b} share samples: both are of pid {pid}, at times that overlap (give windows apart, such as 10m..5m \
         and 5m, or --independent if they are of two machines)"
    )]
    Overlap {
        /// Name of the first profile.
        a: String,
        /// Name of the second profile.
        b: String,
        /// A process that is in both profiles.
        pid: u32,
    },
    /// The second profile is the beginning of the first.
    #[error("{a} is the later of the two, and has all that {b} has (swap them)")]
    Swapped {
        /// Name of the first profile.
        a: String,
        /// Name of the second profile.
        b: String,
    },
    /// The profiles are exact counts.
    #[error(
        "profiles of kind mapped are counted, not sampled: there is nothing to test (subtract them)"
    )]
    Counted,
    /// Held bytes of the allocations of a window. Two such profiles do not show how held memory has
    /// grown.
    #[error(
        "{0}: kind live of a window is what is held of the window's own allocations; two windows do not show growth \
         (ask sampler leaks --over TIME, or compare live profiles since attach that were saved at two times)"
    )]
    HeldOfWindow(String),
    /// Profiles seen in windows of a budget: the moments do not contain the variance between
    /// windows.
    #[error(
        "{0} was seen in short windows only (samplerd --windows): differences between windows would be missing from the test (compare profiles of a samplerd without --windows)"
    )]
    Windows(String),
    /// A rate of a quantity that has none.
    #[error("{0} (leave out --per-second)")]
    NoRate(&'static str),
    /// A rate over no time.
    #[error("{0} took no time (leave out --per-second)")]
    NoTime(String),
}

/// One quantity on both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// The difference of the quantity.
    pub difference: Difference,
    /// p, adjusted for all tested stacks; `None` if this stack was not tested.
    pub adjusted: Option<f64>,
}

impl Compared {
    /// Whether the difference is significant.
    pub fn is_significant(&self) -> bool {
        self.adjusted.is_some_and(|p| p <= FALSE_DISCOVERY_RATE)
    }
}

/// A stack on both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedStack {
    /// Function names, root first.
    pub frames: Vec<String>,
    /// Samples in a and in b.
    pub samples: [u64; 2],
    /// Bytes of the profile's kind.
    pub space: Compared,
    /// Objects of the profile's kind.
    pub objects: Compared,
}

/// A description of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Name of the profile.
    pub name: String,
    /// Start and end, nanoseconds since the Unix epoch.
    pub span_unix_ns: [u64; 2],
    /// Mean bytes between samples.
    pub interval_bytes: u64,
    /// Samples of the profile's kind.
    pub samples: u64,
}

impl About {
    /// Length of the time, nanoseconds.
    pub fn duration_ns(&self) -> u64 {
        self.span_unix_ns[1].saturating_sub(self.span_unix_ns[0])
    }
}

/// Two profiles compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Kind of both profiles.
    pub kind: Kind,
    /// Confidence of each interval.
    pub confidence: Confidence,
    /// Whether the numbers are per second.
    pub per_second: bool,
    /// How the samples of the profiles relate.
    pub relation: Relation,
    /// The two sides.
    pub sides: [About; 2],
    /// Difference of the bytes of all stacks.
    pub space: Difference,
    /// Difference of the objects of all stacks.
    pub objects: Difference,
    /// Number of tested stacks.
    pub tested: usize,
    /// The stacks: significant ones first, then by the size of the difference.
    pub stacks: Vec<ComparedStack>,
}

impl Comparison {
    /// Number of stacks with significantly more or fewer bytes.
    pub fn significant(&self) -> usize {
        self.stacks.iter().filter(|stack| stack.space.is_significant()).count()
    }
}

/// Compares two profiles.
///
/// # Errors
/// If the profiles cannot be compared; [`CannotCompare`] has the reasons.
pub fn compare(question: &Question<'_>) -> Result<Comparison, CannotCompare> {
    let Question { a, b, confidence, per_second, .. } = *question;
    let judge = Judge::new(question)?;
    let relation = judge.relation;
    let sides = [(question.a_name, a), (question.b_name, b)].map(|(name, profile)| About {
        name: name.to_owned(),
        span_unix_ns: relation::span(profile),
        interval_bytes: profile.interval_bytes,
        samples: moments(&profile.totals, profile.kind)[0].samples,
    });
    let of = |pair: [Moments; 2]| judge.difference(&pair);
    let totals = [a, b].map(|of| changed(of, &of.reference.row(), &of.totals));
    let pair = |index: usize| [totals[0][index], totals[1][index]];
    let mut stacks: Vec<ComparedStack> = joined(a, b)
        .into_iter()
        .filter(|(_, [space, _])| space.iter().any(|side| side.samples > 0))
        .map(|(frames, [space, objects])| ComparedStack {
            frames: frames.into_iter().map(str::to_owned).collect(),
            samples: space.map(|side| side.samples),
            space: Compared { difference: of(space), adjusted: None },
            objects: Compared { difference: of(objects), adjusted: None },
        })
        .collect();
    let tested = adjust(&mut stacks, relation);
    stacks.sort_by(|x, y| {
        let order =
            |of: &ComparedStack| (!of.space.is_significant(), of.space.difference.value.abs());
        let ((x_chance, x_size), (y_chance, y_size)) = (order(x), order(y));
        x_chance
            .cmp(&y_chance)
            .then(y_size.total_cmp(&x_size))
            .then_with(|| x.frames.cmp(&y.frames))
    });
    Ok(Comparison {
        kind: a.kind,
        confidence,
        per_second,
        relation,
        sides,
        space: of(pair(0)),
        objects: of(pair(1)),
        tested,
        stacks,
    })
}

/// Bytes and objects of `kind`.
fn moments(of: &Quantities, kind: Kind) -> [Moments; 2] {
    [of.space(kind).moments, of.objects(kind).moments]
}

/// Bytes and objects of a row, with room for allocations at rates that have changed.
fn changed(profile: &Profile, row: &Row, of: &Quantities) -> [Moments; 2] {
    let [space, objects] = moments(of, profile.kind);
    let is_held = profile.kind != Kind::Alloc;
    let with_next =
        |of: &Moments, is_bytes| profile.reference.with_next(row, of, is_bytes, is_held);
    [with_next(&space, true), with_next(&objects, false)]
}

/// Stacks of both profiles by their functions: bytes of a and b, objects of a and b.
fn joined<'p>(a: &'p Profile, b: &'p Profile) -> BTreeMap<Vec<&'p str>, [[Moments; 2]; 2]> {
    let mut stacks: BTreeMap<Vec<&str>, [[Moments; 2]; 2]> = BTreeMap::new();
    for (index, profile) in [a, b].into_iter().enumerate() {
        for stack in &profile.stacks {
            let frames = profile.frames(stack).map(|line| line.function.as_str()).collect();
            let sums = stacks.entry(frames).or_default();
            let moments = changed(profile, &stack.row, &stack.quantities);
            for (sums, moments) in sums.iter_mut().zip(moments) {
                sums[index].add(&moments);
            }
        }
    }
    stacks
}

/// Adjusts the p of the stacks that have enough samples; returns the number of these stacks.
fn adjust(stacks: &mut [ComparedStack], relation: Relation) -> usize {
    if relation == Relation::Grown {
        return 0; // A sample between the two proves an allocation: there is nothing to test.
    }
    let mut tested: Vec<&mut ComparedStack> =
        stacks.iter_mut().filter(|stack| stack.samples.iter().any(|n| *n >= MIN_SAMPLES)).collect();
    let picks: [fn(&mut ComparedStack) -> &mut Compared; 2] =
        [|of| &mut of.space, |of| &mut of.objects];
    for pick in picks {
        let p: Vec<f64> = tested.iter_mut().map(|stack| pick(stack).difference.p).collect();
        for (stack, adjusted) in tested.iter_mut().zip(benjamini_hochberg(&p)) {
            pick(stack).adjusted = Some(adjusted);
        }
    }
    tested.len()
}

/// The difference if every sample of `a` is in `b` too: the allocations in between, estimated from
/// the samples in between.
fn grown(a: &Side, b: &Side, confidence: Confidence) -> Difference {
    let between = b.moments.less(&a.moments);
    let estimate = weighted(&between, b.unseen, confidence);
    let [value, low, high] = [estimate.value, estimate.low, estimate.high].map(|of| of * b.scale);
    let p = if between.samples > 0 { crate::estimate::difference::SMALLEST_P } else { 1.0 };
    Difference { a: a.moments.sum, b: b.moments.sum, value, low, high, confidence, p }
}

#[cfg(test)]
mod tests;
