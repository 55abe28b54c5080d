use super::*;
use crate::store::process::Processes;
use crate::store::{
    ClassTotals, Lifetimes, LiveSample, LiveSamples, Rows, Sampling, SamplingRecord, StackId,
    Windows,
};
use proptest::prelude::*;
use sampler_common::counting::Counted;
use sampler_common::estimate::{Confidence, Moments, Sample};
use sampler_common::limits::CLASSES;
use sampler_common::sampling::{Rate, class};
use sampler_common::share::Holder;
use sampler_common::wire::{HITS_SWITCH, Space};

const STACKS: [StackId; 2] = [StackId::LOST, StackId::TABLE_FULL];
const PROGRAMS: [&str; 3] = ["make", "cc1", "sh"];
const SECOND: u64 = 1_000_000_000;

/// An allocation: stack, size, seconds until its free.
type Call = (usize, u64, u64);
/// A process: its program, and its calls.
type Life = (usize, Vec<Call>);

#[derive(Default)]
struct Store {
    processes: Processes,
    rows: Rows,
    live: LiveSamples,
    lifetimes: Lifetimes,
    samples: u64,
}

impl Store {
    /// A process starts, allocates and exits.
    fn run(&mut self, windows: &mut Windows, life: &Life, pid: u32, now_ns: u64) {
        let sampling = Arc::new(SamplingRecord::new(Sampling::geometric(4096)));
        let mut record = ProcessRecord::new(pid, sampling);
        record.comm = PROGRAMS[life.0].to_owned();
        let process = self.processes.insert(record);
        let mut totals = ClassTotals::default();
        for (stack, size, seconds) in &life.1 {
            let sample = Sample::geometric(*size, Rate::from_interval(512).unwrap());
            totals.bytes[class(*size)] += size;
            totals.objects[class(*size)] += 1;
            self.rows.add(Holder::of_unknown_user(process), STACKS[*stack], &sample);
            windows.add(process, STACKS[*stack], &sample, now_ns);
            let space = Space { slot: 0, generation: 0 };
            let live =
                LiveSample { process, space, stack: STACKS[*stack], sample, time_ns: now_ns };
            self.samples += 1;
            self.live.insert(self.samples, live);
            if seconds % 2 == 0 {
                self.live.remove(self.samples);
                self.lifetimes.freed(&live, 1, now_ns + seconds * SECOND);
            }
        }
        windows.observe(process, &totals, &[0; CLASSES], &[]);
        windows.forget(process);
        for live in self.live.remove_where(|_, live| live.process == process) {
            self.lifetimes.ended(&live, 1, now_ns + 9 * SECOND);
        }
        let record = self.processes.get_mut(process);
        record.final_lost = vec![(SizeCell::of(64), RowMoments::default())];
        record.final_free_calls = HITS_SWITCH.counted(life.1.len() as u64);
        record.final_totals = Some(Box::new(totals));
        self.processes.exit(process);
    }

    fn fold(&mut self, windows: &mut Windows, most: usize, at_once: usize) {
        let moves = self.processes.fold_beyond(most, at_once);
        self.rows.fold(&moves, Holder::of_unknown_user);
        self.live.fold(&moves, Holder::of_unknown_user);
        self.lifetimes.fold(&moves, Holder::of_unknown_user);
        windows.fold(&moves);
    }

