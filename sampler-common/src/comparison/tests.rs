use super::*;
use crate::encode::fixture;

fn question<'a>(a: &'a Profile, b: &'a Profile) -> Question<'a> {
    Question {
        a_name: "A",
        a,
        b_name: "B",
        b,
        confidence: Confidence::DEFAULT,
        per_second: false,
        independent: false,
    }
}

/// The fixture, an hour later.
fn later(kind: Kind) -> Profile {
    let mut profile = fixture::profile(kind);
    profile.time_unix_ns += 3_600_000_000_000;
    profile
}

#[test]
fn equal_profiles_have_no_significant_difference() {
    let (a, b) = (fixture::profile(Kind::Alloc), later(Kind::Alloc));
    let comparison = compare(&question(&a, &b)).unwrap();
    assert_eq!(comparison.relation, Relation::Independent);
    assert_eq!((comparison.significant(), comparison.tested), (0, 5));
    for stack in &comparison.stacks {
        assert_eq!((stack.space.difference.value, stack.space.adjusted), (0.0, Some(1.0)));
        assert!(stack.space.difference.low < 0.0 && stack.space.difference.high > 0.0);
    }
    assert_eq!(comparison.space.value, 0.0);
}

#[test]
fn a_stack_missing_from_b_is_ranked_first() {
    let (a, mut b) = (fixture::profile(Kind::Alloc), later(Kind::Alloc));
    let gone = b.stacks.remove(2);
    b.stacks_total -= 1;
    let comparison = compare(&question(&a, &b)).unwrap();
    let first = &comparison.stacks[0];
    assert!(first.space.is_significant() && comparison.significant() == 1, "{first:?}");
    let bytes = gone.quantities.alloc_space.moments.sum;
    assert_eq!((first.space.difference.value, first.samples[1]), (-bytes, 0));
    assert!(first.space.difference.high < 0.0);
}

#[test]
fn stacks_with_the_same_names_are_merged() {
    let (a, mut b) = (fixture::profile(Kind::Alloc), later(Kind::Alloc));
    for stack in &mut b.stacks {
        stack.pid += 1; // a restart
    }
    let mut half = b.stacks[0].clone();
    half.pid = 9;
    b.stacks.push(half);
    b.stacks_total += 1;
    let comparison = compare(&question(&a, &b)).unwrap();
    assert_eq!(comparison.stacks.len(), 5);
    let twice = &comparison.stacks[0];
    assert_eq!(twice.samples[1], 2 * twice.samples[0]);
    assert!(twice.space.is_significant());
}

#[test]
fn few_samples_are_not_tested() {
    let (a, b) = (fixture::profile(Kind::Live), later(Kind::Live));
    let comparison = compare(&question(&a, &b)).unwrap();
    let untested = comparison.stacks.iter().filter(|stack| stack.space.adjusted.is_none());
    assert!(untested.clone().count() == 1 && untested.clone().all(|stack| stack.samples == [1, 1]));
    // One stack has nothing held on either side.
    assert_eq!((comparison.stacks.len(), comparison.tested), (4, 3));
}

#[test]
fn nested_profiles_are_compared_by_the_samples_between_them() {
    // A since attach, B since attach a second later, of the same processes.
    let a = fixture::profile(Kind::Alloc);
    let mut b = a.clone();
    b.time_unix_ns += 1_000_000_000;
    b.duration_ns += 1_000_000_000;
    let moments = &mut b.stacks[1].quantities.alloc_space.moments;
    let before = *moments;
    moments.add_samples(6, 200.0, 0.0005);
    let comparison = compare(&question(&a, &b)).unwrap();
    assert_eq!(comparison.relation, Relation::Grown);
    let grown =
        comparison.stacks.iter().find(|stack| stack.samples[0] != stack.samples[1]).unwrap();
    let of = grown.space.difference;
    assert!((of.value / 2.4e6 - 1.0).abs() < 1e-9, "{of:?}");
    // The interval comes from six samples alone, not from some hundreds.
    assert!(of.low > 0.3 * of.value && of.high < 2.5 * of.value, "{of:?}");
    assert!(before.variance.sqrt() > of.high - of.value, "{of:?}");
    assert_eq!((comparison.tested, grown.space.adjusted), (0, None));

    let error = compare(&question(&b, &a)).unwrap_err().to_string();
    assert_eq!(error, "A is the later of the two, and has all that B has (swap them)");
    // If the times only overlap, samples are shared and it is unknown which.
    let mut shifted = a.clone();
    shifted.time_unix_ns += 5_000_000_000;
    let shared = question(&a, &shifted);
    let error = compare(&shared).unwrap_err().to_string();
    assert!(error.starts_with("A and B share samples: both are of pid 412"), "{error}");
    let independent = compare(&Question { independent: true, ..shared.clone() }).unwrap();
    assert_eq!(independent.relation, Relation::Independent);
    // The intervals of held memory are too wide, and the relation says so.
    let (mut held, mut held_later) = (fixture::profile(Kind::Live), a.clone());
    held_later.kind = Kind::Live;
    held.kind = Kind::Live;
    assert_eq!(compare(&question(&held, &held_later)).unwrap().relation, Relation::Shared);
}

