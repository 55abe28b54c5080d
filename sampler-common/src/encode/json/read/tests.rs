//! Written profiles come back as they were, and no other text is taken for a profile.

use super::super::super::fixture;
use super::super::Json;
use super::*;
use crate::estimate::{Epoch, Moments, Unseen};
use crate::profile::Quantities;
use proptest::prelude::{Strategy as Generate, any, prop, prop_assert, prop_assert_eq, proptest};

fn written(profile: &Profile) -> String {
    String::from_utf8(fixture::encoded(&Json, profile)).unwrap()
}

#[test]
fn written_profiles_read_back_equal() {
    for profile in [
        fixture::profile(Kind::Alloc),
        fixture::profile(Kind::Live),
        fixture::hostile(),
        fixture::empty(),
        fixture::stride(),
    ] {
        let text = written(&profile);
        let back = read(&text).unwrap();
        assert_eq!(written(&back), text);
        assert_eq!((back.totals, &back.reference), (profile.totals, &profile.reference));
    }
}

/// Rates that have changed, one of them to 0.
#[test]
fn epochs_are_read_back() {
    let mut profile = fixture::profile(Kind::Alloc);
    let stratum = *profile.reference.strata.keys().next().unwrap();
    let unseen = |objects: f64| Unseen { objects, bytes: 3.0 * objects };
    let epoch = Epoch { bytes: 7, objects: 1, alloc: unseen(1.0), inuse: unseen(f64::INFINITY) };
    profile.reference.epochs.insert(stratum, vec![epoch, Epoch::default()]);
    let stack = profile.stacks.iter_mut().find(|of| of.row.get(stratum).is_some()).unwrap();
    let moments = stack.row.stratum(stratum);
    (moments.alloc_max_unseen, moments.inuse_max_unseen) = (5.5, f64::INFINITY);
    let text = written(&profile);
    let back = read(&text).unwrap();
    assert_eq!(written(&back), text);
    assert_eq!(back.reference, profile.reference);
    assert!(back.stacks.iter().map(|of| &of.row).eq(profile.stacks.iter().map(|of| &of.row)));
}

/// Unknown held memory stays unknown.
#[test]
fn unknown_held_memory_is_read_back() {
    let mut profile = fixture::profile(Kind::Alloc);
    profile.reference.held_unknown = true;
    profile.reference.allocations_unseen = true;
    let text = written(&profile);
    let back = read(&text).unwrap();
    assert_eq!((written(&back), &back.reference), (text, &profile.reference));
    let Quantities { inuse_space, inuse_objects, alloc_space, .. } =
        back.quantities_of(&back.reference.row());
    assert!(!inuse_space.estimate.has_interval() && !inuse_objects.estimate.has_interval());
    assert!(inuse_space.estimate.low == 0.0 && alloc_space.estimate.has_interval());
}

#[test]
fn broken_files_say_what_is_wrong() {
    let text = written(&fixture::profile(Kind::Alloc));
    let number = |key: &str, value: &str| {
        let start = text.find(key).unwrap() + key.len();
        let end = start + text[start..].find([',', '}']).unwrap();
        format!("{}{value}{}", &text[..start], &text[end..])
    };
    for (broken, words) in [
        (String::new(), "EOF while parsing"),
        ("{}".to_owned(), "missing field `kind`"),
        ("hello".to_owned(), "expected value at line 1"),
        (text[..text.len() / 2].to_owned(), "EOF while parsing"),
        (text.repeat(2), "trailing characters at line 2"),
        (text.replace("\"alloc\"", "\"both\""), "kind \"both\" is unknown"),
        (number("\"confidence\":", "1.5"), "confidence 1.5 is not between 0 and 1"),
        (number("\"value\":", "-3.0"), "outside its interval"),
        (number("\"own\":", "-3.0"), "own -3 is negative"),
        (number("\"class\":", "32"), "class 32 is not below 32"),
        (number("\"largest_inclusion\":", "2.0"), "is no probability"),
        (text.replace("\"geometric\"", "\"guess\""), "strategy \"guess\" is unknown"),
    ] {
        let error = read(&broken).unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{words}: {error}");
        assert!(error.ends_with("(save one: sampler profile --json -o FILE)"), "{error}");
    }
}

#[test]
fn files_without_strata_are_read() {
    let mut value: Value = serde_json::from_str(&written(&fixture::profile(Kind::Alloc))).unwrap();
    let object = value.as_object_mut().unwrap();
    for key in ["estimator", "strategy", "reference"] {
        object.remove(key);
    }
    for stack in object["stacks"].as_array_mut().unwrap() {
        stack.as_object_mut().unwrap().remove("strata");
    }
    object.insert("something new".to_owned(), Value::Null);
    let profile = read(&value.to_string()).unwrap();
    assert_eq!(profile.stacks.len(), 5);
    assert_eq!(profile.reference.interval_bytes, fixture::INTERVAL_BYTES as f64);
}

/// Numbers of every magnitude.
fn number() -> impl Generate<Value = f64> {
    (0u64..1 << 53, -60i32..30).prop_map(|(digits, power)| digits as f64 * 2f64.powi(power))
}

proptest! {
    #[test]
    fn every_number_is_read_back(
        numbers in prop::collection::vec(number(), 12),
        samples in any::<u64>(),
        inclusion in 0f64..=1.0,
        name in ".{0,20}",
    ) {
        let mut profile = fixture::profile(Kind::Live);
        profile.notes = vec![name.into()];
        profile.samples = samples;
        for (stack, numbers) in profile.stacks.iter_mut().zip(numbers.chunks(3)) {
            let space = &mut stack.quantities.alloc_space;
            space.estimate.value = numbers[0];
            (space.estimate.low, space.estimate.high) = (0.0, numbers[0] + numbers[1]);
            space.moments = Moments {
                samples,
                sum: numbers[1],
                variance: numbers[2],
                largest: numbers[0],
                largest_inclusion: inclusion,
                own: numbers[2],
            };
            space.estimate.samples = samples;
        }
        let text = written(&profile);
        let back = read(&text).unwrap();
        prop_assert_eq!(written(&back), text);
        for (back, stack) in back.stacks.iter().zip(&profile.stacks) {
            prop_assert_eq!(back.quantities, stack.quantities);
            prop_assert_eq!(&back.row, &stack.row);
        }
    }

    #[test]
    fn a_changed_byte_is_an_error_or_a_consistent_profile(at in any::<prop::sample::Index>(), byte in 0x20u8..0x7f) {
        let mut text = written(&fixture::profile(Kind::Alloc)).into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        if let Ok(profile) = read(std::str::from_utf8(&text).unwrap()) {
            prop_assert!(profile.stacks.iter().all(|stack| profile.frames(stack).count() == stack.locations.len()));
        }
    }
}