    /// All sums of a program.
    fn sums(&self, windows: &Windows, program: &str) -> Sums {
        let of: Vec<ProcessId> = self
            .processes
            .iter()
            .filter(|(_, record)| record.comm == program)
            .map(|(id, _)| id)
            .collect();
        let mut sums = Sums::default();
        for record in of.iter().map(|id| self.processes.get(*id)) {
            sums.processes += record.exited_count.max(1);
            sums.exact.add(record.final_totals.as_ref().unwrap());
            sums.frees.add(&record.final_free_calls);
            sums.lost += record.final_lost.len().min(1) as u64;
        }
        sums.lost = sums.lost.min(1);
        for (key, moments) in self.rows.iter().filter(|(key, _)| of.contains(&key.process)) {
            sums.stacks[usize::from(key.stack == STACKS[1])].add(moments);
        }
        let window = windows.between(0, u64::MAX, 1 << 60).unwrap();
        for (key, row) in window.rows().filter(|(key, _)| of.contains(&key.process)) {
            let mut moments = RowMoments::default();
            row.add_to(&mut moments);
            sums.window[usize::from(key.stack == STACKS[1])].add(&moments);
        }
        for (_, totals) in window.exact().iter().filter(|(id, _)| of.contains(id)) {
            sums.window_exact.add(totals);
        }
        let lives = self.lifetimes.by_stack(&self.live, 0, |id| of.contains(&id));
        for life in lives.values() {
            sums.freed += life.freed;
            sums.byte_seconds.add(&life.byte_seconds);
        }
        for live in self.live.at_peak().filter(|live| of.contains(&live.process)) {
            sums.at_peak += live.sample.bytes();
        }
        sums.peak = of.iter().filter_map(|id| self.live.peaks().get(*id)).map(|p| p.bytes).sum();
        sums
    }
}

#[derive(Debug, Default)]
struct Sums {
    processes: u64,
    exact: ClassTotals,
    frees: Counted,
    lost: u64,
    stacks: [RowMoments; 2],
    window: [RowMoments; 2],
    window_exact: ClassTotals,
    freed: u64,
    byte_seconds: Moments,
    at_peak: f64,
    peak: f64,
}

/// Whether two sums are equal but for the order of additions.
fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

fn close_moments(a: &Moments, b: &Moments) -> bool {
    a.samples == b.samples
        && close(a.sum, b.sum)
        && close(a.variance, b.variance)
        && (a.largest, a.own) == (b.largest, b.own)
}

fn assert_equal(before: &Sums, after: &Sums) {
    assert_eq!((before.processes, before.freed), (after.processes, after.freed));
    assert_eq!(before.exact, after.exact);
    assert_eq!(before.window_exact, after.window_exact);
    assert_eq!(before.frees, after.frees);
    assert_eq!(before.lost, after.lost);
    for (a, b) in
        before.stacks.iter().chain(&before.window).zip(after.stacks.iter().chain(&after.window))
    {
        assert!(close_moments(&a.alloc_space, &b.alloc_space), "{a:?} {b:?}");
        assert!(close_moments(&a.alloc_objects, &b.alloc_objects), "{a:?} {b:?}");
        assert!(close(a.alloc_trials.failures, b.alloc_trials.failures), "{a:?} {b:?}");
    }
    assert!(close_moments(&before.byte_seconds, &after.byte_seconds));
    assert!(close(before.at_peak, after.at_peak) && close(before.peak, after.peak));
    assert!(close(after.peak, after.at_peak), "{} {}", after.peak, after.at_peak);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Folding changes no sum of any program.
    #[test]
    fn folding_changes_no_total(
        lives in prop::collection::vec(
            (0usize..3, prop::collection::vec((0usize..2, 0u64..5000, 0u64..6), 0..8)), 1..60),
        most in 0usize..8,
        at_once in 1usize..6,
    ) {
        let (mut folding, mut keeping) = (Store::default(), Store::default());
        let (mut folded, mut kept) = (Windows::new(0), Windows::new(0));
        for (number, life) in (1u32..).zip(&lives) {
            let now_ns = u64::from(number) * SECOND / 3;
            folding.run(&mut folded, life, number, now_ns);
            keeping.run(&mut kept, life, number, now_ns);
            folding.fold(&mut folded, most, at_once);
            for windows in [&mut folded, &mut kept] {
                if windows.is_due(now_ns) {
                    windows.close(now_ns);
                }
            }
        }
        for program in PROGRAMS {
            assert_equal(&keeping.sums(&kept, program), &folding.sums(&folded, program));
        }
        let (exited, groups, processes) = folding.processes.usage();
        prop_assert!(exited < most + at_once && groups <= PROGRAMS.len());
        prop_assert_eq!(exited as u64 + processes, lives.len() as u64);
        for number in 1..=lives.len() as u32 {
            let is_there = folding.processes.iter().any(|(_, record)| record.pid == number);
            prop_assert_eq!(folding.processes.was_folded(number), !is_there);
        }
    }
}