/// Held memory of the allocations of a window: it compares neither with another window, nor with
/// everything since attach.
#[test]
fn held_bytes_of_a_window_are_not_compared() {
    let mut windowed = fixture::profile(Kind::Live);
    let end_unix_ns = windowed.time_unix_ns;
    windowed.window =
        Some(crate::profile::Window { start_unix_ns: end_unix_ns - 1_000_000_000, end_unix_ns });
    let whole = later(Kind::Live);
    for (a, b, name) in [(&windowed, &whole, "A"), (&whole, &windowed, "B")] {
        let error = compare(&question(a, b)).unwrap_err();
        assert_eq!(error, CannotCompare::HeldOfWindow(name.to_owned()));
        assert!(error.to_string().contains("sampler leaks --over"), "{error}");
        assert!(rows(&question(a, b)).is_err());
    }
    let [mut peak, mut later_peak] = [windowed.clone(), whole.clone()];
    (peak.kind, later_peak.kind) = (Kind::Peak, Kind::Peak);
    assert!(compare(&question(&peak, &later_peak)).is_ok());
}

/// Points of a stride have no variance, and a difference of them has none either.
#[test]
fn growth_of_a_stride_profile_has_no_upper_end() {
    let mut a = fixture::profile(Kind::Alloc);
    a.stacks[1].quantities.alloc_space.moments.variance = f64::INFINITY;
    let mut b = a.clone();
    b.time_unix_ns += 1_000_000_000;
    b.duration_ns += 1_000_000_000;
    let moments = &mut b.stacks[1].quantities.alloc_space.moments;
    (moments.samples, moments.sum) = (moments.samples + 6, moments.sum + 2.4e6);
    let comparison = compare(&question(&a, &b)).unwrap();
    assert_eq!(comparison.relation, Relation::Grown);
    let grown =
        comparison.stacks.iter().find(|stack| stack.samples[0] != stack.samples[1]).unwrap();
    assert_eq!(grown.space.difference.high, f64::INFINITY, "{grown:?}");
}

#[test]
fn rates_are_compared_only_where_profiles_have_a_duration() {
    let (a, mut b) = (fixture::profile(Kind::Alloc), later(Kind::Alloc));
    b.duration_ns = a.duration_ns / 2;
    let rates = compare(&Question { per_second: true, ..question(&a, &b) }).unwrap();
    assert!((rates.space.b / rates.space.a - 2.0).abs() < 1e-6);
    let seconds = a.duration_ns as f64 / 1e9;
    assert!((rates.space.a * seconds / a.totals.alloc_space.moments.sum - 1.0).abs() < 1e-6);
    // The same amount in half the time is twice the rate: significant from 22 samples on.
    assert_eq!(rates.significant(), 4);
    b.duration_ns = 0;
    let error = compare(&Question { per_second: true, ..question(&a, &b) }).unwrap_err();
    assert_eq!(error.to_string(), "B took no time (leave out --per-second)");
    let (a, b) = (fixture::profile(Kind::Live), later(Kind::Live));
    let error = compare(&Question { per_second: true, ..question(&a, &b) }).unwrap_err();
    assert!(error.to_string().contains("have no rate"));
}

#[test]
fn profiles_of_other_kinds_and_partial_profiles_are_refused() {
    let (a, b) = (fixture::profile(Kind::Alloc), later(Kind::Live));
    let error = compare(&question(&a, &b)).unwrap_err().to_string();
    assert!(error.contains("A is a profile of alloc bytes and B of live bytes"), "{error}");
    let mut b = later(Kind::Alloc);
    b.stacks.truncate(2);
    let error = compare(&question(&a, &b)).unwrap_err().to_string();
    assert_eq!(error, "B holds 2 of 5 stacks (make it without --top)");
}
