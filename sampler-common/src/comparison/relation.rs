//! Whether two profiles share samples.
//!
//! An interval of a difference is right for independent samples. Two profiles are independent if
//! they are of different processes, or of different times. Two totals since attach of one process
//! are not independent: all samples of the earlier total are in the later one. The other samples of
//! the later total alone tell what was allocated in between.
//!
//! Two profiles of *held* memory have some blocks in common. The sampling errors of these blocks
//! are the same on both sides and cancel. So intervals for independent samples are too wide, never
//! too narrow: Var(b − a) = v_a + v_b − 2·cov, and common blocks make cov ≥ 0.

use super::{CannotCompare, Question};
use crate::profile::{Kind, Profile};
use std::collections::BTreeSet;

/// Largest difference between two readings of one moment: the daemon reads two clocks.
const TOLERANCE_NS: u64 = 100_000_000;

/// How the samples of two profiles relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// No sample is in both profiles.
    Independent,
    /// Held blocks may be in both profiles: intervals are too wide.
    Shared,
    /// All samples of the first profile are in the second.
    Grown,
}

impl Relation {
    /// The name in json.
    pub const fn name(self) -> &'static str {
        match self {
            Relation::Independent => "independent",
            Relation::Shared => "shared",
            Relation::Grown => "grown",
        }
    }
}

/// Checks that the profiles can be compared; returns how their samples relate.
pub(super) fn of(question: &Question<'_>) -> Result<Relation, CannotCompare> {
    let Question { a_name, a, b_name, b, per_second, .. } = *question;
    if a.kind != b.kind {
        return Err(CannotCompare::Kinds {
            a: a_name.to_owned(),
            a_kind: a.kind.name(),
            b: b_name.to_owned(),
            b_kind: b.kind.name(),
        });
    }
    if a.kind == Kind::Mapped {
        return Err(CannotCompare::Counted);
    }
    for (name, profile) in [(a_name, a), (b_name, b)] {
        // The window of a peak is the time until the peak, and contains everything that was held.
        if profile.kind == Kind::Live && profile.window.is_some() {
            return Err(CannotCompare::HeldOfWindow(name.to_owned()));
        }
        if profile.stacks_total > profile.stacks.len() as u64 {
            return Err(CannotCompare::Cut {
                name: name.to_owned(),
                stacks: profile.stacks.len(),
                total: profile.stacks_total,
            });
        }
        let [start, end] = span(profile);
        if per_second && end <= start {
            return Err(CannotCompare::NoTime(name.to_owned()));
        }
    }
    if per_second && a.kind != Kind::Alloc {
        return Err(CannotCompare::NoRate("bytes that are held have no rate"));
    }
    let relation = shared(question)?;
    if per_second && relation == Relation::Grown {
        return Err(CannotCompare::NoRate("one of the two begins with the other"));
    }
    Ok(relation)
}

/// How to part two profiles that overlap although their requested windows (since, until) do not.
/// Returns the index of the earlier profile, and the time at which it must end when it is made
/// again. `None` if nothing is to be done.
///
/// Windows are rounded outward to time slots. So two windows without an overlap may share a slot.
pub fn parted(requested: [[u64; 2]; 2], made: [&Profile; 2]) -> Option<(usize, u64)> {
    let [[a_since, a_until], [b_since, b_until]] = requested;
    let earlier = match (a_until <= b_since, b_until <= a_since) {
        (true, _) => 0,
        (_, true) => 1,
        _ => return None,
    };
    let [[_, earlier_end], [later_start, _]] = [span(made[earlier]), span(made[1 - earlier])];
    (later_start < earlier_end).then_some((earlier, later_start.max(1)))
}

/// Start and end of a profile, nanoseconds since the Unix epoch.
pub fn span(profile: &Profile) -> [u64; 2] {
    match profile.window {
        Some(window) => [window.start_unix_ns, window.end_unix_ns],
        None => [profile.time_unix_ns.saturating_sub(profile.duration_ns), profile.time_unix_ns],
    }
}

/// How the samples of two profiles relate. An error if it is unknown which samples are in both, or
/// if the first profile is the later one.
fn shared(question: &Question<'_>) -> Result<Relation, CannotCompare> {
    let Question { a, b, independent, .. } = *question;
    let (pids_a, pids_b) = (pids(a), pids(b));
    let ([start_a, end_a], [start_b, end_b]) = (span(a), span(b));
    // Windows that only touch share nothing.
    let overlap = start_a < end_b && start_b < end_a;
    let common = pids_a.intersection(&pids_b).next().copied();
    let Some(pid) = common.filter(|_| overlap && !independent) else {
        return Ok(Relation::Independent);
    };
    if a.kind != Kind::Alloc {
        return Ok(Relation::Shared);
    }
    let begin_together = start_a.abs_diff(start_b) <= TOLERANCE_NS;
    if begin_together && end_a <= end_b && pids_a.is_subset(&pids_b) && may_contain(b, a) {
        return Ok(Relation::Grown);
    }
    let (a_name, b_name) = (question.a_name.to_owned(), question.b_name.to_owned());
    let is_swapped =
        begin_together && end_b < end_a && pids_b.is_subset(&pids_a) && may_contain(a, b);
    Err(match is_swapped {
        true => CannotCompare::Swapped { a: a_name, b: b_name },
        false => CannotCompare::Overlap { a: a_name, b: b_name, pid },
    })
}

/// The processes of a profile, without 0, which stands for several merged processes.
fn pids(profile: &Profile) -> BTreeSet<u32> {
    let of_stacks = profile.stacks.iter().map(|stack| stack.pid);
    profile.pids.iter().copied().chain(of_stacks).filter(|pid| *pid != 0).collect()
}

/// Whether all samples of `earlier` may be in `later`: no stack has more of them in `earlier`.
fn may_contain(later: &Profile, earlier: &Profile) -> bool {
    super::joined(earlier, later)
        .values()
        .all(|[[before, after], _]| before.samples <= after.samples)
}
