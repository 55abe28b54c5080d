//! Rows calibrated to exact totals sum to these totals, whatever the totals are. Sums of rows do,
//! too.

use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, proptest};
use proptest::strategy::Strategy as Generator;
use sampler_common::estimate::{
    Confidence, Estimator, Method, Reference, Row, RowEstimates, Sample, Stratum, everything,
    of_row, unsampled,
};
use sampler_common::sampling::{Design, Rate, Strategy, class};

const INTERVAL: u64 = 4096;

/// A sample: process, row, size.
type Draw = (u32, usize, u64);

/// Exact totals of a class without samples: process and size.
type Silent = (u32, u64, u64);

fn draws() -> impl Generator<Value = Vec<Draw>> {
    let size = (0u32..20, 0u64..2000).prop_map(|(shift, size)| (size << shift) >> 10);
    proptest::collection::vec((0u32..3, 0usize..5, size), 0..60)
}

fn silent() -> impl Generator<Value = Vec<Silent>> {
    // About half of these counts are too small for a sample.
    let size = (0u32..17).prop_map(|shift| 16 << shift);
    proptest::collection::vec((0u32..4, size, (0u32..10).prop_map(|shift| 1 << shift)), 0..6)
}

/// Five rows and their reference. The exact totals of each process are about `scale` times the
/// samples.
fn profile(draws: &[Draw], silent: &[Silent], scale: u64) -> (Vec<Row>, Reference) {
    let design =
        Design::new(Strategy::Geometric, Rate::from_interval(INTERVAL).expect("in the domain"));
    let (mut rows, mut reference) = (vec![Row::default(); 5], Reference::default());
    reference.interval_bytes = INTERVAL as f64;
    for (process, row, size) in draws {
        let stratum = Stratum { process: *process, class: class(*size) as u8 };
        let sample = Sample::new(*size, design);
        rows[*row].stratum(stratum).add_allocation(&sample);
        let totals = reference.strata.entry(stratum).or_default();
        totals.sampled.add_allocation(&sample);
        let (bytes, objects) = totals.exact.get_or_insert_default();
        (*bytes, *objects) = (*bytes + size * scale, *objects + scale);
    }
    for (process, size, objects) in silent {
        let stratum = Stratum { process: *process, class: class(*size) as u8 };
        let exact = reference.strata.entry(stratum).or_default().exact.get_or_insert_default();
        *exact = (exact.0 + size * objects, exact.1 + objects);
    }
    for (stratum, totals) in &mut reference.strata {
        (totals.unseen_objects, totals.unseen_bytes) = design.unseen(usize::from(stratum.class));
    }
    (rows, reference)
}

fn calibrated(row: &Row, reference: &Reference) -> RowEstimates {
    of_row(row, reference, Estimator::Calibrated, Confidence::DEFAULT)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_sum_to_the_exact_totals(draws in draws(), silent in silent(), scale in 1u64..100) {
        let (mut rows, reference) = profile(&draws, &silent, scale);
        let nobodys = unsampled(&reference, Estimator::Calibrated);
        if !nobodys.is_empty() {
            let of = calibrated(&nobodys, &reference);
            for of in [of.alloc_space, of.alloc_objects] {
                prop_assert!(of.low == of.value && of.high == of.value && of.samples == 0, "{of:?}");
            }
        }
        rows.push(nobodys);
        rows.retain(|row| row.strata().next().is_some());
        let exact = reference.strata.values().filter_map(|totals| totals.exact);
        let (bytes, objects) = exact.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        let of_rows: Vec<RowEstimates> = rows.iter().map(|row| calibrated(row, &reference)).collect();
        let near = |a: f64, b: u64| (a - b as f64).abs() <= 1e-9 * b as f64;
        let sum: f64 = of_rows.iter().map(|of| of.alloc_space.value).sum();
        prop_assert!(near(sum, bytes), "{sum} bytes of {bytes}");
        let sum: f64 = of_rows.iter().map(|of| of.alloc_objects.value).sum();
        prop_assert!(near(sum, objects), "{sum} objects of {objects}");
        // The sum of all rows is exact, without uncertainty.
        let mut sum = Row::default();
        rows.iter().for_each(|row| sum.add(row));
        let total = everything(&reference, Estimator::Calibrated);
        let strata = |row: &Row| row.strata().map(|(of, _)| of).collect::<Vec<_>>();
        prop_assert_eq!(strata(&total), strata(&sum));
        if total.strata().next().is_some() {
            let of = calibrated(&total, &reference);
            for (of, exact) in [(of.alloc_space, bytes), (of.alloc_objects, objects)] {
                prop_assert!(near(of.low, exact) && near(of.value, exact) && near(of.high, exact), "{of:?} {exact}");
                prop_assert_eq!(of.method, Method::Calibrated);
            }
        }
    }

    #[test]
    fn intervals_are_in_order_and_within_what_is_certain(draws in draws(), silent in silent(), scale in 1u64..100) {
        let (rows, reference) = profile(&draws, &silent, scale);
        for row in rows.iter().filter(|row| row.strata().next().is_some()) {
            let total = row.total();
            for estimator in Estimator::ALL {
                let of = of_row(row, &reference, estimator, Confidence::DEFAULT);
                for (of, moments) in [
                    (of.alloc_space, total.alloc_space),
                    (of.alloc_objects, total.alloc_objects),
                    (of.inuse_space, total.inuse_space),
                    (of.inuse_objects, total.inuse_objects),
                ] {
                    prop_assert!(0.0 <= of.low && of.low <= of.value && of.value <= of.high, "{of:?}");
                    prop_assert!(of.high.is_finite() && of.method != Method::Stride, "{of:?}");
                    if estimator != Estimator::FailedTrials {
                        prop_assert!(of.low >= moments.own.min(of.value) * (1.0 - 1e-9), "{of:?}");
                    }
                    prop_assert_eq!(of.samples, moments.samples);
                }
            }
            let of = calibrated(row, &reference);
            prop_assert_eq!(of.inuse_space.method, Method::Weighted);
        }
    }

    /// Values are linear: the estimate of a function's row is the sum of its stacks' estimates.
    #[test]
    fn sums_of_rows_are_estimated_as_sums(draws in draws(), silent in silent(), scale in 1u64..100) {
        let (rows, reference) = profile(&draws, &silent, scale);
        let (a, b) = (calibrated(&rows[0], &reference), calibrated(&rows[1], &reference));
        let mut both = rows[0].clone();
        both.add(&rows[1]);
        let sum = calibrated(&both, &reference).alloc_space.value;
        prop_assert!((sum - a.alloc_space.value - b.alloc_space.value).abs() <= 1e-9 * sum);
    }
}

