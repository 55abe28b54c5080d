//! Answers and keys, and the resulting state.

use super::*;
use crate::top::columns::Column;
use crate::top::data::{Daemon, Held, Process};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use sampler_common::cost::{Range, Report};
use sampler_common::estimate::{
    Confidence, Estimate, Estimator, Method, Reference, Row, Sample, Stratum,
};
use sampler_common::profile::{
    Exact, Line, Location, Lost, Mapping, Profile, Quantities, Stack, Window,
};
use sampler_common::sampling::{Design, Strategy, class};
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000_000;
pub(in crate::top) const PID: u32 = 4121;

fn estimate(value: f64) -> Estimate {
    Estimate {
        value,
        low: 0.9 * value,
        high: 1.1 * value,
        confidence: Confidence::DEFAULT,
        samples: 100,
        method: Method::Weighted,
    }
}

/// A process that has allocated `mebibytes` MiB in as many thousand objects, and holds a tenth of
/// the bytes.
pub(in crate::top) fn process(pid: u32, name: &str, mebibytes: u64) -> Process {
    let bytes = mebibytes << 20;
    Process {
        pid,
        name: name.to_owned(),
        attached_unix_ns: SECOND,
        exact: Some(Exact { alloc_objects: mebibytes * 1000, alloc_space: bytes }),
        held: Some(Held {
            bytes: estimate(bytes as f64 / 10.0),
            objects: estimate(mebibytes as f64 * 100.0),
        }),
        cost: Some(Range { value: 0.061, low: 0.055, high: 0.067 }),
        resident: Some(2 * bytes),
        samples: mebibytes,
        interval_bytes: 512 << 10,
    }
}

/// A snapshot of `processes`, `seconds` after the start.
pub(in crate::top) fn snapshot(seconds: u64, processes: Vec<Process>) -> Answer {
    let all = processes.iter().filter_map(|of| of.exact);
    let exact = all.fold(Exact::default(), |sum, of| Exact {
        alloc_objects: sum.alloc_objects + of.alloc_objects,
        alloc_space: sum.alloc_space + of.alloc_space,
    });
    let range = |value: f64| Some(Range { value, low: 0.9 * value, high: 1.1 * value });
    Answer::Snapshot(Box::new(Snapshot {
        daemon: Daemon { version: "0.1.0".into(), pid: 812, uptime: Duration::from_secs(65) },
        time_ns: seconds * SECOND,
        processes,
        exited: 300,
        exact,
        held: Some(Held { bytes: estimate(9.5e7), objects: estimate(139e3) }),
        cost: Some(Report {
            spent_ns: range(1.23e9),
            processor_ns: range(2e10),
            ..Report::default()
        }),
        lost: vec![Lost {
            outcome: "ring_full".into(),
            samples: 4,
            alloc_space: None,
            alloc_objects: None,
        }],
        interval_bytes: 512 << 10,
    }))
}

