//! Adaptive rates keep the budget and the floor, and no other rates are better.

use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use proptest::strategy::Strategy as _;
use sampler_common::limits::CLASSES;
use sampler_common::sampling::adaptive::FLOOR;
use sampler_common::sampling::rate::HAZARD_ONE;
use sampler_common::sampling::{ClassUse, Design, Rate, Strategy, adapt, class_bounds};

fn size(class: &ClassUse) -> f64 {
    (class.bytes / class.objects).max(1.0)
}

/// Uses of at most ten of the classes 1 … 27. Some classes are not used, some have no live blocks.
fn uses() -> impl proptest::strategy::Strategy<Value = [ClassUse; CLASSES]> {
    let one = (1usize..28, 0.0f64..1.0, 0.0f64..7.0, -6.0f64..0.0, any::<bool>());
    proptest::collection::vec(one, 1..10).prop_map(|list| {
        let mut classes = [ClassUse::default(); CLASSES];
        for (class, within, digits, share, lives) in list {
            let (low, high) = class_bounds(class);
            let objects = 10f64.powf(digits).round();
            let size = low as f64 + within * (high - low) as f64;
            let live_objects = if lives { objects * 10f64.powf(share) } else { 0.0 };
            classes[class] = ClassUse { objects, bytes: size * objects, live_objects };
        }
        classes
    })
}

/// The chance p of each used class at the rate of its design.
fn chances(classes: &[ClassUse], designs: &[Design]) -> Vec<f64> {
    let chance = |(class, design): (&ClassUse, &Design)| {
        let hazard = design.rate().raw() as f64 / HAZARD_ONE as f64;
        if *design == Design::new(Strategy::Adaptive, Rate::ALWAYS) {
            return 1.0;
        }
        if class.objects > 0.0 { -(-hazard * size(class)).exp_m1() } else { 0.0 }
    };
    classes.iter().zip(designs).map(chance).collect()
}

fn cost(classes: &[ClassUse], chances: &[f64]) -> f64 {
    classes.iter().zip(chances).map(|(class, p)| class.objects * p).sum()
}

fn variance(classes: &[ClassUse], chances: &[f64]) -> f64 {
    let term = |(class, p): (&ClassUse, &f64)| match class.live_objects {
        0.0 => 0.0,
        live => live * size(class).powi(2) * (1.0 - p) / p,
    };
    classes.iter().zip(chances).map(term).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rates_spend_the_budget_above_the_floor(classes in uses(), digits in 0.0f64..8.0) {
        let interval = 10f64.powf(digits);
        let designs = adapt(&classes, interval);
        let same = Rate::from_probability(1.0 / interval).unwrap();
        let geometric = [Design::new(Strategy::Adaptive, same); CLASSES];
        let budget = cost(&classes, &chances(&classes, &geometric));
        let spent = cost(&classes, &chances(&classes, &designs));
        // Rates are rounded to 2⁻⁴⁸.
        prop_assert!((spent / budget - 1.0).abs() < 1e-5, "{spent} of {budget}");
        for design in designs {
            prop_assert_eq!(design.strategy(), Some(Strategy::Adaptive));
            let floor = FLOOR * same.raw() as f64 - 1.0;
            prop_assert!(design.rate().raw() as f64 >= floor, "{design:?} below {floor}");
        }
    }

    /// No transfer of budget between two classes lowers the variance, apart from rounding.
    #[test]
    fn no_other_rates_have_a_lower_variance(classes in uses(), digits in 1.0f64..7.0, from in 0usize..CLASSES, to in 0usize..CLASSES, part in 1e-3f64..0.5) {
        let interval = 10f64.powf(digits);
        let given = chances(&classes, &adapt(&classes, interval));
        let hazard = -(-1.0 / interval).ln_1p();
        let floor = |class: &ClassUse| -(-FLOOR * hazard * size(class)).exp_m1();
        let used: Vec<usize> = (0..CLASSES).filter(|class| classes[*class].objects > 0.0).collect();
        if used.is_empty() {
            return Ok(());
        }
        let (from, to) = (used[from % used.len()], used[to % used.len()]);
        if from == to {
            return Ok(());
        }
        let mut other = given.clone();
        other[from] = floor(&classes[from]).max(given[from] * (1.0 - part)).min(given[from]);
        let moved = (given[from] - other[from]) * classes[from].objects / classes[to].objects;
        if moved <= 0.0 || given[to] + moved > 1.0 {
            return Ok(());
        }
        other[to] = given[to] + moved;
        let (best, tried) = (variance(&classes, &given), variance(&classes, &other));
        prop_assert!(tried >= best * (1.0 - 1e-6), "{tried} beats {best}");
    }
}

#[test]
fn rates_without_learned_classes_are_geometric() {
    let geometric = Design::from_interval(Strategy::Adaptive, 4096, 1.0).unwrap();
    let mut classes = [ClassUse::default(); CLASSES];
    assert_eq!(adapt(&classes, 4096.0), [geometric; CLASSES]);
    classes[4] = ClassUse { objects: 1e6, bytes: 1e8, live_objects: 0.0 };
    assert_eq!(adapt(&classes, 4096.0), [geometric; CLASSES]);
    classes[4] = ClassUse { objects: f64::NAN, bytes: 1e8, live_objects: 1.0 };
    assert_eq!(adapt(&classes, 4096.0), [geometric; CLASSES]);
    assert_eq!(adapt(&classes, 1.0)[0].inclusion(1), Some(1.0));
    for interval in [f64::NAN, f64::INFINITY, 1e300] {
        assert_eq!(adapt(&classes, interval)[0].rate(), Rate::LOWEST);
    }
}

#[test]
fn classes_with_more_live_blocks_have_higher_rates() {
    let mut classes = [ClassUse::default(); CLASSES];
    classes[3] = ClassUse { objects: 1e6, bytes: 64e6, live_objects: 10_000.0 };
    classes[4] = ClassUse { objects: 1e6, bytes: 128e6, live_objects: 90_000.0 };
    let designs = adapt(&classes, 524_288.0);
    // λ is proportional to √(live shares), 0.1 and 0.3.
    let ratio = designs[4].rate().raw() as f64 / designs[3].rate().raw() as f64;
    assert!((ratio / 3.0 - 1.0).abs() < 1e-3, "{ratio}");
}

/// A class that must be certain leaves its rest to the others. If all live blocks are certain, the
/// floor takes the rest.
#[test]
fn a_capped_class_leaves_its_budget_to_other_classes() {
    let mut classes = [ClassUse::default(); CLASSES];
    classes[3] = ClassUse { objects: 1e6, bytes: 64e6, live_objects: 1e3 };
    classes[20] = ClassUse { objects: 3.0, bytes: 24e6, live_objects: 3.0 };
    let designs = adapt(&classes, 524_288.0);
    assert_eq!(designs[20].rate(), Rate::ALWAYS);
    let budget = 1e6 * (-(-64.0 / 524_288.0f64).exp_m1()) + 3.0;
    let rest = 1e6 * designs[3].inclusion(64).unwrap();
    assert!((rest / (budget - 3.0) - 1.0).abs() < 1e-3, "{rest} of {budget}");
    classes[3].live_objects = 0.0;
    let again = adapt(&classes, 524_288.0);
    assert_eq!(again[20].rate(), Rate::ALWAYS);
    let raised = again[3].rate().raw() as f64 / designs[3].rate().raw() as f64;
    assert!((raised - 1.0).abs() < 1e-3, "{raised}");
}
