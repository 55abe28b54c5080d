use super::super::fixture;
use super::*;
use message::{Dictionary, KeyValueAndUnit};
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

fn decoded(profile: &profile::Profile) -> ProfilesData {
    ProfilesData::decode(&fixture::encoded(&Otlp, profile)[..]).unwrap()
}

fn shown(value: &Option<AnyValue>) -> String {
    match value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        None => String::new(),
    }
}

/// Checks what the comments of the published proto require of a dictionary and of references to it.
fn check(data: &ProfilesData) {
    let Dictionary {
        mapping_table,
        location_table,
        function_table,
        link_table,
        string_table,
        attribute_table,
        stack_table,
    } = data.dictionary.as_ref().unwrap();
    assert_eq!(mapping_table[0], Default::default());
    assert_eq!(location_table[0], Default::default());
    assert_eq!(function_table[0], Default::default());
    assert_eq!(link_table[0], Default::default());
    assert_eq!(string_table[0], "");
    assert_eq!(attribute_table[0], KeyValueAndUnit::default());
    assert_eq!(stack_table[0], Default::default());
    let within = |index: &i32, length: usize| usize::try_from(*index).is_ok_and(|at| at < length);
    let unique = |texts: Vec<String>| {
        assert_eq!(texts.iter().collect::<HashSet<_>>().len(), texts.len(), "dupes: {texts:?}");
    };
    unique(string_table.clone());
    unique(function_table.iter().map(|of| format!("{of:?}")).collect());
    unique(attribute_table.iter().map(|of| format!("{of:?}")).collect());
    unique(stack_table.iter().map(|of| format!("{of:?}")).collect());
    for attribute in &attribute_table[1..] {
        assert!(within(&attribute.key_strindex, string_table.len()) && attribute.key_strindex > 0);
        assert!(within(&attribute.unit_strindex, string_table.len()));
    }
    for location in &location_table[1..] {
        assert!(within(&location.mapping_index, mapping_table.len()));
        let mapping = &mapping_table[location.mapping_index as usize];
        let range = mapping.memory_start..=mapping.memory_limit;
        assert!(range.contains(&location.address));
        for line in &location.lines {
            assert!(within(&line.function_index, function_table.len()));
        }
    }
    for stack in &stack_table[1..] {
        assert!(!stack.location_indices.is_empty());
        assert!(stack.location_indices.iter().all(|at| within(at, location_table.len())));
    }
    let scopes = data.resource_profiles.iter().flat_map(|of| &of.scope_profiles);
    for scope in scopes {
        let keys = &scope.scope.as_ref().unwrap().attributes;
        unique(keys.iter().map(|attribute| attribute.key.clone()).collect());
        for sample in scope.profiles.iter().flat_map(|profile| &profile.samples) {
            assert!(within(&sample.stack_index, stack_table.len()) && sample.stack_index > 0);
            assert_eq!(sample.values.len(), 1);
            assert!(sample.attribute_indices.iter().all(|at| within(at, attribute_table.len())));
        }
    }
}

/// The attributes of a sample by key.
fn attributes(data: &ProfilesData, sample: &Sample) -> BTreeMap<String, String> {
    let dictionary = data.dictionary.as_ref().unwrap();
    let text = |index: i32| dictionary.string_table[index as usize].as_str();
    let each = sample.attribute_indices.iter().map(|at| {
        let attribute = &dictionary.attribute_table[*at as usize];
        let unit = text(attribute.unit_strindex);
        let value = format!("{} {unit}", shown(&attribute.value));
        (text(attribute.key_strindex).to_owned(), value.trim_end().to_owned())
    });
    each.collect()
}

/// Function names of a stack, root first.
fn names(data: &ProfilesData, stack: i32) -> Vec<String> {
    let dictionary = data.dictionary.as_ref().unwrap();
    let mut names = Vec::new();
    for at in dictionary.stack_table[stack as usize].location_indices.iter().rev() {
        for line in dictionary.location_table[*at as usize].lines.iter().rev() {
            let function = dictionary.function_table[line.function_index as usize];
            names.push(dictionary.string_table[function.name_strindex as usize].clone());
        }
    }
    names
}

/// The data as a reader would show it.
fn raw(data: &ProfilesData) -> String {
    let dictionary = data.dictionary.as_ref().unwrap();
    let text = |index: i32| dictionary.string_table[index as usize].as_str();
    let mut out = String::new();
    for resource in &data.resource_profiles {
        for attribute in &resource.resource.as_ref().unwrap().attributes {
            writeln!(out, "resource {} {}", attribute.key, shown(&attribute.value)).unwrap();
        }
        let scope = &resource.scope_profiles[0];
        for attribute in &scope.scope.as_ref().unwrap().attributes {
            writeln!(out, "scope {} {}", attribute.key, shown(&attribute.value)).unwrap();
        }
        for profile in &scope.profiles {
            let of = profile.sample_type.unwrap();
            writeln!(out, "profile {}/{}", text(of.type_strindex), text(of.unit_strindex)).unwrap();
            for sample in &profile.samples {
                let attributes = attributes(data, sample);
                writeln!(out, "  stack {} {:?} {attributes:?}", sample.stack_index, sample.values)
                    .unwrap();
            }
        }
    }
    for index in 1..dictionary.stack_table.len() as i32 {
        writeln!(out, "stack {index} {}", names(data, index).join(";")).unwrap();
    }
    for mapping in &dictionary.mapping_table[1..] {
        let id = mapping
            .attribute_indices
            .iter()
            .map(|at| shown(&dictionary.attribute_table[*at as usize].value));
        let id: Vec<String> = id.collect();
        let path = text(mapping.filename_strindex);
        writeln!(out, "mapping {path} {:#x} {}", mapping.memory_start, id.join(" ")).unwrap();
    }
    out
}

#[test]
fn golden() {
    let data = decoded(&fixture::profile(Kind::Alloc));
    check(&data);
    fixture::golden("alloc.otlp.txt", raw(&data));
}

#[test]
fn stacks_read_back_with_their_intervals() {
    for kind in [Kind::Alloc, Kind::Live] {
        let profile = fixture::profile(kind);
        let data = decoded(&profile);
        check(&data);
        let mut read = 0;
        for (resource, (pid, rows)) in data.resource_profiles.iter().zip(processes(&profile)) {
            let first = &resource.scope_profiles[0].profiles[0];
            let rows = rows.iter().map(|row| &profile.stacks[*row]);
            let rows = rows.filter(|row| row.quantities.space(kind).estimate.value >= 0.5);
            for (sample, stack) in first.samples.iter().zip(rows) {
                assert_eq!(stack.pid, pid);
                let frames: Vec<_> = profile.frames(stack).map(|line| &*line.function).collect();
                assert_eq!(names(&data, sample.stack_index), frames);
                let Estimate { value, low, high, .. } = stack.quantities.space(kind).estimate;
                assert_eq!(sample.values, [value.round() as i64]);
                let attributes = attributes(&data, sample);
                assert_eq!(attributes["sampler.low"], format!("{} bytes", low.floor()));
                assert_eq!(attributes["sampler.high"], format!("{} bytes", high.ceil()));
                read += 1;
            }
        }
        assert!(read >= 4);
    }
}

#[test]
fn odd_profiles_are_valid() {
    for profile in [fixture::hostile(), fixture::empty(), fixture::stride()] {
        check(&decoded(&profile));
    }
    let data = decoded(&fixture::stride());
    let sample = &data.resource_profiles[0].scope_profiles[0].profiles[0].samples[0];
    assert!(!attributes(&data, sample).contains_key("sampler.high"));
}
