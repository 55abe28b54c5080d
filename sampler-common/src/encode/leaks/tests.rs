use super::*;
use crate::encode::fixture;
use crate::encode::text::layout::columns;
use crate::estimate::{Confidence, Reference, Sample, Stratum, StratumTotals, Turnover};
use crate::leaks::{Blocks, Freed, Leak, Leaks, Ranking, Times};
use crate::profile::{Kind, Line, Profile};
use crate::sampling::{Design, Rate, Strategy};

/// Blocks of 4 KiB.
const STRATUM: Stratum = Stratum { process: 0, class: 9 };

/// The stacks of a profile with the given counts of samples that arrived, that departed, and that
/// arrived and departed.
fn leaks(profile: &Profile, counts: &[[u64; 3]]) -> Leaks {
    let rate = Rate::from_interval(fixture::INTERVAL_BYTES).unwrap();
    let sample = Sample::geometric(4096, rate);
    let blocks: Vec<Blocks> = counts
        .iter()
        .map(|[arrived, departed, passed]| {
            let mut of = Blocks::default();
            (0..*arrived).for_each(|_| of.arrived.add_sample(&sample));
            (0..*departed).for_each(|_| of.departed.add_sample(&sample));
            (0..arrived + passed).for_each(|_| of.allocated.add_sample(sample.bytes()));
            for index in 0..*departed {
                let mut blocks = Turnover::default();
                blocks.add_sample(&sample);
                let freed_age_ns = index * 300_000_000;
                of.freed.push(Freed { allocated_age_ns: 90_000_000_000, freed_age_ns, blocks });
            }
            for index in 0..*arrived + 3 {
                of.row.stratum(STRATUM).add_live(&sample);
                of.ages.push((index * 1_300_000_000 + 5, sample.bytes()));
            }
            of
        })
        .collect();
    let (objects, bytes) = Design::new(Strategy::Geometric, rate).unseen(9);
    let exact = Some((1 << 40, 1 << 28));
    let totals = StratumTotals {
        exact,
        unseen_objects: objects,
        unseen_bytes: bytes,
        ..StratumTotals::default()
    };
    let interval_bytes = fixture::INTERVAL_BYTES as f64;
    let strata = [(STRATUM, totals)].into();
    let reference = Reference { strata, interval_bytes, ..Reference::default() };
    let end_unix_ns = 1_790_000_060_000_000_000;
    let ages_ns = (1..=15).rev().map(|age| age * 4_000_000_000).collect();
    let (times, others) = (Times { ages_ns, end_unix_ns }, Blocks::default());
    let ranking = Ranking::new(blocks, &others, &reference, &times, Confidence::DEFAULT, 0);
    let stacks = ranking.ranked.iter().map(|(index, grown)| {
        let stack = &profile.stacks[*index];
        let frames: Vec<Line> = profile.frames(stack).cloned().collect();
        Leak { pid: stack.pid, frames, grown: grown.clone() }
    });
    Leaks {
        confidence: Confidence::DEFAULT,
        start_unix_ns: 1_790_000_000_000_000_000,
        end_unix_ns,
        total: ranking.total,
        growing: ranking.growing,
        unseen: ranking.unseen,
        max_other_growth: ranking.max_other_growth,
        stacks: stacks.collect(),
        stacks_total: counts.len() as u64,
        notes: vec!["blocks from before the attach are unknown: what is held for longer than 5 m 00 s and then freed still counts as growth".into()],
    }
}

fn growing() -> Leaks {
    let counts = [[61, 2, 0], [190, 201, 1700], [22, 0, 4], [0, 3, 9], [1, 0, 0]];
    leaks(&fixture::profile(Kind::Live), &counts)
}

fn steady() -> Leaks {
    leaks(&fixture::profile(Kind::Live), &[[11, 9, 100], [190, 201, 1700], [2, 0, 4]])
}

#[test]
fn golden() {
    fixture::golden("leaks.80.txt", text(&growing(), 80, 10));
    fixture::golden("leaks.none.80.txt", text(&steady(), 80, 10));
    let json = serde_json::to_string_pretty(&object(&growing())).unwrap() + "\n";
    fixture::golden("leaks.json", json);
}

#[test]
fn growing_stacks_are_counted_and_listed() {
    let text = text(&growing(), 80, 10);
    assert!(text.contains("growing   2 of 5 stacks that changed, by more than chance"), "{text}");
    assert!(
        text.contains("\n1. +") && text.contains("\n2. +") && !text.contains("\n3. "),
        "{text}"
    );
    assert!(text.contains("_M_insert_unique_node"), "{text}");
    let text = super::text(&steady(), 80, 10);
    assert!(text.contains("growing   nothing by more than chance, of 3 stacks"), "{text}");
    assert!(text.contains("missed    a stack may have grown by up to "), "{text}");
    assert!(text.contains("Within chance"), "{text}");
    let text = super::text(&leaks(&fixture::empty(), &[]), 80, 10);
    assert!(text.contains("growing   nothing: no sampled block came"), "{text}");
}

#[test]
fn the_first_sentence_names_the_leak_or_says_why_none() {
    let of = |counts: &[[u64; 3]]| {
        let text = text(&leaks(&fixture::profile(Kind::Live), counts), 200, 10);
        text.lines().nth(1).unwrap().to_owned()
    };
    let grows = of(&[[61, 2, 0]]);
    assert!(grows.starts_with("Store::put(std::string_view, Value&&) (store.cpp:214) of pid 4121"));
    assert!(
        grows.ends_with("KiB/s in the last 1 m 00 s; its oldest block is 1 m 21 s old."),
        "{grows}"
    );
    assert!(of(&[]).starts_with("Nothing is known to grow: no sampled block came"));
    assert!(
        of(&[[2, 1, 0]]).starts_with("Too little was seen to say what grows: 3 sampled blocks")
    );
    assert!(
        of(&[[3, 0, 0]; 5]).starts_with("All stacks together grow by "),
        "{}",
        of(&[[3, 0, 0]; 5])
    );
    assert_eq!(of(&[[190, 201, 1700]]), "Nothing grows by more than chance.");
}

#[test]
fn the_python_function_of_a_leak_is_named() {
    let mut of = growing();
    // Frames are root first.
    let line = |function: &str, file: &str, line| Line {
        function: function.into(),
        file: file.into(),
        line,
    };
    of.stacks[0].frames = vec![
        line("<module>", "/srv/cache.py", 25),
        line("Cache.add", "/srv/cache.py", 8),
        line("os_urandom", "posixmodule.c.h", 7848),
        line("malloc", "", 0),
    ];
    let text = text(&of, 200, 10);
    let answer = text.lines().nth(1).unwrap();
    assert!(answer.starts_with("Cache.add (cache.py:8) of pid 4121 holds more"), "{answer}");
}

#[test]
fn leak_reports_fit_the_page() {
    for of in [
        growing(),
        steady(),
        leaks(&fixture::hostile(), &[[9, 0, 1], [40, 0, 0], [8, 2, 3], [100, 0, 0]]),
        leaks(&fixture::empty(), &[]),
    ] {
        for width in [80, 100, 200] {
            let text = text(&of, width, 100);
            assert!(text.lines().all(|line| columns(line) <= width), "{width}\n{text}");
            assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
        }
    }
}

#[test]
fn omitted_rows_are_counted() {
    assert!(text(&growing(), 80, 1).ends_with("\n… 1 more that grow (--top N shows N)\n"));
}
