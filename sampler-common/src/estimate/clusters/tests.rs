use super::*;
use crate::estimate::{Sample, Stratum, everything, of_row};
use crate::sampling::Rate;

fn reference(totals: &[f64]) -> Reference {
    let groups = totals.iter().map(|bytes| Cluster { length: 10.0, total: [*bytes, 1.0] });
    let clusters =
        Clusters { groups: groups.collect(), windows: totals.len() as u32, ..Clusters::default() };
    Reference {
        clusters: [(0, clusters)].into_iter().collect(),
        interval_bytes: 1.0,
        ..Reference::default()
    }
}

fn row(each: &[f64]) -> Row {
    let mut row = Row::default();
    for (group, bytes) in each.iter().enumerate().filter(|(_, bytes)| **bytes > 0.0) {
        let sample = Sample { kept: 0.1, ..Sample::geometric((bytes / 10.0) as u64, Rate::ALWAYS) };
        row.stratum(Stratum { process: 0, class: 4 }).add_allocation(&sample);
        row.add_cluster(0, group as u16, [*bytes, 10.0]);
    }
    row
}

fn space(row: &Row, reference: &Reference) -> Estimate {
    let confidence = Confidence::DEFAULT;
    of_row(row, reference, Default::default(), confidence).alloc_space
}

#[test]
fn the_total_has_the_interval_of_its_windows() {
    let totals = [90.0, 110.0, 95.0, 105.0, 100.0, 100.0, 100.0, 100.0];
    let reference = reference(&totals);
    let all = everything(&reference, Default::default());
    let estimate = space(&all, &reference);
    // s² = Σ(z − 100)²·8/7 = 250·8/7; t of 7 degrees of freedom: 2.3646.
    let half = 2.364_624 * (250.0f64 * 8.0 / 7.0).sqrt();
    assert_eq!((estimate.value, estimate.method), (800.0, Method::Clusters));
    assert!((estimate.high - 800.0 - half).abs() < 1e-3, "{estimate:?}");
    assert!((800.0 - estimate.low - half).abs() < 1e-3, "{estimate:?}");
}

#[test]
fn what_changes_slowly_is_not_what_windows_differ_in() {
    let slow: Vec<f64> = (0..32).map(|at| if at < 16 { 50.0 } else { 150.0 }).collect();
    let clusters = |totals: &[f64]| reference(totals).clusters[&0].clone();
    let steps = clusters(&slow);
    // Twice a step of 100, against sixteen that are 50 off either way.
    let (variance, freedom) = steps.variance(&slow);
    assert!((variance - 10_000.0).abs() < 1e-6 && (freedom - 64.0 / 3.0).abs() < 1e-9);
    assert!((steps.of_phases() / steps.of_windows() - 8.0 * 32.0 / 31.0).abs() < 1e-9);
    // What differs from each window to the next is all that there is, and no more.
    let fast: Vec<f64> = (0..32).map(|at| if at % 2 == 0 { 50.0 } else { 150.0 }).collect();
    let turns = clusters(&fast);
    assert_eq!(turns.of_windows(), turns.of_phases());
    assert_eq!(turns.variance(&fast).1, 31.0);
    // Wherever the one group is that has all of a row it is all that is known of it.
    for at in [0, 1, 15, 31] {
        let mut once = [0.0; 32];
        once[at] = 100.0;
        let off = steps.variance(&once).0 - 10_000.0;
        assert!(off.abs() < 1e-6, "{at}: {off}");
    }
}

/// Numbers between 0 and 1, always the same ones.
fn uniform() -> impl FnMut() -> f64 {
    let mut state = 5u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as f64 / f64::from(1u32 << 31)
    }
}

