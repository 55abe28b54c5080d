use super::*;
use sampler_common::sampling::{Rate, size_bucket};

const SECOND: u64 = SLOT_NS;
const START: u64 = 500 * SECOND;

const PROCESS: ProcessId = ProcessId(3);
const STACK: StackId = StackId::TABLE_FULL;

/// A program that allocates a block of `size` bytes in the middle of every second.
struct Program {
    windows: Windows,
    totals: ClassTotals,
    now: u64,
}

impl Program {
    fn new() -> Program {
        Program { windows: Windows::new(START), totals: ClassTotals::default(), now: START }
    }

    fn second(&mut self, size: u64) {
        let sample = Sample::geometric(size, Rate::ALWAYS);
        assert!(self.windows.add(PROCESS, STACK, &sample, self.now + SECOND / 2));
        let class = usize::from(SizeCell::of(size).class);
        self.totals.bytes[class] += size;
        self.totals.objects[class] += 1;
        self.now += SECOND;
        assert!(self.windows.is_due(self.now));
        self.windows.observe(PROCESS, &self.totals, &[0; CLASSES], &[]);
        self.windows.close(self.now);
    }

    fn seconds(&mut self, number: u64) {
        (0..number).for_each(|_| self.second(64));
    }

    fn between(&self, since: u64, until: u64) -> Result<Window<'_>, TooOld> {
        self.windows.between(START + since, START + until, self.now)
    }
}

fn sampled(window: &Window) -> RowMoments {
    let mut sum = RowMoments::default();
    window.rows().for_each(|(_, row)| row.add_to(&mut sum));
    sum
}

fn counted(window: &Window) -> (u64, u64) {
    let exact = window.exact().get(&PROCESS).copied().unwrap_or_default();
    (exact.bytes.iter().sum(), exact.objects.iter().sum())
}

#[test]
fn windows_have_the_samples_of_their_time() {
    let mut program = Program::new();
    (1..=10).for_each(|size| program.second(size));
    // Seconds 3 to 5 (from 2 s to 5 s), from border to border.
    let window = program.between(2 * SECOND, 5 * SECOND).unwrap();
    assert_eq!((window.start_ns, window.end_ns), (START + 2 * SECOND, START + 5 * SECOND));
    assert_eq!(sampled(&window).alloc_space.sum, 12.0);
    assert_eq!(counted(&window), (12, 3));
    assert!(window.has(START + 2 * SECOND) && !window.has(START + 5 * SECOND));
    // Other times are rounded outward.
    let window = program.between(2 * SECOND + SECOND / 9, 4 * SECOND + SECOND / 9).unwrap();
    assert_eq!((window.start_ns, window.end_ns), (START + 2 * SECOND, START + 5 * SECOND));
    // Times within the tolerance of a border count as the border.
    let window = program.between(2 * SECOND - 1, 5 * SECOND + 1).unwrap();
    assert_eq!((window.start_ns, window.end_ns), (START + 2 * SECOND, START + 5 * SECOND));
    // The last instant is in the newest slot.
    let window = program.between(10 * SECOND, 10 * SECOND).unwrap();
    assert_eq!((window.start_ns, window.end_ns), (program.now, program.now));
    assert_eq!(counted(&window), (0, 0));
    let everything = program.between(0, u64::MAX - START).unwrap();
    assert_eq!((counted(&everything), sampled(&everything).alloc_space.sum), ((55, 10), 55.0));
}

#[test]
fn a_late_sample_is_added_to_the_slot_of_its_time() {
    let mut program = Program::new();
    program.seconds(300);
    let sample = Sample::geometric(1000, Rate::ALWAYS);
    for second in [0, 7, 200, 299] {
        assert!(program.windows.add(PROCESS, STACK, &sample, START + second * SECOND + 1));
    }
    for (since, until) in [(0, 7), (0, 8), (199, 201), (299, 300)] {
        let window = program.between(since * SECOND, until * SECOND).unwrap();
        let late = [0, 7, 200, 299].map(|second| u64::from(window.has(START + second * SECOND)));
        let blocks = (window.end_ns - window.start_ns) / SECOND + late.iter().sum::<u64>();
        assert_eq!(sampled(&window).alloc_objects.samples, blocks, "{since} {until}");
    }
    // A sample from before the first slot is in no window.
    assert!(program.windows.add(PROCESS, STACK, &sample, START - 1));
    let everything = program.between(0, 300 * SECOND).unwrap();
    assert_eq!(sampled(&everything).alloc_objects.samples, 304);
}

#[test]
fn older_slots_are_coarser_and_sums_stay() {
    let mut program = Program::new();
    program.seconds(4000);
    let recent = program.between(3990 * SECOND, 3991 * SECOND).unwrap();
    assert_eq!(recent.end_ns - recent.start_ns, SECOND);
    let minutes_ago = program.between(3500 * SECOND, 3501 * SECOND).unwrap();
    assert_eq!(minutes_ago.end_ns - minutes_ago.start_ns, 10 * SECOND);
    let hour_ago = program.between(100 * SECOND, 101 * SECOND).unwrap();
    assert_eq!(hour_ago.end_ns - hour_ago.start_ns, 60 * SECOND);
    for window in [recent, minutes_ago, hour_ago, program.between(0, 4000 * SECOND).unwrap()] {
        let seconds = (window.end_ns - window.start_ns) / SECOND;
        assert_eq!(counted(&window), (64 * seconds, seconds));
        assert_eq!(sampled(&window).alloc_objects.samples, seconds);
    }
}