#[test]
fn memory_stays_within_bounds_and_sums_stay_exact() {
    let mut processes = Processes::default();
    let sampling = Arc::new(SamplingRecord::new(Sampling::geometric(4096)));
    let mut moved = 0;
    for number in 0..20_000u32 {
        // Most processes are of one program; some have a name of their own each.
        let mut record = ProcessRecord::new(number + 1, Arc::clone(&sampling));
        record.comm = if number % 8 == 0 { format!("test-{number}") } else { "make".to_owned() };
        let mut totals = ClassTotals { bytes: [1; CLASSES], ..ClassTotals::default() };
        totals.objects[3] = 7;
        record.final_totals = Some(Box::new(totals));
        let id = processes.insert(record);
        processes.exit(id);
        moved += processes.fold().from().count();
    }
    let (exited, groups, folded) = processes.usage();
    assert!(moved > 10_000 && exited < 4096 && groups <= MAX_GROUPS, "{moved} {exited} {groups}");
    assert_eq!(exited as u64 + folded, 20_000);
    assert!(processes.iter().count() <= exited + groups);
    let mut sum = ClassTotals::default();
    processes.iter().for_each(|(_, record)| sum.add(record.final_totals.as_ref().unwrap()));
    assert_eq!((sum.bytes[9], sum.objects[3]), (20_000, 140_000));
    let largest = processes.iter().max_by_key(|(_, record)| record.exited_count).unwrap().1;
    assert!(largest.label().starts_with("make × "), "{}", largest.label());
    let others = processes.iter().find(|(_, record)| record.comm == OTHERS).unwrap().1;
    assert!(others.exited_count > 1);
    assert_eq!(others.final_free_calls.count(Confidence::DEFAULT).value, 0.0);
}

#[test]
fn moves_are_followed_to_the_last_process() {
    let mut moves = Moves::default();
    let [a, b, c] = [1, 2, 3].map(ProcessId);
    moves.enter(a, b);
    moves.enter(b, c);
    assert_eq!([a, b, c].map(|id| moves.get(id)), [Some(c), Some(c), None]);
}

/// Processes of different rates in one record: the allocations of each rate stay separate.
#[test]
fn folded_processes_keep_their_rates_apart() {
    let exited = |interval, bytes| {
        let sampling = Arc::new(SamplingRecord::new(Sampling::geometric(interval)));
        let mut record = ProcessRecord::new(1, sampling);
        let mut totals = ClassTotals::default();
        (totals.bytes[3], totals.objects[3]) = (bytes, bytes / 64);
        record.final_totals = Some(Box::new(totals));
        record
    };
    let mut sum = exited(4096, 640).nobody();
    sum.absorb(exited(4096, 640));
    sum.absorb(exited(4096, 64));
    assert_eq!(sum.epochs, None);
    sum.absorb(exited(1 << 20, 6400));
    sum.absorb(exited(4096, 128));
    let epochs = sum.epochs.as_ref().unwrap();
    let all = epochs.of_class(3, sum.final_totals.as_ref().unwrap());
    let all: Vec<_> = all.iter().map(|of| (of.bytes, of.alloc.bytes.log2().round())).collect();
    assert_eq!(all, [(832, 12.0), (6400, 20.0)]);
}

#[test]
fn a_table_keeps_no_memory_of_entries_that_are_gone() {
    let mut table: FxHashMap<u32, u64> = (0..10_000).map(|key| (key, 1)).collect();
    let full = table.capacity();
    table.retain(|key, _| key % 2 == 0);
    give_back(&mut table);
    assert_eq!(table.capacity(), full, "half of the entries may come back");
    table.retain(|key, _| *key < 200);
    give_back(&mut table);
    assert!((100..=400).contains(&table.capacity()), "{}", table.capacity());
    table.clear();
    give_back(&mut table);
    assert_eq!(table.capacity(), 0);
}
