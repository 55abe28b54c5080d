//! Laws of costs: works are added before they are charged, and intervals are ordered and cover.

use proptest::prelude::*;
use sampler_common::cost::{Events, Measured, Placed, Tariff, Work};
use sampler_common::estimate::Confidence;
use sampler_common::wire::Role;

fn price() -> impl Strategy<Value = Measured> {
    (1.0..20_000.0f64, 0.0..0.2f64)
        .prop_map(|(ns, relative)| Measured { ns, variance: (ns * relative).powi(2) })
}

fn tariff() -> impl Strategy<Value = Tariff> {
    let hits = proptest::array::uniform2(proptest::array::uniform2(price().prop_map(Some)));
    (hits, price(), price(), price()).prop_map(|(hits, returned, sampled, stack_kib)| Tariff {
        hits,
        return_probe: Some(returned),
        sampled: Some(sampled),
        stack_kib: Some(stack_kib),
    })
}

fn work() -> impl Strategy<Value = Work> {
    let role = prop::sample::select(vec![
        Role::Malloc,
        Role::Calloc,
        Role::Realloc,
        Role::New,
        Role::Free,
        Role::OtelFree,
    ]);
    let placed = prop::sample::select(vec![Placed::Emulated, Placed::SingleStepped]);
    let hits = prop::collection::vec((role, placed, 0..1u64 << 40), 0..6);
    (hits, 0..1u64 << 20, 0..1u64 << 20, 0..65_536u64).prop_map(
        |(hits, returns, samples, bytes)| {
            let mut work = Work::default();
            for (role, placed, count) in hits {
                work.hit(role, placed, Events::exact(count));
            }
            work.returned(Events { variance: returns as f64, ..Events::exact(returns) });
            work.sampled(Events::exact(samples), samples * bytes);
            work
        },
    )
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * (a.abs() + b.abs()) + 1e-3
}

proptest! {
    #[test]
    fn intervals_are_ordered(tariff in tariff(), work in work()) {
        let spent = tariff.charge(&work);
        let range = spent.cpu.range(Confidence::DEFAULT);
        prop_assert!(0.0 <= range.low && range.low <= range.value && range.value <= range.high);
        prop_assert!(spent.cpu.variance >= 0.0 && spent.unpriced >= 0.0);
    }

    /// A sum costs what its parts cost. The parts share the error of a price. The sum's standard
    /// error is therefore at most the sum of theirs, and at least the larger one.
    #[test]
    fn the_cost_of_a_sum_is_the_sum_of_costs(tariff in tariff(), a in work(), b in work()) {
        let mut sum = a;
        sum.add(&b);
        let [a, b, both] = [a, b, sum].map(|work| tariff.charge(&work).cpu);
        prop_assert!(close(both.ns, a.ns + b.ns));
        let largest = (a.variance.sqrt() + b.variance.sqrt()).powi(2);
        prop_assert!(both.variance <= largest * (1.0 + 1e-9) + 1e-3);
        let least = a.variance.max(b.variance);
        prop_assert!(both.variance >= least * (1.0 - 1e-9) - 1e-3);
    }

    #[test]
    fn work_since_a_state_costs_what_was_added(tariff in tariff(), a in work(), b in work()) {
        let mut later = a;
        later.add(&b);
        let since = tariff.charge(&later.since(&a)).cpu;
        prop_assert!(close(since.ns, tariff.charge(&b).cpu.ns));
        prop_assert!(tariff.charge(&a.since(&a)).cpu.ns < 1e-6);
    }
}

/// The interval from the batches covers the true median of an ugly distribution: most batches are
/// alike, some are expensive.
#[test]
fn the_interval_of_a_price_covers_the_median() {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) as f64 / (1u64 << 53) as f64
    };
    let (mut covered, rounds) = (0, 4000);
    for _ in 0..rounds {
        let mut batch = || {
            let dear = random() < 0.2;
            // The median of this distribution is 500 + 20·0.625: the share 0.5 of all batches is
            // within the 0.8 that are not expensive.
            500.0 + 20.0 * random() + if dear { 5000.0 * random() + 20.0 } else { 0.0 }
        };
        let batches: Vec<f64> = (0..25).map(|_| batch()).collect();
        let measured = Measured::of_batches(&batches).unwrap();
        covered += u32::from((measured.ns - 512.5).abs() <= 1.96 * measured.error());
    }
    let share = f64::from(covered) / f64::from(rounds);
    assert!((0.93..=0.999).contains(&share), "{share}");
}