/// A profile of three functions in two stacks. One name would rewrite the screen if it were printed
/// as it is.
pub(in crate::top) fn detail(requested: DetailRequest) -> Answer {
    const INTERVAL: u64 = 512 << 10;
    let row = |size, samples| {
        let design = Design::from_interval(Strategy::Geometric, INTERVAL, 1.0).expect("in range");
        let mut row = Row::default();
        let moments = row.stratum(Stratum { process: 0, class: class(size) as u8 });
        let sample = Sample { tail: Some(size / 2), ..Sample::new(size, design) };
        (0..samples).for_each(|_| moments.add_allocation(&sample));
        (0..samples / 10).for_each(|_| moments.add_live(&sample));
        row
    };
    let rows = [row(100_000, 300), row(64, 40)];
    let mut reference = Reference { interval_bytes: INTERVAL as f64, ..Reference::default() };
    rows.iter().for_each(|row| reference.add(row));
    let make =
        |row: &Row| Quantities::of_row(row, &reference, Estimator::default(), Confidence::DEFAULT);
    let line = |function: &str, file: &str, line| Line {
        function: function.into(),
        file: file.into(),
        line,
    };
    let at = |mapping, address, line| Location { mapping, address, lines: vec![line] };
    let stack = |row: &Row, function| Stack {
        pid: PID,
        locations: vec![0, function, 2],
        row: row.clone(),
        quantities: make(row),
    };
    let mapping = |path: &str| Mapping { path: path.into(), build_id: "c047".into(), code: None };
    let profile = Profile {
        kind: requested.kind,
        confidence: Confidence::DEFAULT,
        time_unix_ns: 20 * SECOND,
        duration_ns: 10 * SECOND,
        interval_bytes: INTERVAL,
        estimator: Estimator::default(),
        strategies: vec![Strategy::Geometric],
        sources: vec![],
        pids: vec![PID],
        process_names: BTreeMap::new(),
        totals: make(&reference.row()),
        exact: None,
        window: requested
            .window
            .map(|_| Window { start_unix_ns: 10 * SECOND, end_unix_ns: 20 * SECOND }),
        samples: 340,
        lost: vec![],
        mappings: vec![mapping("/usr/lib/libc.so.6"), mapping("/usr/bin/kvstore")],
        locations: vec![
            at(0, 0x97880, line("malloc", "", 0)),
            at(1, 0x1000, line("load_file(std::string const&)", "src/load.c", 12)),
            at(1, 0x2000, line("main", "src/main.c", 31)),
            at(1, 0x3000, line("evil\n;\u{1b}[2J\u{202e}漢字name", "", 0)),
        ],
        stacks_total: 2,
        functions: None,
        stacks: vec![stack(&rows[0], 1), stack(&rows[1], 3)],
        reference,
        notes: vec![],
        cost: None,
    };
    Answer::Detail(Box::new(Detail::of(requested, profile, None)))
}

pub(in crate::top) fn press(model: &mut Model, keys: &[KeyCode]) -> Outcome {
    let mut outcome = Outcome::Stay;
    for key in keys {
        outcome = model.key(KeyEvent::new(*key, KeyModifiers::NONE));
    }
    outcome
}

pub(in crate::top) fn typed(model: &mut Model, text: &str) {
    let keys: Vec<KeyCode> = text.chars().map(KeyCode::Char).collect();
    press(model, &keys);
}

/// A model with three processes, after two snapshots that are one second apart.
pub(in crate::top) fn three() -> Model {
    let mut model = Model::new(Kind::Alloc, (80, 24));
    for (time, more) in [(1, 0), (2, 10)] {
        model.answered(snapshot(
            time,
            vec![
                process(PID, "kvstore", 100 + more),
                process(4200, "python3", 900),
                process(17, "postgres", 50 + 2 * more),
            ],
        ));
    }
    model
}

fn pids(model: &Model) -> Vec<u32> {
    model.lines().into_iter().map(|line| model.processes()[line].pid).collect()
}

fn marked(model: &Model) -> Option<Item> {
    model.item(*model.lines().get(model.page().cursor.at)?)
}

#[test]
fn rates_are_differences_of_the_counts() {
    let model = three();
    let rate = |pid| model.rates.of(pid).unwrap().rate.unwrap();
    assert_eq!((rate(PID).bytes, rate(PID).objects), (f64::from(10 << 20), 10_000.0));
    assert_eq!(rate(4200).bytes, 0.0);
    assert_eq!(model.rates.all.rate.unwrap().bytes, f64::from(30 << 20));
    assert_eq!(pids(&model), [17, PID, 4200], "most allocated in a second comes first");
}

#[test]
fn rates_of_a_new_process_count_all_its_bytes() {
    let mut model = three();
    let with = |more: Vec<Process>| {
        snapshot(
            4,
            [vec![process(PID, "kvstore", 110), process(17, "postgres", 70)], more].concat(),
        )
    };
    model.answered(with(vec![process(5, "new", 8)]));
    assert_eq!(model.rates.of(5).unwrap().rate.unwrap().bytes, f64::from(4 << 20));
    assert!(model.rates.of(4200).is_none(), "what is gone is forgotten");
    // A process that reuses a pid, and a process that is not counted.
    let other = Process { attached_unix_ns: 7, ..process(5, "other", 6) };
    let uncounted = Process { exact: None, ..process(6, "own", 6) };
    let Answer::Snapshot(mut next) = with(vec![other, uncounted]) else { unreachable!() };
    next.time_ns = 6 * SECOND;
    model.answered(Answer::Snapshot(next.clone()));
    assert_eq!(model.rates.of(5).unwrap().rate.unwrap().bytes, f64::from(3 << 20));
    assert_eq!(model.rates.of(6).unwrap().rate, None);
    // A different samplerd has counted since a different time.
    next.daemon.pid += 1;
    next.time_ns += SECOND;
    model.answered(Answer::Snapshot(next));
    assert_eq!((model.rates.all.rate, model.rates.of(5).unwrap().rate), (None, None));
}

