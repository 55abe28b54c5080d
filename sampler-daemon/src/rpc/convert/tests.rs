use super::*;
use crate::rpc::v1;
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;
use sampler_common::estimate::{Confidence, Estimate, Moments};
use sampler_common::profile::{
    Exact, Kind, Line, Location, Lost, Mapping, Profile, Quantities, Quantity, Stack,
};

const NUMBER: std::ops::Range<f64> = 0.0..1e18;

fn quantity() -> impl Strategy<Value = Quantity> {
    (any::<u64>(), [NUMBER, NUMBER, NUMBER, NUMBER], 0.0..=1.0f64, [NUMBER, NUMBER, NUMBER])
        .prop_map(|(samples, [sum, variance, largest, own], largest_inclusion, mut bounds)| {
            bounds.sort_by(f64::total_cmp);
            let [low, value, high] = bounds;
            let (confidence, method) = (Confidence::DEFAULT, Method::Weighted);
            Quantity {
                estimate: Estimate { value, low, high, confidence, samples, method },
                moments: Moments { samples, sum, variance, largest, largest_inclusion, own },
            }
        })
}

fn quantities() -> impl Strategy<Value = Quantities> {
    [quantity(), quantity(), quantity(), quantity()].prop_map(
        |[alloc_objects, alloc_space, inuse_objects, inuse_space]| Quantities {
            alloc_objects,
            alloc_space,
            inuse_objects,
            inuse_space,
        },
    )
}

const MAPPINGS: usize = 3;
const LOCATIONS: usize = 6;

fn locations() -> impl Strategy<Value = Vec<Location>> {
    let line = ("[a-c]{0,2}", "[a-c]{0,2}", any::<u32>()).prop_map(|(function, file, line)| Line {
        function,
        file,
        line,
    });
    let location = (0..MAPPINGS as u32, any::<u64>(), vec(line, 1..4))
        .prop_map(|(mapping, address, lines)| Location { mapping, address, lines });
    vec(location, LOCATIONS)
}

fn stacks() -> impl Strategy<Value = Vec<Stack>> {
    let stack = (any::<u32>(), vec(0..LOCATIONS as u32, 0..9), quantities())
        .prop_map(|(pid, locations, quantities)| Stack { pid, locations, quantities });
    vec(stack, 0..5)
}

fn lost() -> impl Strategy<Value = Vec<Lost>> {
    let of = (any::<u64>(), proptest::option::of(quantity()), proptest::option::of(quantity()));
    vec(of, 0..4).prop_map(|list| {
        let each = list.into_iter().enumerate();
        each.map(|(index, (samples, alloc_space, alloc_objects))| Lost {
            outcome: format!("outcome_{index}"),
            samples,
            alloc_space,
            alloc_objects,
        })
        .collect()
    })
}

fn profile() -> impl Strategy<Value = Profile> {
    let numbers =
        [any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()];
    let mapping =
        (".{0,8}", "[0-9a-f]{0,40}").prop_map(|(path, build_id)| Mapping { path, build_id });
    let tables = (vec(mapping, MAPPINGS), locations(), stacks(), vec(".{0,8}", 0..3));
    (any::<bool>(), numbers, quantities(), lost(), tables).prop_map(
        |(live, numbers, totals, lost, (mappings, locations, stacks, notes))| {
            let [time_unix_ns, duration_ns, interval_bytes, alloc_objects, alloc_space, samples] =
                numbers;
            Profile {
                kind: if live { Kind::Live } else { Kind::Alloc },
                confidence: Confidence::DEFAULT,
                time_unix_ns,
                duration_ns,
                interval_bytes,
                totals,
                exact: Exact { alloc_objects, alloc_space },
                samples,
                lost,
                mappings,
                locations,
                stacks_total: stacks.len() as u64,
                stacks,
                notes,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_sent_is_what_arrives(profile in profile()) {
        let bytes = to_wire(&profile).encode_to_vec();
        let arrived = from_wire(v1::Profile::decode(&bytes[..]).unwrap());
        prop_assert_eq!(arrived, Ok(profile));
    }

    /// A client of a stranger's socket may be told anything: an error then, never a panic.
    #[test]
    fn damaged_messages_are_refused_or_sound(
        profile in profile(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = to_wire(&profile).encode_to_vec();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(wire) = v1::Profile::decode(&bytes[..])
            && let Ok(profile) = from_wire(wire)
        {
            for stack in &profile.stacks {
                prop_assert!(profile.frames(stack).count() >= stack.locations.len());
            }
        }
    }
}

fn sound() -> v1::Profile {
    let number = |value: f64| {
        let moments = v1::Moments { largest_inclusion: 1.0, ..v1::Moments::default() };
        let method = "weighted".to_owned();
        Some(v1::Quantity { value, low: value, high: value, method, moments: Some(moments) })
    };
    let quantities = v1::Quantities {
        alloc_objects: number(1.0),
        alloc_space: number(2.0),
        inuse_objects: number(3.0),
        inuse_space: number(4.0),
    };
    v1::Profile {
        kind: v1::Kind::Live.into(),
        confidence: 0.95,
        totals: Some(quantities.clone()),
        exact: Some(v1::Exact::default()),
        strings: vec![String::new(), "f".to_owned()],
        mappings: vec![v1::Mapping::default()],
        locations: vec![v1::Location {
            mapping: 0,
            address: 1,
            lines: vec![v1::Line { function: 1, file: 0, line: 0 }],
        }],
        stacks: vec![v1::Stack { pid: 1, locations: vec![0], quantities: Some(quantities) }],
        ..v1::Profile::default()
    }
}

#[test]
fn errors_name_the_place() {
    type Damage = fn(&mut v1::Profile);
    let cases: [(Damage, &str); 14] = [
        (|p| p.kind = 7, "kind 7"),
        (|p| p.confidence = 1.0, "confidence 1 "),
        (|p| p.confidence = f64::NAN, "confidence NaN"),
        (|p| p.totals = None, "no totals"),
        (|p| p.exact = None, "no exact totals"),
        (|p| p.strings.clear(), "first string"),
        (|p| p.locations[0].mapping = 1, "location 0: mapping 1 is out of range"),
        (|p| p.locations[0].lines[0].function = 2, "location 0: string 2 is out of range"),
        (|p| p.locations[0].lines.clear(), "location 0: it has no line"),
        (|p| p.stacks[0].locations.push(1), "stack 0: location 1 is out of range"),
        (|p| p.stacks[0].quantities = None, "stack 0: it has no quantities"),
        (|p| space(p).value = f64::INFINITY, "stack 0: inuse_space: value inf"),
        (|p| space(p).low = 5.0, "outside its interval"),
        (|p| space(p).method = "guessed".into(), "method \"guessed\" is unknown"),
    ];
    from_wire(sound()).unwrap();
    for (damage, words) in cases {
        let mut profile = sound();
        damage(&mut profile);
        let error = from_wire(profile).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

fn space(profile: &mut v1::Profile) -> &mut v1::Quantity {
    profile.stacks[0].quantities.as_mut().unwrap().inuse_space.as_mut().unwrap()
}

#[test]
fn bounds_that_miss_by_rounding_are_moved() {
    let mut profile = sound();
    space(&mut profile).low = 4.0 + 1e-12;
    let profile = from_wire(profile).unwrap();
    let estimate = profile.stacks[0].quantities.inuse_space.estimate;
    assert_eq!((estimate.low, estimate.value), (4.0, 4.0));
}