#[test]
fn without_exact_totals_a_process_stays_weighted() {
    let draws = [(0, 0, 100), (1, 0, 100), (1, 1, 100)];
    let (rows, mut reference) = profile(&draws, &[], 50);
    for (stratum, totals) in &mut reference.strata {
        if stratum.process == 1 {
            totals.exact = None;
        }
    }
    let (of, weighted) = (calibrated(&rows[1], &reference), rows[1].total().alloc_space);
    assert_eq!((of.alloc_space.value, of.alloc_space.method), (weighted.sum, Method::Weighted));
    // A row of two processes: one part is calibrated, the other weighted. The method says so.
    let of = calibrated(&rows[0], &reference).alloc_space;
    assert!((of.value - (50.0 * 100.0 + weighted.sum)).abs() < 1e-6, "{of:?}");
    assert_eq!(of.method, Method::Weighted);
    assert_eq!(unsampled(&reference, Estimator::Calibrated), Row::default());
}

/// Two blocks of 1 MiB that can hardly be sampled, and samples of 64 B. At a rate that can sample
/// the blocks, they are shared out.
#[test]
fn rarely_sampled_blocks_are_in_the_unsampled_row() {
    let (rows, mut reference) = profile(&[(0, 0, 64), (0, 0, 64)], &[(0, 1 << 20, 2)], 10);
    let large = Stratum { process: 0, class: class(1 << 20) as u8 };
    for (unseen_objects, nobodys) in [(1000.0, 2.0), (2.0, 0.0)] {
        let unseen_bytes = unseen_objects * (1 << 20) as f64;
        let totals = reference.strata.entry(large).or_default();
        (totals.unseen_objects, totals.unseen_bytes) = (unseen_objects, unseen_bytes);
        let rest = unsampled(&reference, Estimator::Calibrated);
        assert_eq!(rest.get(large).is_some(), nobodys > 0.0);
        let of = calibrated(&rows[0], &reference).alloc_objects;
        assert!(
            (of.value - (22.0 - nobodys)).abs() < 1e-9 && (of.high - 22.0).abs() < 1e-9,
            "{of:?}"
        );
        // A row with all samples does not have the whole total: other rows may have no sample.
        assert!(of.low < of.value, "{of:?}");
        let total = everything(&reference, Estimator::Calibrated);
        let of = calibrated(&total, &reference).alloc_objects;
        assert!((of.low - 22.0).abs() < 1e-9 && (of.high - 22.0).abs() < 1e-9, "{of:?}");
    }
}

/// A process without samples, and one whose samples all have 0 bytes.
#[test]
fn totals_without_a_sampled_stack_are_a_row() {
    let (rows, reference) = profile(&[(0, 0, 0), (1, 0, 500)], &[(0, 64, 7), (2, 64, 3)], 10);
    let rest = unsampled(&reference, Estimator::Calibrated);
    assert_eq!(rest.processes().collect::<Vec<_>>(), [0, 2]);
    let of = calibrated(&rest, &reference);
    assert_eq!((of.alloc_space.value, of.alloc_space.samples), (10.0 * 64.0, 0));
    // The objects of process 0 are represented by a sample.
    assert_eq!(of.alloc_objects.value, 3.0);
    assert!((calibrated(&rows[0], &reference).alloc_objects.value - 27.0).abs() < 1e-9);
    assert_eq!(unsampled(&reference, Estimator::Weighted), Row::default());
}

/// A row with nearly everything, and others with few expected samples. The test bounds how often
/// the row's lower end is above its truth.
#[test]
fn a_large_row_has_a_lower_end_that_covers_unseen_rows() {
    let alpha = Confidence::DEFAULT.alpha();
    for own in [30, 100, 1000] {
        for step in 1..60 {
            let expected = f64::from(step) * 0.2;
            let (mut chance, mut missed) = ((-expected).exp(), 0.0);
            for others in 0..60 {
                let draws: Vec<Draw> = (0..own).map(|_| (0, 0, 64)).collect();
                let more = (0..others).map(|_| (0, 1, 64));
                let (rows, mut reference) = profile(&[draws, more.collect()].concat(), &[], 1);
                let weight = rows[0].total().alloc_objects.sum / f64::from(own);
                let truth = weight * f64::from(own);
                let exact = (truth + weight * expected).round();
                for totals in reference.strata.values_mut() {
                    totals.exact = Some((exact as u64 * 64, exact as u64));
                }
                let of = calibrated(&rows[0], &reference).alloc_objects;
                missed += if of.low > truth + 1.0 { chance } else { 0.0 };
                chance *= expected / f64::from(others + 1);
            }
            assert!(missed <= 1.2 * alpha / 2.0, "{own} {expected}: {missed}");
        }
    }
}