#[test]
fn slots_follow_each_other_without_gaps() {
    let mut program = Program::new();
    program.seconds(30_000);
    let slots: Vec<&Slot> = program.windows.slots().collect();
    assert!(slots.windows(2).all(|pair| pair[0].end_ns == pair[1].start_ns));
    assert!(slots.len() < 850, "{}", slots.len());
    let entries: usize = slots.iter().map(|slot| slot.entries()).sum();
    assert_eq!(entries, program.windows.entries);
}

#[test]
fn the_oldest_slots_are_dropped_after_a_day() {
    let mut program = Program::new();
    let hours = 35;
    program.seconds(hours * 3600);
    let Err(TooOld { oldest_ns }) = program.between(0, SECOND).map(|window| window.start_ns) else {
        panic!("a window from the start")
    };
    let held = (program.now - oldest_ns) / SECOND;
    assert!((30 * 3600..32 * 3600).contains(&held), "{held}");
    let all = program.windows.between(oldest_ns, program.now, program.now).unwrap();
    assert_eq!(counted(&all), (64 * held, held));
}

#[test]
fn windows_before_the_first_slot_are_empty() {
    let mut program = Program::new();
    program.seconds(3);
    let window = program.windows.between(0, START + SECOND, program.now).unwrap();
    assert_eq!((window.start_ns, counted(&window)), (START, (64, 1)));
    let before = program.windows.between(0, 1, program.now).unwrap();
    assert_eq!((before.start_ns, before.end_ns, counted(&before)), (START, START, (0, 0)));
}

#[test]
fn rows_are_bounded() {
    let mut program = Program::new();
    program.windows.bound = 20;
    program.seconds(100); // a row and a total each
    assert!(program.windows.entries <= 20);
    assert!(program.between(0, SECOND).is_err());
    let window = program.between(95 * SECOND, 100 * SECOND).unwrap();
    assert_eq!(counted(&window), (320, 5));
    // The newest slot alone: rows that do not fit lose their stack.
    let now = program.now;
    let add = |program: &mut Program, process| {
        let sample = Sample::geometric(64, Rate::ALWAYS);
        program.windows.add(ProcessId(process), StackId::LOST, &sample, now)
    };
    let fitting = (0..30).filter(|process| add(&mut program, *process)).count();
    assert_eq!(fitting, 20);
    let window = program.windows.between(now, now, now + 1).unwrap();
    let full = window.rows().filter(|(key, _)| key.stack == StackId::TABLE_FULL);
    assert_eq!((full.count(), window.rows().count()), (10, 30));
}

#[test]
fn lost_samples_belong_to_the_slot_they_were_seen_in() {
    let mut windows = Windows::new(START);
    let design = Design::new(sampler_common::sampling::Strategy::Geometric, Rate::ALWAYS).word();
    let key = LostKey { design, slot: 0, bucket: size_bucket(100) };
    let cell = |samples| LostCell { samples, bytes: 100 * samples, hits: samples, tails: samples };
    let totals = ClassTotals::default();
    windows.observe(PROCESS, &totals, &[0; CLASSES], &[(key, cell(2))]);
    windows.close(START + SECOND);
    windows.observe(PROCESS, &totals, &[0; CLASSES], &[(key, cell(7))]);
    windows.close(START + 2 * SECOND);
    // The kernel slot belongs to another process now, whose counters begin at zero.
    windows.forget(PROCESS);
    windows.observe(PROCESS, &totals, &[0; CLASSES], &[(key, cell(1))]);
    windows.close(START + 3 * SECOND);
    let lost = [0, 1, 2].map(|second| {
        let since = START + second * SECOND;
        let window = windows.between(since, since + 1, START + 4 * SECOND).unwrap();
        assert!(window.rows().all(|(key, _)| key.stack == StackId::LOST));
        sampled(&window).alloc_space.sum
    });
    assert_eq!(lost, [200.0, 500.0, 100.0]);
}

#[test]
fn closed_windows_are_adjacent_and_have_each_sample_once() {
    let mut program = Program::new();
    let (mut border, mut bytes, mut windows) = (0, 0.0, Vec::new());
    for round in 0..50 {
        program.seconds(round % 7);
        // Half a second is in the open slot.
        let sample = Sample::geometric(64, Rate::ALWAYS);
        program.windows.add(PROCESS, STACK, &sample, program.now + SECOND / 3);
        let window = program.windows.closed(border, program.now + SECOND / 2);
        bytes += sampled(&window).alloc_space.sum;
        windows.push([window.start_ns, window.end_ns]);
        border = window.end_ns;
    }
    assert!(windows.windows(2).all(|pair| pair[0][1] == pair[1][0]), "{windows:?}");
    assert_eq!((windows[0], border), ([START, START], program.now));
    let open = program.windows.between(border, program.now + SECOND / 2, program.now + SECOND / 2);
    let all = program.windows.between(0, program.now + SECOND, program.now + SECOND).unwrap();
    let open = sampled(&open.unwrap()).alloc_space.sum;
    assert_eq!(bytes + open, sampled(&all).alloc_space.sum);
}

#[test]
fn a_merged_border_leaves_a_gap_and_no_overlap() {
    let mut program = Program::new();
    program.seconds(5);
    let end_ns = program.windows.closed(0, program.now).end_ns;
    assert_eq!(end_ns, START + 5 * SECOND);
    // Ten slots were merged to one, which began before the border.
    program.seconds(200);
    let next = program.windows.closed(end_ns, program.now);
    assert_eq!((next.start_ns, next.end_ns), (START + 10 * SECOND, program.now));
}
