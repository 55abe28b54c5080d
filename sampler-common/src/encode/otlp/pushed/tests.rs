use super::*;
use crate::encode::push::{CodeFile, Draw, Frame, merged};
use crate::estimate::RowMoments;
use crate::profile::Line;
use std::collections::HashSet;

/// A row of `bytes` in allocations of 100 bytes, all of them sampled.
fn row(service: u32, frames: &[u32], bytes: u64) -> Stack {
    let mut moments = RowMoments::default();
    moments.alloc_space.add_samples(bytes / 100, 100.0, 1.0);
    moments.alloc_objects.add_samples(bytes / 100, 1.0, 1.0);
    Stack { service, frames: frames.to_vec(), moments }
}

fn push(rows: Vec<Stack>, frames: u32) -> Push {
    let attribute = |value: &str| vec![("service.name".to_owned(), value.to_owned())];
    let frame = |number: u32| Frame {
        code: (number > 0).then_some((0, u64::from(number))),
        lines: vec![Line { function: format!("f{number}"), ..Line::default() }],
    };
    Push {
        kind: Kind::Alloc,
        start_unix_ns: 7,
        duration_ns: 5,
        interval_bytes: 100,
        draw: Draw::ALL,
        services: vec![attribute("a"), attribute("b")],
        totals: Vec::new(),
        files: vec![CodeFile { path: "/x".into(), build_id: "01".into(), htlhash: "02".into() }],
        frames: (0..frames).map(frame).collect(),
        stacks: merged(rows),
    }
}

fn ids() -> impl FnMut() -> [u8; 16] {
    let mut last = 0_u128;
    move || {
        last += 1;
        last.to_be_bytes()
    }
}

fn decoded(requests: &[Request]) -> Vec<ProfilesData> {
    requests.iter().map(|of| ProfilesData::decode(&of.bytes[..]).unwrap()).collect()
}

fn profiles(data: &ProfilesData) -> impl Iterator<Item = &Profile> {
    data.resource_profiles.iter().flat_map(|of| &of.scope_profiles).flat_map(|of| &of.profiles)
}

#[test]
fn services_are_resources_with_profiles_of_nonzero_values() {
    // The second service has nothing. The third row is the first one in another process.
    let rows = vec![row(0, &[1, 2], 300), row(1, &[1], 0), row(0, &[1, 2], 400), row(0, &[], 100)];
    let requests = requests(&push(rows, 3), ids());
    let [data] = &decoded(&requests)[..] else { panic!("{requests:?}") };
    assert_eq!((data.resource_profiles.len(), requests[0].profiles), (1, 2));
    let of_service = &data.resource_profiles[0];
    assert_eq!(of_service.resource.as_ref().unwrap().attributes[0].key, "service.name");
    assert_eq!(of_service.scope_profiles[0].scope.as_ref().unwrap().attributes, []);
    let sums: Vec<i64> =
        profiles(data).map(|of| of.samples.iter().map(|of| of.values[0]).sum()).collect();
    assert_eq!(sums, [800, 8], "bytes and objects");
    for profile in profiles(data) {
        assert!(profile.samples.len() == 2 && profile.profile_id.len() == 16);
        assert!(profile.samples.iter().all(|of| of.attribute_indices.is_empty()));
        assert_eq!((profile.time_unix_nano, profile.duration_nano), (7, 5));
    }
    assert_eq!(super::requests(&push(vec![row(1, &[1], 0)], 3), ids()), []);
}

#[test]
fn addresses_are_those_of_the_file() {
    let requests = requests(&push(vec![row(0, &[2, 0], 100)], 3), ids());
    let dictionary = decoded(&requests).remove(0).dictionary.unwrap();
    let mapping = &dictionary.mapping_table[1];
    assert_eq!((mapping.memory_start, mapping.memory_limit, mapping.file_offset), (0, u64::MAX, 0));
    let text = |index: i32| dictionary.string_table[index as usize].as_str();
    let key = |index: &i32| text(dictionary.attribute_table[*index as usize].key_strindex);
    let keys: Vec<&str> = mapping.attribute_indices.iter().map(key).collect();
    assert_eq!(keys, [BUILD_ID, HTLHASH]);
    let places: Vec<(i32, u64)> =
        dictionary.location_table[1..].iter().map(|of| (of.mapping_index, of.address)).collect();
    assert_eq!(places, [(1, 2), (0, 0)], "code without a file has no address that others have");
}

#[test]
fn large_requests_are_split_without_loss() {
    let rows = (0..200).map(|number| row(number % 2, &[number, 1], 100));
    let push = push(rows.collect(), 200);
    for limits in [(2000, MAX_SAMPLES), (MAX_REQUEST_BYTES, 7), (1, 1)] {
        let requests = requests_within(&push, limits, &mut ids());
        let data = decoded(&requests);
        let all: Vec<&Profile> = data.iter().flat_map(profiles).collect();
        let bytes = all.iter().flat_map(|of| &of.samples).map(|of| of.values[0]).sum::<i64>();
        assert_eq!(bytes, 200 * 101, "{limits:?}");
        let ids: HashSet<&[u8]> = all.iter().map(|of| &of.profile_id[..]).collect();
        assert_eq!(ids.len(), all.len(), "an id for each");
        assert!(all.iter().all(|of| of.samples.len() <= limits.1.max(1)));
        assert!(limits.0 == 1 || requests.iter().all(|of| of.bytes.len() <= limits.0));
    }
}

#[test]
fn the_number_of_rejected_profiles_is_read() {
    use super::super::message::PartialSuccess;
    let answer = |rejected_profiles| {
        let partial = PartialSuccess { rejected_profiles, error_message: "too old".into() };
        ExportResponse { partial_success: Some(partial) }.encode_to_vec()
    };
    assert_eq!(rejected(&answer(3)), Some((3, "too old".into())));
    // A warning, an answer that takes everything, an answer that is not of the protocol.
    for other in [answer(0), answer(-1), Vec::new(), b"<html>".to_vec()] {
        assert_eq!(rejected(&other), None);
    }
}

#[test]
fn the_retry_delay_is_read_from_a_status() {
    use super::super::message::{self, Any};
    let status = |type_url: &str, delay| {
        let value = RetryInfo { retry_delay: Some(delay) }.encode_to_vec();
        let detail = Any { type_url: format!("type.googleapis.com/{type_url}"), value };
        Status { details: vec![Any::default(), detail] }.encode_to_vec()
    };
    let delay = |seconds, nanos| message::Duration { seconds, nanos };
    let found = |of, delay| retry_delay(&status(of, delay));
    let info = "google.rpc.RetryInfo";
    assert_eq!(found(info, delay(3, 500_000_000)), Some(Duration::from_millis(3500)));
    assert_eq!(found(info, delay(-3, 0)), None);
    assert_eq!(found("google.rpc.Help", delay(3, 0)), None);
    assert_eq!(retry_delay(b"no status"), None);
}
