use super::*;
use sampler_common::cost::{Events, Measured, Placed};
use sampler_common::profile::Exact;
use sampler_common::wire::Role;
use std::time::{Duration, UNIX_EPOCH};

fn tariff(ns: f64) -> Tariff {
    Tariff { hits: [[Some(Measured { ns, variance: ns }); 2]; 2], ..Tariff::default() }
}

fn process(pid: u32, hits: u64) -> ProcessMetrics {
    let mut work = Work::default();
    work.hit(Role::Malloc, Placed::Emulated, Events::exact(hits));
    ProcessMetrics {
        pid,
        comm: format!("p{pid}"),
        attached: UNIX_EPOCH + Duration::from_secs(u64::from(pid)),
        is_running: true,
        work,
        samples: hits / 10,
        exact: Exact { alloc_objects: hits, alloc_space: hits * 100 },
        is_counted: true,
    }
}

fn exited(pid: u32, hits: u64) -> ProcessMetrics {
    ProcessMetrics { is_running: false, ..process(pid, hits) }
}

/// Pids with their own series; and the allocations of these processes, of `other` and of all.
fn objects(of: &Accounts) -> (Vec<u32>, u64, u64, u64) {
    let pids = of.named.iter().map(|of| of.pid).collect();
    let own = of.named.iter().map(|of| of.shown.objects).sum();
    (pids, own, of.other.objects, of.total.objects)
}

#[test]
fn the_costliest_processes_have_series_and_others_a_sum() {
    let mut ledger = Ledger::default();
    let all = [process(1, 100), process(2, 900), process(3, 500), exited(4, 5000)];
    let accounts = ledger.enter_processes(&all, Some(&tariff(500.0)), 2);
    assert_eq!(objects(&accounts), (vec![2, 3], 1400, 5100, 6500));
    let spent = accounts.named[0].shown.spent_ns.unwrap();
    assert_eq!(spent.value, 450_000.0);
    assert!(spent.low < spent.value && spent.value < spent.high, "{spent:?}");
    let other = accounts.other.spent_ns.unwrap();
    assert_eq!(other.value, 5100.0 * 500.0);
    assert!(other.low < other.value && other.value < other.high, "{other:?}");
    assert_eq!(accounts.total.spent_ns.unwrap().value, 6500.0 * 500.0);
    assert_eq!((accounts.other.samples, accounts.total.samples), (510, 650));
    assert_eq!(accounts.total.bytes, 650_000);
}

/// All series together grow by as much as the total, whichever process gets or loses a series.
#[test]
fn growth_is_counted_once() {
    let mut ledger = Ledger::default();
    let mut enter =
        |all: &[ProcessMetrics]| objects(&ledger.enter_processes(all, Some(&tariff(500.0)), 1));
    assert_eq!(enter(&[process(1, 100), process(2, 50)]), (vec![1], 100, 50, 150));
    // Both processes grow.
    assert_eq!(enter(&[process(1, 110), process(2, 70)]), (vec![1], 110, 70, 180));
    // Process 2 gets the series. What it did in `other` stays in `other`, and so does what came
    // meanwhile.
    assert_eq!(enter(&[process(1, 120), process(2, 200)]), (vec![2], 200, 210, 320));
    // From now on the series of process 2 grows.
    assert_eq!(enter(&[process(1, 120), process(2, 260)]), (vec![2], 260, 210, 380));
    // Process 2 exits. Process 1 gets a series again, with all its work since its attach.
    assert_eq!(enter(&[process(1, 125), exited(2, 300)]), (vec![1], 125, 255, 425));
    // Process 3 is the costliest when it first appears, so it was never in `other`. Process 2 is
    // folded into its program.
    let folded = ProcessMetrics { pid: 0, ..exited(9, 300) };
    assert_eq!(enter(&[process(1, 125), folded, process(3, 1000)]), (vec![3], 1000, 255, 1425));
    // The pid of process 3 is reused.
    let again = ProcessMetrics { attached: UNIX_EPOCH, ..process(3, 7) };
    let folded = ProcessMetrics { pid: 0, ..exited(9, 1300) };
    assert_eq!(enter(&[process(1, 125), folded, again]), (vec![1], 125, 262, 1432));
}

#[test]
fn no_counter_falls_when_counts_fall() {
    let mut ledger = Ledger::default();
    let mut last = None;
    for hits in [1000, 1001, 900, 2000, 2001] {
        let all = [process(1, hits), process(2, hits / 2)];
        let accounts = ledger.enter_processes(&all, Some(&tariff(500.0)), 1);
        let shown = [accounts.named[0].shown, accounts.other, accounts.total];
        for (now, before) in shown.iter().zip(last.unwrap_or([Shown::default(); 3])) {
            let range = now.spent_ns.unwrap();
            let earlier = before.spent_ns.unwrap_or_default();
            assert!(range.low >= earlier.low && range.high >= earlier.high, "{range:?}");
            assert!(range.value >= earlier.value);
            assert!(range.low <= range.value && range.value <= range.high, "{range:?}");
            assert!(now.objects >= before.objects && now.samples >= before.samples);
        }
        last = Some(shown);
    }
}

/// malloc's probes do not see what a process allocates that samples by itself.
#[test]
fn a_process_with_partial_numbers_has_no_series() {
    let itself = ProcessMetrics { is_counted: false, ..process(1, 100) };
    let accounts = Ledger::default().enter_processes(&[itself, process(2, 50)], None, 2);
    assert_eq!([0, 1].map(|of| accounts.named[of].shown.is_counted), [false, true]);
    assert!(accounts.total.is_counted && accounts.other.is_counted);
    assert_eq!(accounts.total.objects, 150);
}

#[test]
fn counts_are_shown_without_prices() {
    let mut ledger = Ledger::default();
    let accounts = ledger.enter_processes(&[process(1, 5), process(2, 9)], None, 1);
    assert_eq!(objects(&accounts), (vec![2], 9, 5, 14));
    assert_eq!(accounts.total.spent_ns, None);
}
