use super::super::fixture;
use super::*;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::Read;

fn decoded(profile: &Profile) -> message::Profile {
    let file = fixture::encoded(&Pprof, profile);
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&file[..]).read_to_end(&mut bytes).unwrap();
    message::Profile::decode(&bytes[..]).unwrap()
}

/// The profile as a reader would show it, in the manner of `pprof -raw`.
fn raw(profile: &message::Profile) -> String {
    let text = |index: i64| &profile.string_table[index as usize];
    let value = |label: &message::Label| match label.str {
        0 => label.num.to_string(),
        index => text(index).clone(),
    };
    let mut out = String::new();
    writeln!(out, "drop {}", text(profile.drop_frames)).unwrap();
    for of in &profile.sample_type {
        let default = profile.default_sample_type == of.r#type;
        let mark = if default { " [default]" } else { "" };
        writeln!(out, "type {}/{}{mark}", text(of.r#type), text(of.unit)).unwrap();
    }
    let period = profile.period_type.unwrap();
    writeln!(out, "period {} {}/{}", profile.period, text(period.r#type), text(period.unit))
        .unwrap();
    writeln!(out, "time {} duration {}", profile.time_nanos, profile.duration_nanos).unwrap();
    for comment in &profile.comment {
        writeln!(out, "comment {}", text(*comment)).unwrap();
    }
    for sample in &profile.sample {
        let labels: Vec<_> = sample
            .label
            .iter()
            .map(|label| format!("{}={}", text(label.key), value(label)))
            .collect();
        writeln!(out, "sample {:?} {:?} {}", sample.value, sample.location_id, labels.join(" "))
            .unwrap();
    }
    for location in &profile.location {
        writeln!(
            out,
            "location {} {:#x} mapping {}",
            location.id, location.address, location.mapping_id
        )
        .unwrap();
        for line in &location.line {
            let function = profile.function[line.function_id as usize - 1];
            writeln!(out, "  {} {}:{}", text(function.name), text(function.filename), line.line)
                .unwrap();
        }
    }
    for mapping in &profile.mapping {
        let has = [
            mapping.has_functions,
            mapping.has_filenames,
            mapping.has_line_numbers,
            mapping.has_inline_frames,
        ]
        .map(|has| if has { '+' } else { '-' });
        writeln!(
            out,
            "mapping {} {:#x}..{:#x}+{:#x} {} {} {}",
            mapping.id,
            mapping.memory_start,
            mapping.memory_limit,
            mapping.file_offset,
            text(mapping.filename),
            text(mapping.build_id),
            has.iter().collect::<String>()
        )
        .unwrap();
    }
    out
}

/// Checks what `profile.CheckValid` of the reference implementation requires.
fn check(profile: &message::Profile) {
    assert_eq!(profile.string_table[0], "");
    let strings = 0..profile.string_table.len() as i64;
    let mappings: HashSet<u64> = profile.mapping.iter().map(|mapping| mapping.id).collect();
    let functions: HashSet<u64> = profile.function.iter().map(|function| function.id).collect();
    let locations: HashSet<u64> = profile.location.iter().map(|location| location.id).collect();
    assert_eq!(mappings.len(), profile.mapping.len());
    assert_eq!(functions.len(), profile.function.len());
    assert_eq!(locations.len(), profile.location.len());
    assert!(!mappings.contains(&0) && !functions.contains(&0) && !locations.contains(&0));
    for function in &profile.function {
        assert!(strings.contains(&function.name) && strings.contains(&function.filename));
    }
    for location in &profile.location {
        assert!(!location.line.is_empty());
        assert!(location.line.iter().all(|line| functions.contains(&line.function_id)));
        if location.mapping_id != 0 {
            let mapping = &profile.mapping[location.mapping_id as usize - 1];
            assert!((mapping.memory_start..mapping.memory_limit).contains(&location.address));
        }
    }
    for sample in &profile.sample {
        assert_eq!(sample.value.len(), profile.sample_type.len());
        assert!(!sample.location_id.is_empty());
        assert!(sample.location_id.iter().all(|id| locations.contains(id)));
    }
    let mut ranges: Vec<_> = profile
        .mapping
        .iter()
        .map(|mapping| (mapping.memory_start, mapping.memory_limit))
        .collect();
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "overlap: {ranges:x?}");
}

#[test]
fn golden() {
    let message = decoded(&fixture::profile(Kind::Alloc));
    check(&message);
    fixture::golden("alloc.pprof.txt", raw(&message));
}

#[test]
fn only_a_window_has_a_duration() {
    let mut profile = fixture::profile(Kind::Alloc);
    assert_eq!(decoded(&profile).duration_nanos, 0);
    profile.window = Some(crate::profile::Window { start_unix_ns: 1, end_unix_ns: 2 });
    assert_eq!(decoded(&profile).duration_nanos, 12_345_678_901);
    profile.kind = Kind::Peak;
    assert_eq!(decoded(&profile).duration_nanos, 0);
}

#[test]
fn comments_say_where_an_interval_is_missing() {
    let text = raw(&decoded(&fixture::stride()));
    assert!(text.contains("comment estimator points, strategy stride\n"), "{text}");
    assert!(text.contains("no interval, at least") && !text.contains("inf"), "{text}");
}

#[test]
fn every_profile_is_valid() {
    for profile in
        [fixture::profile(Kind::Live), fixture::hostile(), fixture::empty(), fixture::stride()]
    {
        check(&decoded(&profile));
    }
}

#[test]
fn offsets_in_files_can_be_recovered() {
    for profile in [fixture::profile(Kind::Alloc), fixture::hostile()] {
        let message = decoded(&profile);
        for (location, of) in message.location.iter().zip(&profile.locations) {
            let mapping = &message.mapping[location.mapping_id as usize - 1];
            let offset = location.address - mapping.memory_start + mapping.file_offset;
            assert_eq!(offset & 0xff_ffff_ffff, of.address & 0xff_ffff_ffff);
        }
    }
}

#[test]
fn a_row_without_frames_keeps_its_bytes() {
    let message = decoded(&fixture::hostile());
    assert_eq!(message.sample.len(), 4);
    assert!(message.string_table.iter().any(|text| text == NO_STACK));
}