#[test]
fn the_marked_process_stays_marked_when_sorted() {
    let mut model = three();
    press(&mut model, &[KeyCode::Down]);
    assert_eq!(marked(&model), Some(Item::Process(PID)));
    press(&mut model, &[KeyCode::Char('l')]);
    assert_eq!(pids(&model), [4200, PID, 17], "what is held most comes first");
    model.answered(snapshot(3, vec![process(PID, "kvstore", 5000), process(9, "new", 1)]));
    assert_eq!((pids(&model), marked(&model)), (vec![PID, 9], Some(Item::Process(PID))));
    press(&mut model, &[KeyCode::End, KeyCode::PageDown]);
    assert_eq!(marked(&model), Some(Item::Process(9)));
    press(&mut model, &[KeyCode::Home]);
    assert_eq!(model.page().cursor.item, None, "at the top is whoever is first");
}

#[test]
fn processes_are_filtered_and_searched() {
    let mut model = three();
    press(&mut model, &[KeyCode::F(4)]);
    typed(&mut model, "POST");
    assert_eq!(pids(&model), [17]);
    press(&mut model, &[KeyCode::Backspace, KeyCode::Enter]);
    assert_eq!((pids(&model), model.prompt), (vec![17], None));
    press(&mut model, &[KeyCode::Esc]);
    assert_eq!(pids(&model).len(), 3, "Esc ends the filter");
    press(&mut model, &[KeyCode::Char('/')]);
    typed(&mut model, "o");
    assert_eq!(marked(&model), Some(Item::Process(17)));
    press(&mut model, &[KeyCode::F(3)]);
    assert_eq!(marked(&model), Some(Item::Process(PID)));
    press(&mut model, &[KeyCode::Enter, KeyCode::Char('n'), KeyCode::Char('n')]);
    assert_eq!(marked(&model), Some(Item::Process(17)), "it begins again");
    typed(&mut model, "/q");
    assert_eq!(model.prompt, Some(Prompt::Search), "a letter that is typed is no key");
    assert_eq!(press(&mut model, &[KeyCode::Esc, KeyCode::Char('q')]), Outcome::Quit);
}

#[test]
fn processes_are_sorted_by_the_chosen_column() {
    let mut model = three();
    press(&mut model, &[KeyCode::F(6), KeyCode::Home, KeyCode::Enter]);
    assert_eq!((model.sorted(), pids(&model)), (Column::Pid, vec![17, PID, 4200]));
    press(&mut model, &[KeyCode::Char('I')]);
    assert_eq!(pids(&model), [4200, PID, 17]);
    press(&mut model, &[KeyCode::Char('>'), KeyCode::End, KeyCode::Enter]);
    assert_eq!((model.sorted(), pids(&model)), (Column::Name, vec![PID, 17, 4200]));
    press(&mut model, &[KeyCode::Char('>'), KeyCode::Up, KeyCode::Esc]);
    assert_eq!((model.sorted(), model.over), (Column::Name, None));
}

