use super::*;
use crate::encode::fixture;
use crate::encode::tree::Measure;
use crate::estimate::Row;
use crate::profile::{Kind, Profile};
use serde_json::Value;

fn parsed(write: &dyn Fn(&mut Vec<u8>)) -> Value {
    let mut out = Vec::new();
    write(&mut out);
    serde_json::from_slice(&out).unwrap()
}

/// The bytes of the stacks for which `has` is true.
fn bytes_of(profile: &Profile, has: impl Fn(&[&str]) -> bool) -> Estimate {
    let mut row = Row::default();
    for stack in &profile.stacks {
        let frames: Vec<&str> = profile.frames(stack).map(|line| line.function.as_str()).collect();
        if has(&frames) {
            row.add(&stack.row);
        }
    }
    profile.quantities_of(&row).space(profile.kind).estimate
}

fn assert_is(number: &Value, estimate: &Estimate) {
    assert_eq!(number["samples"], estimate.samples, "{number}");
    for (key, expected) in
        [("value", estimate.value), ("low", estimate.low), ("high", estimate.high)]
    {
        let got = number[key].as_f64().unwrap();
        assert!((got - expected).abs() <= 1e-9 * expected, "{key}: {got} and not {expected}");
    }
}

#[test]
fn frames_are_the_tree_in_columns() {
    let mut profile = fixture::profile(Kind::Alloc);
    let several = parsed(&|out| graph(&profile, Measure::Space, 1000, out).unwrap());
    let last = several["functions"].as_array().unwrap().last().unwrap();
    assert_eq!(last[0], "kvstore (pid 4122)");
    profile.stacks.iter_mut().for_each(|stack| stack.pid = 0);
    let graph = parsed(&|out| graph(&profile, Measure::Space, 1000, out).unwrap());
    let frames = &graph["frames"];
    let columns = ["function", "depth", "value", "low", "high", "samples"];
    let lengths = columns.map(|of| frames[of].as_array().unwrap().len());
    assert!(lengths.iter().all(|of| *of == lengths[0] && *of > 5), "{lengths:?}");
    let name = |at: usize| {
        let function = frames["function"][at].as_u64().unwrap() as usize;
        graph["functions"][function][0].as_str().unwrap()
    };
    let main = (0..lengths[0]).find(|at| name(*at) == "main").unwrap();
    let number = serde_json::json!({
        "value": frames["value"][main], "low": frames["low"][main],
        "high": frames["high"][main], "samples": frames["samples"][main],
    });
    assert_is(&number, &bytes_of(&profile, |frames| frames.contains(&"main")));
    assert_is(&graph["total"], &profile.totals.alloc_space.estimate);
    assert_eq!(graph["head"]["totals"]["alloc_space"]["low"], graph["total"]["low"]);
    assert!(graph["head"].get("stacks").is_none());
    let cut = parsed(&|out| super::graph(&profile, Measure::Space, 3, out).unwrap());
    assert_eq!(cut["left_out"], lengths[0] - 3);
    assert_eq!(cut["functions"], graph["functions"], "indices stay what they are");
}

#[test]
fn the_table_has_intervals_of_summed_rows() {
    let profile = fixture::profile(Kind::Alloc);
    let table = parsed(&|out| table(&profile, Measure::Space, 1000, out).unwrap());
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(table["left_out"], 0);
    for row in rows {
        let function = row["function"].as_str().unwrap();
        assert_is(&row["total"], &bytes_of(&profile, |frames| frames.contains(&function)));
    }
    let own: f64 = rows.iter().filter_map(|row| row["own"]["value"].as_f64()).sum();
    let all = bytes_of(&profile, |_| true).value;
    assert!((own / all - 1.0).abs() < 1e-9, "every stack is somebody's own: {own} of {all}");
    let cut = parsed(&|out| super::table(&profile, Measure::Space, 2, out).unwrap());
    assert_eq!(cut["left_out"], rows.len() - 2);
}

#[test]
fn matches_count_each_stack_once() {
    let profile = fixture::profile(Kind::Alloc);
    // Matches in callers and callees alike.
    for text in ["PARSE", "main", "a"] {
        let found = parsed(&|out| matches(&profile, Measure::Space, text, out).unwrap());
        let low = text.to_lowercase();
        let has =
            |frames: &[&str]| frames.iter().any(|name| name.to_ascii_lowercase().contains(&low));
        assert_is(&found["total"], &bytes_of(&profile, has));
        assert!(!found["functions"].as_array().unwrap().is_empty());
    }
    let none = parsed(&|out| matches(&profile, Measure::Space, "no such", out).unwrap());
    assert_eq!((&none["stacks"], &none["functions"]), (&0.into(), &Value::Array(vec![])));
}

#[test]
fn names_stay_on_their_line() {
    let profile = fixture::hostile();
    let graph = parsed(&|out| graph(&profile, Measure::Objects, 1000, out).unwrap());
    let names: Vec<&str> =
        graph["functions"].as_array().unwrap().iter().map(|of| of[0].as_str().unwrap()).collect();
    assert!(names.contains(&"a;b") && names.contains(&"c d"), "{names:?}");
    assert!(names.iter().any(|name| name.len() == fixture::LONG_NAME_BYTES));
}

#[test]
fn estimates_without_an_interval_have_no_upper_end() {
    let profile = fixture::stride();
    let graph = parsed(&|out| graph(&profile, Measure::Space, 1000, out).unwrap());
    assert!(graph["total"]["high"].is_null() && graph["total"]["low"].is_f64());
    let nothing = parsed(&|out| super::graph(&fixture::empty(), Measure::Space, 9, out).unwrap());
    assert_eq!(nothing["frames"]["function"], Value::Array(vec![]));
}
