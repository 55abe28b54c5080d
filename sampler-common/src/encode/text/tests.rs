use super::super::fixture;
use super::*;
use crate::estimate::plus_minus;
use crate::profile::Line;

fn text(profile: &Profile, width: usize, color: bool) -> String {
    let format = Text { width, color, rows: 20, stacks: 5 };
    String::from_utf8(fixture::encoded(&format, profile)).unwrap()
}

/// Column of the functions' `±`, the one number here that the estimator makes and not the fixture.
const INTERVAL: std::ops::Range<usize> = 24..29;

fn masked(text: &str) -> String {
    let mut parts: Vec<String> = text.split("\n\n").map(str::to_owned).collect();
    let mask = |line: &str| -> String {
        let each = line.chars().enumerate();
        each.map(|(at, c)| if INTERVAL.contains(&at) { '*' } else { c }).collect()
    };
    parts[1] = parts[1].lines().map(mask).collect::<Vec<_>>().join("\n");
    parts.join("\n\n")
}

#[test]
fn golden() {
    for (name, kind, width) in [
        ("alloc.80.txt", Kind::Alloc, 80),
        ("live.60.txt", Kind::Live, 60),
        ("alloc.120.txt", Kind::Alloc, 120),
    ] {
        fixture::golden(name, masked(&text(&fixture::profile(kind), width, false)));
    }
}

#[test]
fn a_function_has_the_interval_of_its_summed_rows() {
    let profile = fixture::profile(Kind::Alloc);
    let text = text(&profile, 80, false);
    let row = text.lines().find(|line| line.ends_with("main.cpp:31")).unwrap();
    let mut sum = crate::estimate::Row::default();
    let under_main = profile.stacks.iter().filter(|stack| stack.locations.contains(&8));
    under_main.for_each(|stack| sum.add(&stack.row));
    let estimate = profile.quantities_of(&sum).alloc_space.estimate;
    let shown: String =
        row.chars().enumerate().filter(|(at, _)| INTERVAL.contains(at)).map(|(_, c)| c).collect();
    assert_eq!(shown.trim(), plus_minus(&estimate), "{row}");
}

#[test]
fn text_keeps_its_width_and_has_no_control_characters() {
    for profile in
        [fixture::profile(Kind::Live), fixture::hostile(), fixture::empty(), fixture::stride()]
    {
        for width in [0, 60, 71, 72, 80, 133] {
            let text = text(&profile, width, false);
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
            for line in text.lines() {
                assert!(layout::columns(line) <= width.max(60), "{width}: {line}");
                assert_eq!(line, line.trim_end(), "{width}");
            }
        }
    }
}

#[test]
fn methods_other_than_the_default_are_named() {
    let remarks =
        |profile: &Profile| text(profile, 80, false).split("\n\n").nth(2).unwrap().to_owned();
    let mut profile = fixture::profile(Kind::Alloc);
    assert!(!remarks(&profile).contains("\nmethod"));
    profile.estimator = crate::estimate::Estimator::Calibrated;
    assert!(remarks(&profile).contains("\nmethod    estimator calibrated\n"));
    profile.strategies.push(crate::sampling::Strategy::Adaptive);
    let both = "method    estimator calibrated, strategy geometric, adaptive\n";
    assert!(remarks(&profile).contains(both), "{}", remarks(&profile));
}

/// The text shows neither a 0 that is unknown nor an interval of it.
#[test]
fn unknown_totals_are_not_printed_as_zero() {
    let mut profile = fixture::profile(Kind::Alloc);
    profile.reference.held_unknown = true;
    let said = text(&profile, 80, false);
    assert!(said.contains("\nheld      not known: frees are not probed\n"), "{said}");
    profile.exact = Some(crate::profile::Exact::default());
    let said = text(&profile, 80, false);
    assert!(said.contains("0 B: no allocation was seen\n"), "{said}");
    assert!(!said.contains("all counted"), "{said}");
}

#[test]
fn exact_totals_of_a_part_are_printed_as_at_least() {
    let mut profile = fixture::profile(Kind::Alloc);
    assert!(text(&profile, 80, false).contains(" allocations, all counted"));
    profile.reference.allocations_unseen = true;
    let said = text(&profile, 80, false);
    assert!(said.contains(" allocations, at least: some are not seen\n"), "{said}");
    assert!(!said.contains("all counted"), "{said}");
}

/// What windows have not seen may be anything; for no objects the table says how many there may be.
#[test]
fn a_total_of_zero_is_printed_with_its_interval() {
    let mut profile = fixture::profile(Kind::Alloc);
    let objects = &mut profile.totals.alloc_objects.estimate;
    (objects.value, objects.low, objects.high) = (0.0, 0.0, 1234.0);
    let said = text(&profile, 80, false);
    assert!(said.contains(" 0 objects (0 … 1.23k)\n"), "{said}");
    let objects = &mut profile.totals.alloc_objects.estimate;
    (objects.value, objects.low, objects.high) = (332.0, 18.0, 2_000_000.0);
    let said = text(&profile, 80, false);
    assert!(said.contains(" 18 … 2.00M objects\n"), "{said}");
    profile.samples = 0;
    profile.totals.alloc_space.estimate.high = f64::INFINITY;
    profile.reference.clusters.insert(1, crate::estimate::Clusters::default());
    let said = text(&profile, 80, false);
    let unmet = "\nallocated not known: no window has seen an allocation\n";
    assert!(said.contains(unmet), "{said}");
}

