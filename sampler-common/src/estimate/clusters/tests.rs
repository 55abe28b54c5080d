use super::*;
use crate::estimate::{Sample, Stratum, everything, of_row};
use crate::sampling::Rate;

/// Groups of one window each, without traps.
fn reference(totals: &[f64]) -> Reference {
    let group =
        |bytes: &f64| Cluster { length: 10.0, total: [*bytes, 1.0], own_ns: 1e6, traps: 0.0 };
    let clusters =
        Clusters { groups: totals.iter().map(group).collect(), windows: totals.len() as u32 };
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
fn the_total_has_the_t_interval_of_its_windows() {
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
fn too_few_windows_make_no_interval() {
    let reference = reference(&[100.0; 7]);
    let all = space(&everything(&reference, Default::default()), &reference);
    assert!(!all.has_interval() && all.value == 700.0, "{all:?}");
    assert!(!space(&row(&[100.0; 7]), &reference).has_interval());
}

#[test]
fn windows_without_samples_have_no_clusters() {
    let reference = reference(&[0.0; 178]);
    let all = space(&everything(&reference, Default::default()), &reference);
    assert!(!all.has_interval() && all.value == 0.0 && all.low == 0.0, "{all:?}");
}

#[test]
fn a_row_in_one_window_has_no_upper_end() {
    let reference = reference(&[1000.0; 20]);
    let mut each = [0.0; 20];
    each[3] = 100.0;
    let estimate = space(&row(&each), &reference);
    assert_eq!(estimate.value, 100.0);
    // One sample of κ = 0.1: at least the interval of one sample of π = 0.1 alone.
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
    // A quantity that is the same in all windows has the variance of its samples only.
    assert!(sum.high - sum.value < of_a.high - of_a.value + of_b.high - of_b.value);
    assert_eq!(a.clusters_of(0).count(), 10);
}

#[test]
fn the_upper_end_carries_the_probe_effect() {
    let mut reference = reference(&[100.0; 10]);
    let with_traps = |reference: &mut Reference, traps| {
        let mut of = reference.clusters[&0].clone();
        of.groups.iter_mut().for_each(|group| group.traps = traps);
        reference.clusters.insert(0, of);
    };
    // 500 traps of 600 ns in a window of a millisecond: up to 1/(1 − 0.3) times as much.
    with_traps(&mut reference, 500.0);
    let all = space(&everything(&reference, Default::default()), &reference);
    assert!((all.low - 1000.0).abs() < 1e-6 && all.value == 1000.0, "{all:?}");
    assert!((all.high - 1000.0 / 0.7).abs() < 1e-6, "{all:?}");
    let part = space(&row(&[50.0; 10]), &reference);
    assert!(part.high >= 500.0 / 0.7, "{part:?}");
    // Traps may have taken all of the time: there is no upper end, and the lower end stays.
    with_traps(&mut reference, 2_000.0);
    let all = space(&everything(&reference, Default::default()), &reference);
    assert!(!all.has_interval() && (all.low - 1000.0).abs() < 1e-6, "{all:?}");
}

/// A program of two phases. Traps slow it down by less than M in one phase only: the truth is below
/// the upper end.
#[test]
fn each_window_has_its_own_probe_effect() {
    let (own_ns, traps, effect_ns) = (1e6, 800.0, 400.0);
    let group = |at: usize| match at % 2 {
        // The phase without allocations is not slowed down.
        0 => Cluster { length: 100.0, total: [0.0; 2], own_ns, traps: 0.0 },
        _ => Cluster { length: 100.0, total: [80_000.0, traps * 100.0], own_ns, traps },
    };
    let clusters = Clusters { groups: (0..40).map(group).collect(), windows: 40 };
    let truth = 20.0 * 80_000.0 * own_ns / (own_ns - effect_ns * traps);
    let reference = Reference { clusters: [(0, clusters)].into(), ..Reference::default() };
    let all = space(&everything(&reference, Default::default()), &reference);
    assert!(all.low < truth && truth < all.high, "{truth} {all:?}");
    assert!(all.has_interval(), "{all:?}");
}

#[test]
fn the_sum_with_a_process_of_few_windows_has_no_interval() {
    let mut reference = reference(&[100.0; 10]);
    reference.clusters.insert(1, Clusters { windows: 7, ..reference.clusters[&0].clone() });
    let all = space(&everything(&reference, Default::default()), &reference);
    assert!(!all.has_interval() && all.value == 2000.0, "{all:?}");
    // A row of the other process has its interval.
    assert!(space(&row(&[50.0; 10]), &reference).has_interval());
}
