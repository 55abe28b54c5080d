//! Two profiles compared, stack by stack.
//!
//! Stacks are the same where their functions are: a stack of one process and that of another run of its program, or two
//! of one process, differ in pid and addresses. Rows of one profile that fall together are added, by their moments.
//!
//! All numbers are the weighted estimates of the samples, however the profiles were estimated: two profiles that were calibrated to
//! different totals are not comparable stack by stack without what their samples alone say.

mod growth;
mod judge;
mod relation;

pub use growth::growth;
pub use judge::{Judge, Rows, rows};
pub use relation::{Relation, parted, span};

use crate::estimate::{Confidence, Difference, Moments, Row, Side, benjamini_hochberg, weighted};
use crate::profile::{Kind, Profile, Quantities};
use std::collections::BTreeMap;

/// Stacks with fewer samples than this on both sides are shown, and not tested.
pub const MIN_SAMPLES: u64 = 5;

/// Share of what is called significant that may be chance.
pub const FALSE_DISCOVERY_RATE: f64 = 0.05;

/// What to compare, and how.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// What the first profile is called in front of people.
    pub a_name: &'a str,
    /// The first, from which the difference counts.
    pub a: &'a Profile,
    /// What the second profile is called.
    pub b_name: &'a str,
    /// The second.
    pub b: &'a Profile,
    /// Confidence of the intervals, each for itself.
    pub confidence: Confidence,
    /// Rates (a second) in place of totals.
    pub per_second: bool,
    /// That they share no sample, whatever times and pids say: profiles of two machines.
    pub independent: bool,
}

/// Profiles that cannot be compared; one line with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotCompare {
    /// Allocated here, held there.
    #[error("{a} is a profile of {a_kind} bytes and {b} of {b_kind} bytes (give two of one kind)")]
    Kinds {
        /// Name of the first.
        a: String,
        /// Its kind.
        a_kind: &'static str,
        /// Name of the second.
        b: String,
        /// Its kind.
        b_kind: &'static str,
    },
    /// Stacks are missing that may be in the other.
    #[error("{name} holds {stacks} of {total} stacks (make it without --top)")]
    Cut {
        /// Name of the profile.
        name: String,
        /// Stacks in it.
        stacks: usize,
        /// Stacks that there were.
        total: u64,
    },
    /// Some samples are in both, and which is not known.
    #[error(
        "{a} and {b} share samples: both are of pid {pid}, at times that overlap (give windows apart, such as 10m..5m \
         and 5m, or --independent if they are of two machines)"
    )]
    Overlap {
        /// Name of the first.
        a: String,
        /// Name of the second.
        b: String,
        /// A process that is in both.
        pid: u32,
    },
    /// The second is the beginning of the first.
    #[error("{a} is the later of the two, and has all that {b} has (swap them)")]
    Swapped {
        /// Name of the first.
        a: String,
        /// Name of the second.
        b: String,
    },
    /// Nothing was sampled.
    #[error(
        "profiles of kind mapped are counted, not sampled: there is nothing to test (subtract them)"
    )]
    Counted,
    /// Held, of the allocations of a window: two of them do not say how what is held has grown.
    #[error(
        "{0}: kind live of a window is what is held of the window's own allocations; two windows do not show growth \
         (ask sampler leaks --over TIME, or compare live profiles since attach that were saved at two times)"
    )]
    HeldOfWindow(String),
    /// Seen in windows of a budget: what these differ in is not in the moments.
    #[error(
        "{0} was seen in short windows only (samplerd --windows): differences between windows would be missing from the test (compare profiles of a samplerd without --windows)"
    )]
    Windows(String),
    /// A rate of what has none.
    #[error("{0} (leave out --per-second)")]
    NoRate(&'static str),
    /// A rate over no time.
    #[error("{0} took no time (leave out --per-second)")]
    NoTime(String),
}

/// One quantity on both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// Its difference.
    pub difference: Difference,
    /// p, adjusted for all stacks that were tested; `None` where this one was not.
    pub adjusted: Option<f64>,
}

impl Compared {
    /// Whether it is called a change.
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
    /// Bytes of the kind.
    pub space: Compared,
    /// Objects of the kind.
    pub objects: Compared,
}

/// What a side is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// What it is called.
    pub name: String,
    /// From when to when, nanoseconds since the Unix epoch.
    pub span_unix_ns: [u64; 2],
    /// Mean bytes between samples.
    pub interval_bytes: u64,
    /// Samples in it, of its kind.
    pub samples: u64,
}

impl About {
    /// Its length.
    pub fn duration_ns(&self) -> u64 {
        self.span_unix_ns[1].saturating_sub(self.span_unix_ns[0])
    }
}

/// Two profiles compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Which bytes.
    pub kind: Kind,
    /// Of each interval.
    pub confidence: Confidence,
    /// Whether the numbers are a second.
    pub per_second: bool,
    /// How their samples relate.
    pub relation: Relation,
    /// The two.
    pub sides: [About; 2],
    /// Difference of the bytes of all stacks.
    pub space: Difference,
    /// Difference of the objects of all stacks.
    pub objects: Difference,
    /// How many stacks were tested.
    pub tested: usize,
    /// The stacks: significant ones first, then by how much they differ.
    pub stacks: Vec<ComparedStack>,
}

impl Comparison {
    /// How many stacks have significantly more or fewer bytes.
    pub fn significant(&self) -> usize {
        self.stacks.iter().filter(|stack| stack.space.is_significant()).count()
    }
}

/// Compares two profiles.
///
/// # Errors
/// If they are of different kinds, cut to their top stacks, or share samples of which it is not known which.
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

/// The same of a row, with room for what passed at rates that have changed.
fn changed(profile: &Profile, row: &Row, of: &Quantities) -> [Moments; 2] {
    let [space, objects] = moments(of, profile.kind);
    let is_held = profile.kind != Kind::Alloc;
    let with_next =
        |of: &Moments, is_bytes| profile.reference.with_next(row, of, is_bytes, is_held);
    [with_next(&space, true), with_next(&objects, false)]
}

/// Stacks of both by their functions: bytes of a and b, objects of a and b.
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

/// Adjusts the p of the stacks that have samples enough; how many these are.
fn adjust(stacks: &mut [ComparedStack], relation: Relation) -> usize {
    if relation == Relation::Grown {
        return 0; // A sample between the two proves that something was allocated: nothing to test.
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

/// The difference where every sample of `a` is in `b` too: what was allocated in between, from the samples in
/// between.
fn grown(a: &Side, b: &Side, confidence: Confidence) -> Difference {
    let between = b.moments.less(&a.moments);
    let estimate = weighted(&between, b.unseen, confidence);
    let [value, low, high] = [estimate.value, estimate.low, estimate.high].map(|of| of * b.scale);
    let p = if between.samples > 0 { crate::estimate::difference::SMALLEST_P } else { 1.0 };
    Difference { a: a.moments.sum, b: b.moments.sum, value, low, high, confidence, p }
}

#[cfg(test)]
mod tests;