#[test]
fn text_says_that_a_stride_has_no_interval() {
    let text = text(&fixture::stride(), 80, false);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "allocated 1.30 GiB (no interval) 2.02M objects (no interval)");
    let words = "method    strategy stride: biased on periodic programs, no interval";
    assert!(lines.contains(&words), "{text}");
    assert!(text.contains("607 MiB allocated, no interval, 1,210 samples"), "{text}");
    assert!(!text.contains("inf"), "{text}");
}

#[test]
fn emphasis_only_adds_escape_sequences() {
    let profile = fixture::profile(Kind::Alloc);
    let colored = text(&profile, 80, true);
    let plain: String =
        colored.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "");
    let trimmed = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    assert_ne!(colored, plain);
    assert_eq!(trimmed(&plain), trimmed(&text(&profile, 80, false)));
}

#[test]
fn allocator_entries_own_nothing() {
    let text = text(&fixture::profile(Kind::Alloc), 120, false);
    let table = text.split("\n\n").nth(1).unwrap();
    assert!(!table.contains("malloc ") && !table.contains("operator new"), "{table}");
    // Recursion counts once: parse_value is twice in a stack of 640 samples, once in a stack of 22.
    let parse = table.lines().find(|line| line.contains("parse_value")).unwrap();
    assert!(parse.contains(" 662 "), "{parse}");
}

#[test]
fn rows_and_stacks_are_limited() {
    let profile = fixture::profile(Kind::Alloc);
    let format = Text { width: 80, color: false, rows: 2, stacks: 1 };
    let text = String::from_utf8(fixture::encoded(&format, &profile)).unwrap();
    assert!(text.contains("more functions") && text.contains("4 more stacks"), "{text}");
    let format = Text { rows: 0, stacks: 0, ..format };
    let text = String::from_utf8(fixture::encoded(&format, &profile)).unwrap();
    assert!(!text.contains("\n\n") && text.contains("sampled"), "{text}");
}

#[test]
fn equally_shortened_rows_keep_their_arguments() {
    let mut profile = fixture::profile(Kind::Alloc);
    for (index, key) in [(4, "Session"), (5, "Account")] {
        let function = format!("cache::Table<std::string, {key}>::find(std::string const&)");
        profile.locations[index].lines = vec![Line { function, file: "t.h".into(), line: 9 }];
    }
    let text = text(&profile, 80, false);
    for row in ["  …std::string, Session>::find  ", "  …std::string, Account>::find  "] {
        assert_eq!(text.matches(row).count(), 1, "{text}");
    }
}

#[test]
fn startup_functions_are_listed_last() {
    let text = text(&fixture::profile(Kind::Alloc), 80, false);
    let table: Vec<&str> = text.split("\n\n").nth(1).unwrap().lines().collect();
    assert!(table.last().unwrap().contains("__libc_start_call_main"), "{text}");
}

#[test]
fn notes_say_how_to_name_unnamed_code() {
    let mut profile = fixture::profile(Kind::Alloc);
    let flat = |profile: &Profile| {
        text(profile, 80, false).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(flat(&profile).contains("note libcodec.so+0x… has no name: the file has no build id"));
    // As samplerd names such code.
    let other = "kvstore+0x7008".to_owned();
    profile.locations[4].lines = vec![Line { function: other, ..Line::default() }];
    profile.mappings[0].build_id.clear();
    assert!(flat(&profile).contains("symbols); 1 more file has none either"));
    profile.locations[7].lines[0].function = "decode".into();
    // Code that is in no file has a note of its own.
    profile.mappings[0].path = "[jit 4121]".into();
    profile.locations[4].lines[0].function = "[jit 4121]+0x7008".into();
    assert!(!flat(&profile).contains("has no name"));
}

#[test]
fn many_processes_are_counted() {
    let mut profile = fixture::profile(Kind::Alloc);
    let first = |profile: &Profile| text(profile, 80, false).lines().next().unwrap().to_owned();
    assert!(first(&profile).ends_with(", kvstore (pid 4121 4122)"), "{}", first(&profile));
    profile.process_names.remove(&4122);
    assert!(first(&profile).ends_with(", pid 4122, kvstore (pid 4121)"), "{}", first(&profile));
    let name = profile.process_names[&4121].clone();
    profile.pids.extend(4123..4130);
    profile.process_names.extend((4122..4130).map(|pid| (pid, name.clone())));
    assert!(first(&profile).ends_with(", kvstore (9 processes)"), "{}", first(&profile));
}
