//! Laws of moments and intervals that hold for every input.

use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy as Generator;
use sampler_common::estimate::{Confidence, Method, Moments, RowMoments, Sample, weighted};
use sampler_common::sampling::{Design, Rate, Strategy};

/// Samples as the kernel may deliver them: any size, any raw rate.
fn samples() -> impl Generator<Value = Vec<(u64, Rate)>> {
    let size = (0u32..64, any::<u64>()).prop_map(|(shift, size)| size >> shift);
    let rate =
        (0u32..64, any::<u64>()).prop_map(|(shift, raw)| Rate::from_raw((raw >> shift).max(1)));
    proptest::collection::vec((size, rate), 0..20)
}

fn row(samples: &[(u64, Rate)]) -> RowMoments {
    let mut row = RowMoments::default();
    for (size, rate) in samples {
        row.add_allocation(&Sample::geometric(*size, *rate));
        row.add_live(&Sample::geometric(*size, *rate));
    }
    row
}

/// Equal up to the rounding of sums.
fn close(a: &Moments, b: &Moments) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * a.abs().max(b.abs());
    a.samples == b.samples
        && near(a.sum, b.sum)
        && near(a.variance, b.variance)
        && near(a.own, b.own)
        && a.largest == b.largest
        && a.largest_inclusion == b.largest_inclusion
}