#[test]
fn pages_open_from_process_to_stack_and_back() {
    let mut model = three();
    press(&mut model, &[KeyCode::Down, KeyCode::Enter]);
    let requested = model.question().process.expect("a process is open");
    assert_eq!((requested.pid, requested.kind, requested.window), (PID, Kind::Alloc, WINDOWS[0]));
    assert!(model.detail().is_none() && model.lines().is_empty());
    model.answered(detail(requested.clone()));
    let names = |model: &Model| -> Vec<String> {
        let functions = &model.detail().expect("it was answered").functions.0;
        model.lines().into_iter().map(|line| functions[line].name.clone()).collect()
    };
    assert_eq!(names(&model)[0], "load_file(std::string const&)");
    assert_eq!(names(&model).last().unwrap(), "main", "it allocates nothing itself");
    // Numbers are per second of a window of ten seconds.
    let detail_of = model.detail().unwrap();
    let whole = detail_of.profile.totals.alloc_space.estimate;
    assert!((detail_of.total().value - whole.value / 10.0).abs() < 1e-6);
    assert!((detail_of.total().high - whole.high / 10.0).abs() < 1e-6);

    press(&mut model, &[KeyCode::Enter]);
    assert_eq!(model.lines(), [0], "one stack goes through it");
    press(&mut model, &[KeyCode::Enter]);
    assert!(matches!(&model.page().list, List::Frames(frames) if frames.len() == 3));
    press(&mut model, &[KeyCode::Enter, KeyCode::Esc, KeyCode::Esc]);
    assert_eq!(model.page().list, List::Functions);
    press(&mut model, &[KeyCode::F(5)]);
    assert_eq!((&model.page().list, model.lines()), (&List::Stacks(None), vec![0, 1]));
    // A different kind is a different question. The answer to the last question is not shown for
    // it.
    press(&mut model, &[KeyCode::Tab]);
    assert_eq!(model.question().process.unwrap().kind, Kind::Live);
    assert!(model.detail().is_none());
    model.answered(Answer::Refused(model.question().process.unwrap(), "no frees".into()));
    assert_eq!(model.refused(), Some("no frees"));
    press(&mut model, &[KeyCode::BackTab, KeyCode::Char('w')]);
    assert_eq!(model.question().process.unwrap().window, WINDOWS[1]);
    press(&mut model, &[KeyCode::Esc, KeyCode::Esc]);
    assert_eq!(model.question().process, None);
    assert_eq!(marked(&model), Some(Item::Process(PID)));
}

#[test]
fn a_frozen_screen_does_not_change() {
    let mut model = three();
    press(&mut model, &[KeyCode::Char(' ')]);
    model.answered(snapshot(9, vec![]));
    assert_eq!((model.question().frozen, pids(&model).len()), (true, 3));
    // An answer that was missing when the screen was frozen is still shown, once.
    press(&mut model, &[KeyCode::Enter]);
    let requested = model.question().process.unwrap();
    model.answered(detail(requested.clone()));
    let functions = model.lines().len();
    assert!(functions > 0);
    let Answer::Detail(mut empty) = detail(requested) else { unreachable!() };
    empty.functions.0.clear();
    model.answered(Answer::Detail(empty));
    assert_eq!(model.lines().len(), functions);
    press(&mut model, &[KeyCode::Char('z')]);
    model.answered(snapshot(10, vec![]));
    assert!(model.processes().is_empty());
}

#[test]
fn the_last_numbers_stay_while_the_daemon_is_gone() {
    let mut model = three();
    model.now = Duration::from_secs(5);
    model.answered(Answer::Lost("a".into()));
    model.now = Duration::from_secs(9);
    model.answered(Answer::Lost("b".into()));
    assert_eq!(model.lost, Some((Duration::from_secs(5), "b".into())));
    assert_eq!(pids(&model).len(), 3, "the last numbers stay");
    model.answered(snapshot(3, vec![process(1, "x", 1)]));
    assert_eq!(model.lost, None);
}

#[test]
fn any_key_on_any_page_is_accepted() {
    let keys: Vec<KeyCode> = [
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Left,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Tab,
        KeyCode::BackTab,
        KeyCode::Backspace,
        KeyCode::Delete,
    ]
    .into_iter()
    .chain((1..=12).filter(|n| *n != 10).map(KeyCode::F))
    .chain("abhklpwtnzI/\\<> ?x".chars().map(KeyCode::Char))
    .collect();
    let mut random = fastrand::Rng::with_seed(7);
    for size in [(80, 24), (40, 8), (0, 0), (3, 300)] {
        let mut model = three();
        model.resized(size);
        for _ in 0..3000 {
            let key = keys[random.usize(..keys.len())];
            press(&mut model, &[key]);
            if let Some(requested) = model.question().process.filter(|_| random.u8(..4) == 0) {
                model.answered(detail(requested));
            }
            assert!(model.page().cursor.at <= model.lines().len());
        }
    }
}
