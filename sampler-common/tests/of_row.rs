//! Estimates of a row: wide where little is known, and bounded by exact totals.

use sampler_common::estimate::{
    Confidence, Estimator, Method, Reference, Row, RowEstimates, Sample, Stratum, of_row, weighted,
};
use sampler_common::sampling::{Design, Strategy, class};

const INTERVAL: u64 = 512 << 10;

fn at(size: u64) -> Stratum {
    Stratum { process: 0, class: class(size) as u8 }
}

fn design(strategy: Strategy) -> Design {
    Design::from_interval(strategy, INTERVAL, 1000.0).expect("in the domain")
}

/// A process with this many objects of each size, sampled by `strategy`, with exact totals or
/// without.
fn reference(strategy: Strategy, sizes: &[(u64, u64)], exact: bool) -> Reference {
    let mut reference = Reference { interval_bytes: INTERVAL as f64, ..Reference::default() };
    for (size, objects) in sizes {
        let totals = reference.strata.entry(at(*size)).or_default();
        totals.exact = exact.then_some((size * objects, *objects));
        (totals.unseen_objects, totals.unseen_bytes) = design(strategy).unseen(class(*size));
    }
    reference
}

/// A row with one sample, which is in the reference too.
fn one(strategy: Strategy, size: u64, reference: &mut Reference) -> Row {
    let mut row = Row::default();
    row.stratum(at(size)).add_allocation(&Sample::new(size, design(strategy)));
    reference.add(&row);
    row
}

fn of(row: &Row, reference: &Reference, estimator: Estimator) -> RowEstimates {
    of_row(row, reference, estimator, Confidence::DEFAULT)
}

#[test]
fn one_large_sample_leaves_small_objects_possible() {
    const LARGE: u64 = 4 << 20;
    // A million blocks of 64 B might have come with the sample and left no sample. Fifty blocks are
    // at most fifty.
    for (objects, least, most) in [(1_000_000, 50_000.0, 70_000.0), (50, 50.0, 52.0)] {
        let mut reference = reference(Strategy::Geometric, &[(LARGE, 100), (64, objects)], true);
        let row = one(Strategy::Geometric, LARGE, &mut reference);
        let estimates = of(&row, &reference, Estimator::Weighted);
        let (space, number) = (estimates.alloc_space, estimates.alloc_objects);
        assert!((number.low, number.value.round()) == (1.0, 1.0), "{number:?}");
        assert!(least < number.high && number.high < most, "{number:?}");
        // The upper end of bytes: the block itself, another block that was hardly ever missed, and
        // 64 B blocks of up to 3.7 intervals.
        assert!(
            space.low >= LARGE as f64 && space.high < (LARGE + 4 * INTERVAL) as f64,
            "{space:?}"
        );
        // The interval of the sample's own class alone is as usual.
        let alone = weighted(&row.total().alloc_objects, INTERVAL as f64, Confidence::DEFAULT);
        assert!(number.high > alone.high && alone.high < 3.0, "{alone:?}");
    }
}

#[test]
fn samples_of_other_rows_lower_the_upper_end_of_a_row() {
    let mut reference = reference(Strategy::Geometric, &[(64, 10), (1 << 20, 10)], true);
    for _ in 0..7 {
        one(Strategy::Geometric, 64, &mut reference);
    }
    let row = one(Strategy::Geometric, 1 << 20, &mut reference);
    let high = of(&row, &reference, Estimator::Weighted).alloc_objects.high;
    let own = weighted(&row.total().alloc_objects, INTERVAL as f64, Confidence::DEFAULT).high;
    assert!(high > own && high <= own + 3.5, "{high} {own}");
}