fn confidence() -> impl Generator<Value = Confidence> {
    prop_oneof![
        (0.01f64..0.999).prop_map(|level| Confidence::new(level).expect("between 0 and 1")),
        (3i32..15).prop_map(|digits| Confidence::new(1.0 - 10f64.powi(-digits)).expect("between 0 and 1")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_add_in_any_order(a in samples(), b in samples(), c in samples()) {
        let (mut left, mut right) = (row(&a), row(&c));
        left.add(&row(&b));
        left.add(&row(&c));
        right.add(&row(&b));
        right.add(&row(&a));
        let at_once = row(&[a, b, c].concat());
        for (left, right, once) in [
            (&left.alloc_space, &right.alloc_space, &at_once.alloc_space),
            (&left.inuse_objects, &right.inuse_objects, &at_once.inuse_objects),
        ] {
            prop_assert!(close(left, right) && close(left, once), "{left:?} {right:?} {once:?}");
        }
    }

    #[test]
    fn intervals_are_finite_and_in_order(
        samples in samples(), confidence in confidence(), interval in 1.0f64..1e16,
    ) {
        let row = row(&samples);
        for moments in [&row.alloc_space, &row.alloc_objects] {
            let estimate = weighted(moments, interval, confidence);
            prop_assert!(estimate.low.is_finite() && estimate.high.is_finite(), "{estimate:?}");
            prop_assert_eq!(estimate.method, Method::Weighted);
            prop_assert!(0.0 <= estimate.low && estimate.low <= estimate.value, "{estimate:?}");
            prop_assert!(estimate.value <= estimate.high, "{estimate:?}");
            prop_assert!(estimate.low >= moments.own.min(moments.sum), "{estimate:?}");
            prop_assert_eq!(estimate.value, moments.sum);
            prop_assert_eq!((estimate.samples, estimate.method), (moments.samples, Method::Weighted));
        }
    }

    #[test]
    fn any_numbers_give_finite_intervals(
        samples in 1u64.., sum in 0.0f64..1e300, variance in prop_oneof![any::<f64>(), proptest::strategy::Just(f64::INFINITY)], largest: f64, inclusion: f64, own: f64,
        interval: f64, confidence in confidence(),
    ) {
        let moments = Moments { samples, sum, variance, largest, largest_inclusion: inclusion, own };
        let estimate = weighted(&moments, interval, confidence);
        prop_assert!(estimate.low.is_finite(), "{estimate:?}");
        // The upper end is infinite only if the variance is.
        prop_assert_eq!(estimate.high == f64::INFINITY, variance == f64::INFINITY && sum > 0.0);
        prop_assert!(estimate.low <= estimate.value && estimate.value <= estimate.high);
    }

    #[test]
    fn a_higher_confidence_gives_a_wider_interval(samples in samples(), a in confidence(), b in confidence()) {
        let row = row(&samples);
        let (less, more) = if a.level() < b.level() { (a, b) } else { (b, a) };
        let narrow = weighted(&row.alloc_space, 4096.0, less);
        let wide = weighted(&row.alloc_space, 4096.0, more);
        prop_assert!(wide.low <= narrow.low * (1.0 + 1e-9), "{narrow:?} {wide:?}");
        prop_assert!(wide.high >= narrow.high * (1.0 - 1e-9), "{narrow:?} {wide:?}");
    }

    #[test]
    fn estimates_of_fully_sampled_rows_are_exact(sizes in proptest::collection::vec(any::<u32>(), 0..20)) {
        let samples: Vec<_> = sizes.iter().map(|size| (u64::from(*size), Rate::ALWAYS)).collect();
        let row = row(&samples);
        let bytes: f64 = sizes.iter().map(|size| f64::from(*size)).sum();
        for (moments, truth) in [(&row.alloc_space, bytes), (&row.alloc_objects, sizes.len() as f64)] {
            let estimate = weighted(moments, 1.0, Confidence::DEFAULT);
            prop_assert_eq!((estimate.low, estimate.value, estimate.high), (truth, truth, truth));
        }
    }
}

#[test]
fn rows_without_samples_have_an_upper_bound() {
    let estimate = weighted(&Moments::default(), 1000.0, Confidence::DEFAULT);
    assert_eq!((estimate.value, estimate.low, estimate.samples), (0.0, 0.0, 0));
    assert!((estimate.high - 1000.0 * 40f64.ln()).abs() < 1e-9);
    // At most with probability α/2, this many bytes have no sample.
    assert!((1.0f64 - 1.0 / 1000.0).powf(estimate.high) <= 0.025);
    // A sampled malloc(0) carries no information about bytes either.
    let mut moments = Moments::default();
    moments.add_sample(0.0, 0.001);
    assert_eq!(weighted(&moments, 1000.0, Confidence::DEFAULT).high, estimate.high);
}

/// One sample of a tiny block is a Poisson count of 1: Garwood's exact interval, 0.0253 to 5.572.
#[test]
fn one_sample_is_a_poisson_count_of_one() {
    let mut moments = Moments::default();
    moments.add_sample(1.0, 1e-9);
    let estimate = weighted(&moments, 1e9, Confidence::DEFAULT);
    assert!((estimate.low / 1e9 - 0.025318).abs() < 1e-5, "{estimate:?}");
    assert!((estimate.high / 1e9 - 5.571643).abs() < 1e-5, "{estimate:?}");
}

/// Points of a stride have their own bytes, and no upper end. Sums with other samples have no upper
/// end either.
#[test]
fn a_stride_has_no_upper_end() {
    let design = Design::stride(4096).expect("in the domain");
    let mut row = RowMoments::default();
    row.add_allocation(&Sample { hits: 3, ..Sample::new(10_000, design) });
    row.add_allocation(&Sample::new(100, design));
    row.add_allocation(&Sample::geometric(64, Rate::ALWAYS));
    let of = |moments| weighted(moments, 4096.0, Confidence::DEFAULT);
    let (space, objects) = (of(&row.alloc_space), of(&row.alloc_objects));
    assert_eq!((space.low, space.value), (10_000.0 + 100.0 + 64.0, 4.0 * 4096.0 + 64.0));
    assert_eq!((space.high, space.method), (f64::INFINITY, Method::Stride));
    assert_eq!((objects.low, objects.high), (3.0, f64::INFINITY));
    // No other interval is infinite: not with one sample of the smallest rate, not with the largest
    // request.
    let mut row = RowMoments::default();
    row.add_allocation(&Sample::geometric(u64::MAX, Rate::from_raw(1)));
    row.add_allocation(&Sample::geometric(1, Rate::from_raw(1)));
    let space = of(&row.alloc_space);
    assert!(space.high.is_finite() && space.method == Method::Weighted, "{space:?}");
}

/// Points of the Poisson strategy are a Poisson count: Garwood's interval times the sampling
/// interval, plus the certain bytes.
#[test]
fn poisson_points_are_a_poisson_count() {
    let interval = 4096.0;
    let design = Design::from_interval(Strategy::Poisson, 4096, 1.0).expect("in the domain");
    let certain = 10_000 * 4096;
    let mut row = RowMoments::default();
    row.add_allocation(&Sample { hits: 4, ..Sample::new(4096, design) });
    row.add_allocation(&Sample { hits: 6, ..Sample::new(100, design) });
    for with_certain in [0.0, certain as f64] {
        if with_certain > 0.0 {
            row.add_allocation(&Sample::new(certain, design));
        }
        let space = weighted(&row.alloc_space, interval, Confidence::DEFAULT);
        // Garwood's limits of 10 events, 4.7954 and 18.3904.
        let of = [space.low, space.value, space.high].map(|at| (at - with_certain) / interval);
        for (got, expected) in of.into_iter().zip([4.79539, 10.0, 18.39036]) {
            assert!((got / expected - 1.0).abs() < 1e-5, "{space:?}");
        }
    }
}
