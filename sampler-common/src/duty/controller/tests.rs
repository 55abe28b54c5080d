use super::*;
use crate::duty::waits::Waits;

fn timers() -> Timers {
    Timers::new(Budget::parse("1%").unwrap(), 2_000.0, 0.0)
}

const TICK: f64 = 2_001_000.0;

/// A program of so many hits in a tick, each 600 ns, for so many ticks; the share of its time that profiling took.
fn run(hits: f64, fixed_ns: f64, ticks: u64) -> (f64, u32, f64) {
    let budget = Budget::parse("1%").unwrap();
    let mut controller = Controller::new(budget, timers());
    let (mut ledger, mut windows, mut seen) = (Ledger::default(), 0, 0.0);
    while ledger.clock < ticks {
        let window = controller.next(&ledger, false, || fastrand(windows));
        assert!(window.share <= 1.0 && window.ticks > 0 && window.offset < window.length);
        let own = window.length_ns / TICK;
        ledger.clock += window.length;
        ledger.own_ns = ledger.clock as f64 * TICK;
        let samples = hits * own * 100.0 / window.interval_bytes as f64;
        let probes_ns = hits * 600.0 * own + samples * SAMPLE_NS / 4.0;
        // Of the tick in which probes come.
        let fixed_ns = fixed_ns + 0.9 * hits * 600.0 * own / window.ticks as f64;
        let bytes = hits * own * 100.0;
        controller.ended(&WindowCost {
            length_ns: window.length_ns,
            ticks: window.ticks,
            probes_ns,
            fixed_ns,
            marking_ns: None,
            drag_ns: 0.0,
            waited: None,
            bytes,
            samples: samples as u64,
        });
        ledger.spent_ns += probes_ns + fixed_ns;
        seen += own;
        windows += 1;
    }
    (ledger.spent_ns / ledger.own_ns, windows, seen / ledger.clock as f64)
}

fn fastrand(number: u32) -> f64 {
    f64::from(number.wrapping_mul(2_654_435_769)) / 4_294_967_296.0
}

#[test]
fn the_budget_is_kept_and_used() {
    // Two minutes of CPU time; from a loop of nothing but malloc to a program that hardly allocates.
    for (hits, least_windows) in [(40_000.0, 30), (4_000.0, 60), (100.0, 80), (1.0, 100)] {
        let (share, windows, seen) = run(hits, 4e6, 60_000);
        assert!(share <= 0.0101, "{hits}: {share}");
        assert!(windows >= least_windows, "{hits}: {windows} windows");
        assert!(share > 0.006 || seen > 0.9, "{hits}: {share}, {seen} of the time");
    }
}

#[test]
fn a_program_that_hardly_allocates_is_seen_nearly_always() {
    let (_, windows, seen) = run(1.0, 1e6, 60_000);
    assert!(seen > 0.7 && windows > 100, "{seen} {windows}");
}

#[test]
fn the_first_window_comes_soon_and_is_short() {
    let mut controller = Controller::new(Budget::parse("1%").unwrap(), timers());
    let window = controller.next(&Ledger::default(), false, || 0.999);
    assert!(window.length as f64 * TICK < 1.5e9, "{window:?}");
    assert!(window.length_ns <= 1e6 && window.fine, "{window:?}");
    assert!(controller.period_ns() < 1.5e9);
    assert_eq!(window.interval_bytes, 65_536);
    // Nor is the one behind it that was planned since nothing came of the first.
    let again = controller.next(&Ledger::default(), false, || 0.999);
    assert!(again.length_ns <= 1e6, "{again:?}");
}

#[test]
fn a_window_that_met_nothing_is_no_reason_for_a_long_one() {
    let mut controller = Controller::new(Budget::parse("20%").unwrap(), timers());
    let mut last = controller.next(&Ledger::default(), false, || 0.5);
    for _ in 0..20 {
        let (length_ns, ticks) = (last.length_ns, last.ticks);
        controller.ended(&WindowCost { length_ns, ticks, fixed_ns: 3e6, ..Default::default() });
        let next = controller.next(&Ledger::default(), false, || 0.5);
        assert!(next.length_ns <= 2.0 * last.length_ns, "{last:?} {next:?}");
        assert!(next.interval_bytes * 4 >= last.interval_bytes / 2, "{last:?} {next:?}");
        last = next;
    }
    assert!(last.length_ns > 150e6 && !last.fine && last.interval_bytes == 1, "{last:?}");
}

#[test]
fn debts_are_paid_before_the_next_window() {
    let mut controller = Controller::new(Budget::parse("1%").unwrap(), timers());
    let own = Ledger { clock: 1000, own_ns: 1000.0 * TICK, spent_ns: 0.01 * 1000.0 * TICK };
    let debt = Ledger { spent_ns: 0.05 * 1000.0 * TICK, ..own };
    let (own, debt) = (controller.next(&own, false, || 0.5), controller.next(&debt, false, || 0.5));
    assert!(debt.length > own.length + 1000, "{own:?} {debt:?}");
}

/// Ticks of the last windows of a program of which a window of c ticks costs this much beside attaching, and what is done in it differs by chance alone.
fn ticks_of(slowdown: f64, marking: Option<f64>) -> f64 {
    let timers = Timers::new(Budget::parse("1%").unwrap(), 20_000.0, 0.0);
    let mut controller = Controller::new(Budget::parse("1%").unwrap(), timers);
    let (mut waits, mut sum) = (Waits(1), 0.0);
    for at in 0..200 {
        let window = controller.next(&Ledger::default(), marking.is_some(), || 0.5);
        let waited = waits.of(window.ticks);
        let bytes = 100.0 * waited;
        controller.ended(&WindowCost {
            length_ns: window.length_ns,
            ticks: window.ticks,
            probes_ns: slowdown * waited * timers.unit(window.fine),
            fixed_ns: 15e6,
            marking_ns: marking.map(|part| part * window.length_ns),
            drag_ns: 0.0,
            waited: None,
            bytes,
            samples: 0,
        });
        sum += if at >= 100 { window.ticks as f64 } else { 0.0 };
    }
    sum / 100.0
}

#[test]
fn chance_is_not_taken_for_what_windows_differ_in() {
    // √(15 ms/7.5 ms · 0.97/0.02) = 9.8; by distances that are never less than nothing it was 3.5.
    let ticks = ticks_of(30.0, None);
    assert!((7.0..13.0).contains(&ticks), "{ticks}");
}

#[test]
fn what_goes_with_the_length_of_a_window_does_not_make_it_longer() {
    let (without, with) = (ticks_of(1.0, None), ticks_of(1.0, Some(2.0)));
    assert!((with / without - 1.0).abs() < 0.05, "{without} {with}");
}