#[test]
fn programs_that_change_slowly_have_narrow_intervals_that_are_right() {
    const RUNS: usize = 2000;
    let mean = |at: usize| 100.0 * (1.0 + 0.8 * (at as f64 / 24.0 * core::f64::consts::TAU).sin());
    let mut random = uniform();
    let (mut inside, mut narrower) = (0, 0.0);
    for _ in 0..RUNS {
        let each: Vec<f64> = (0..24).map(|at| mean(at) * (0.5 + random())).collect();
        let reference = reference(&each);
        let all = space(&everything(&reference, Default::default()), &reference);
        inside += usize::from(all.low <= 2400.0 && 2400.0 <= all.high);
        let clusters = &reference.clusters[&0];
        narrower += (clusters.of_windows() / clusters.of_phases()).sqrt() / RUNS as f64;
    }
    // Of 2,000 at 95 % fewer than 1,853 come once in a million times.
    assert!(inside >= 1853 && narrower < 0.6, "{inside} of {RUNS}, {narrower}");
}

#[test]
fn a_slow_change_is_seldom_found_where_there_is_none() {
    let mut random = uniform();
    for n in [8usize, 16, 32] {
        let mut is_near = |_| {
            let each: Vec<f64> = (0..n).map(|_| random()).collect();
            let reference = reference(&each);
            reference.clusters[&0].variance(&each).1 < n as f64 - 1.0
        };
        let found = (0..2000).map(&mut is_near).filter(|found| *found).count();
        // Of 2,000 at 1 % more than 50 come less than once in a million times.
        assert!(found <= 50, "{found} of 2,000 with {n} groups");
    }
}

#[test]
fn too_few_windows_make_no_interval() {
    let reference = reference(&[100.0; 7]);
    let all = space(&everything(&reference, Default::default()), &reference);
    assert!(!all.has_interval() && all.value == 700.0, "{all:?}");
    assert!(!space(&row(&[100.0; 7]), &reference).has_interval());
}

#[test]
fn windows_that_have_met_nothing_make_none() {
    let reference = reference(&[0.0; 178]);
    let all = space(&everything(&reference, Default::default()), &reference);
    assert!(!all.has_interval() && all.value == 0.0 && all.low == 0.0, "{all:?}");
}

#[test]
fn a_row_that_was_met_once_may_be_anything() {
    let reference = reference(&[1000.0; 20]);
    let mut each = [0.0; 20];
    each[3] = 100.0;
    let estimate = space(&row(&each), &reference);
    assert_eq!(estimate.value, 100.0);
    // One sample of κ = 0.1: as one sample of π = 0.1 alone, or more.
    assert!(estimate.low < 11.0 && estimate.high > 300.0, "{estimate:?}");
}

#[test]
fn rows_of_windows_add() {
    let reference = reference(&[300.0; 10]);
    let (mut a, b) = (row(&[100.0; 10]), row(&[200.0; 10]));
    let (of_a, of_b) = (space(&a, &reference), space(&b, &reference));
    a.add(&b);
    let sum = space(&a, &reference);
    assert_eq!(sum.value, of_a.value + of_b.value);
    // What is the same in all windows has the variance of its samples only.
    assert!(sum.high - sum.value < of_a.high - of_a.value + of_b.high - of_b.value);
    assert_eq!(a.clusters_of(0).count(), 10);
}

#[test]
fn the_error_of_the_correction_is_in_the_interval() {
    let mut reference = reference(&[100.0; 10]);
    let set = |reference: &mut Reference, error| {
        let of = Clusters { errors: [error / 2.0, error], ..reference.clusters[&0].clone() };
        reference.clusters.insert(0, of);
    };
    set(&mut reference, 0.1);
    let all = space(&everything(&reference, Default::default()), &reference);
    // The correction's error is known, as far as anybody knows: the normal law's 1.9612 of very many degrees of freedom.
    assert!(all.value == 1000.0 && (all.high - 1196.1).abs() < 0.1, "{all:?}");
    assert!((all.low - 901.9).abs() < 0.1, "{all:?}");
    set(&mut reference, f64::INFINITY);
    assert!(!space(&everything(&reference, Default::default()), &reference).has_interval());
}