#[test]
fn a_row_without_samples_has_an_upper_bound() {
    let unseen = INTERVAL as f64 * 40f64.ln();
    let empty = |reference: &Reference| of(&Row::default(), reference, Estimator::Weighted);
    // Many blocks of 64 B: 33 B is the smallest size of the class.
    let plenty = empty(&reference(Strategy::Geometric, &[(64, 1 << 30)], true));
    assert!((plenty.alloc_space.high / unseen - 1.0).abs() < 1e-3, "{plenty:?}");
    assert!((plenty.alloc_objects.high / (unseen / 33.0) - 1.0).abs() < 1e-3, "{plenty:?}");
    // The upper ends are all existing blocks.
    let few = empty(&reference(Strategy::Geometric, &[(64, 3)], true));
    assert_eq!((few.alloc_space.high, few.alloc_objects.high), (192.0, 3.0));
    // Blocks of this size are always sampled.
    let large = empty(&reference(Strategy::Geometric, &[(8 << 20, 1000)], true));
    assert_eq!((large.alloc_space.high, large.alloc_objects.high), (0.0, 0.0));
    // Without totals: this many unseen bytes, or objects of one byte.
    let unknown = empty(&Reference { interval_bytes: INTERVAL as f64, ..Reference::default() });
    assert!((unknown.alloc_space.high / unseen - 1.0).abs() < 1e-9, "{unknown:?}");
    assert_eq!(unknown.alloc_objects.high, unknown.alloc_space.high);
}

/// With bernoulli, a large block is missed as easily as a small one. The bytes therefore need the
/// room, too.
#[test]
fn missed_large_blocks_raise_the_upper_end_of_bernoulli() {
    const LARGE: u64 = 64 << 20;
    for (blocks, room) in [(2, 2.0 * LARGE as f64), (0, 0.0)] {
        let mut reference = reference(Strategy::Bernoulli, &[(64, 100_000), (LARGE, blocks)], true);
        let row = one(Strategy::Bernoulli, 64, &mut reference);
        let space = of(&row, &reference, Estimator::Weighted).alloc_space;
        let own = weighted(&row.total().alloc_space, INTERVAL as f64, Confidence::DEFAULT).high;
        assert!(space.high >= own.max(room) && space.high <= own + room + 1e-6, "{space:?}");
    }
}

/// Without an exact total nothing bounds what a stride missed. No other interval is infinite.
#[test]
fn only_strides_have_an_infinite_upper_end() {
    let stride = Design::stride(INTERVAL).expect("in the domain");
    for exact in [true, false] {
        let mut reference = reference(Strategy::Geometric, &[(64, 100)], exact);
        for totals in reference.strata.values_mut() {
            (totals.unseen_objects, totals.unseen_bytes) = stride.unseen(class(64));
        }
        let empty = of(&Row::default(), &reference, Estimator::Weighted).alloc_space;
        let expected =
            if exact { (6400.0, Method::Weighted) } else { (f64::INFINITY, Method::Stride) };
        assert_eq!((empty.high, empty.method), expected);
        let mut row = Row::default();
        row.stratum(at(64)).add_allocation(&Sample::new(64, stride));
        let space = of(&row, &reference, Estimator::Weighted).alloc_space;
        assert_eq!((space.low, space.high, space.method), (64.0, f64::INFINITY, Method::Stride));
    }
}

#[test]
fn failed_trials_estimate_bytes_only() {
    let mut reference = reference(Strategy::Geometric, &[(64, 1000)], true);
    let mut row = Row::default();
    let sample = Sample { tail: Some(10), ..Sample::new(64, design(Strategy::Geometric)) };
    row.stratum(at(64)).add_allocation(&sample);
    row.stratum(at(64)).add_live(&sample);
    reference.add(&row);
    let of = of(&row, &reference, Estimator::FailedTrials);
    for space in [of.alloc_space, of.inuse_space] {
        assert_eq!(
            (space.value.round(), space.method),
            ((INTERVAL - 1 + 10) as f64, Method::FailedTrials)
        );
    }
    assert_eq!(
        (of.alloc_objects.method, of.inuse_objects.method),
        (Method::Weighted, Method::Weighted)
    );
}
