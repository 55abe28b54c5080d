use super::super::fixture;
use super::*;
use crate::profile::Kind;

fn written(profile: &Profile) -> (String, Value) {
    let text = String::from_utf8(fixture::encoded(&Firefox, profile)).unwrap();
    let value = serde_json::from_str(&text).unwrap();
    (text, value)
}

fn column<'a>(table: &'a Value, name: &str) -> &'a Vec<Value> {
    table[name].as_array().unwrap_or_else(|| panic!("no column {name}"))
}

fn at(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

/// Checks what the types of the format require: columns as long as their table says, indices that
/// exist.
fn check(file: &Value) {
    assert_eq!(file["meta"]["preprocessedProfileVersion"], VERSION);
    let shared = &file["shared"];
    let strings = column(shared, "stringArray").len();
    let tables =
        ["sources", "stackTable", "frameTable", "funcTable", "resourceTable", "nativeSymbols"];
    let lengths = tables.map(|name| columns_agree(&shared[name]));
    let [sources, stacks, frames, functions, resources, _] = lengths;
    let below = |table: &str, name: &str, bound: usize| {
        for index in column(&shared[table], name).iter().filter(|index| !index.is_null()) {
            assert!(*index == -1 || at(index) < bound, "{table}.{name}: {index}");
        }
    };
    below("sources", "filename", strings);
    below("stackTable", "frame", frames);
    below("frameTable", "func", functions);
    below("frameTable", "category", column(&file["meta"], "categories").len());
    below("funcTable", "name", strings);
    below("funcTable", "source", sources);
    below("funcTable", "resource", resources);
    below("resourceTable", "name", strings);
    below("resourceTable", "lib", file["libs"].as_array().unwrap().len());
    // A caller comes before what it calls.
    for (index, prefix) in column(&shared["stackTable"], "prefix").iter().enumerate() {
        assert!(prefix.is_null() || at(prefix) < index);
    }
    let threads = column(file, "threads");
    assert!(!threads.is_empty());
    for thread in threads {
        assert!(thread["pid"].is_string());
        let rows = columns_agree(&thread["nativeAllocations"]);
        assert_eq!(columns_agree(&thread["markers"]), rows);
        for stack in column(&thread["nativeAllocations"], "stack") {
            assert!(at(stack) < stacks);
        }
    }
}

fn columns_agree(table: &Value) -> usize {
    let length = at(&table["length"]);
    for (name, column) in table.as_object().unwrap() {
        assert!(column.as_array().is_none_or(|column| column.len() == length), "{name}");
    }
    length
}

/// The functions of a stack, root first, as a reader walks them.
fn walk(file: &Value, stack: usize) -> Vec<String> {
    let shared = &file["shared"];
    let (mut names, mut next) = (Vec::new(), Some(stack));
    while let Some(stack) = next {
        let frame = at(&shared["stackTable"]["frame"][stack]);
        let function = at(&shared["frameTable"]["func"][frame]);
        let name = at(&shared["funcTable"]["name"][function]);
        names.push(shared["stringArray"][name].as_str().unwrap().to_owned());
        next = shared["stackTable"]["prefix"][stack].as_u64().map(|prefix| prefix as usize);
    }
    names.reverse();
    names
}

#[test]
fn golden() {
    let (text, file) = written(&fixture::profile(Kind::Alloc));
    check(&file);
    fixture::golden("alloc.firefox.json", text);
}

#[test]
fn stacks_read_back_with_their_intervals() {
    for profile in [fixture::profile(Kind::Alloc), fixture::profile(Kind::Live)] {
        let (_, file) = written(&profile);
        check(&file);
        let mut read = 0;
        for thread in column(&file, "threads") {
            let pid: u32 = thread["pid"].as_str().unwrap().parse().unwrap();
            let own = profile.stacks.iter().filter(|of| of.pid == pid);
            for (row, stack) in own.enumerate() {
                let index = at(&thread["nativeAllocations"]["stack"][row]);
                let frames = profile.frames(stack).map(|line| line.function.clone());
                assert_eq!(walk(&file, index), frames.collect::<Vec<_>>());
                let data = &thread["markers"]["data"][row];
                let space = stack.quantities.space(profile.kind).estimate;
                assert_eq!(thread["nativeAllocations"]["weight"][row], space.value.round() as u64);
                assert_eq!(data["bytesLow"], space.low);
                assert_eq!(data["bytesHigh"], space.high);
                assert_eq!(at(&data["cause"]["stack"]), index);
                read += 1;
            }
        }
        assert_eq!(read, profile.stacks.len());
    }
}

#[test]
fn every_field_of_a_marker_is_in_its_schema() {
    let (_, file) = written(&fixture::profile(Kind::Alloc));
    let schema = &file["meta"]["markerSchema"][0];
    let keys: Vec<&str> =
        column(schema, "fields").iter().map(|field| field["key"].as_str().unwrap()).collect();
    let data = file["threads"][0]["markers"]["data"][0].as_object().unwrap();
    for key in data.keys().filter(|key| !["type", "cause"].contains(&key.as_str())) {
        assert!(keys.contains(&key.as_str()), "{key}");
    }
    assert_eq!(data["type"], schema["name"]);
}

#[test]
fn odd_profiles_are_valid() {
    for profile in [fixture::hostile(), fixture::empty(), fixture::stride()] {
        let (text, file) = written(&profile);
        check(&file);
        assert!(!text.contains("null,\"bytesHigh\"") && !text.contains('\u{202e}'));
    }
    let (_, stride) = written(&fixture::stride());
    assert!(stride["threads"][0]["markers"]["data"][0].get("bytesHigh").is_none());
    let (_, hostile) = written(&fixture::hostile());
    let last = column(&hostile, "threads").last().unwrap();
    assert_eq!(
        walk(&hostile, at(&last["nativeAllocations"]["stack"][0])),
        [crate::encode::NO_STACK]
    );
}
