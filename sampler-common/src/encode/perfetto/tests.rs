use super::super::fixture;
use super::*;
use std::collections::HashMap;
use std::fmt::Write as _;

fn decoded(profile: &Profile) -> Trace {
    Trace::decode(&fixture::encoded(&Perfetto, profile)[..]).unwrap()
}

/// The state of a reader after the whole trace.
#[derive(Default)]
struct Read {
    functions: HashMap<u64, String>,
    frames: HashMap<u64, message::Frame>,
    mappings: HashMap<u64, message::Mapping>,
    paths: HashMap<u64, String>,
    stacks: HashMap<u64, Vec<u64>>,
    dumps: Vec<ProcessHeapSamples>,
}

/// Reads as trace_processor does (`profile_module.cc`, `stack_profile_sequence_state.cc`), and
/// fails where trace_processor would count an error.
fn read(trace: &Trace) -> Read {
    let mut of = Read::default();
    let text = |entry: &message::InternedString| {
        assert_ne!(entry.iid, 0);
        (entry.iid, String::from_utf8(entry.str.clone()).unwrap())
    };
    let first = trace.packet[0].clone();
    assert_eq!(first.sequence_flags, BEGINS);
    assert!(first.clock_snapshot.is_some(), "dumps have times of another clock");
    let mut next = 0;
    for packet in &trace.packet {
        assert_eq!(packet.trusted_packet_sequence_id, SEQUENCE);
        if let Some(data) = &packet.interned_data {
            of.functions.extend(data.function_names.iter().map(text));
            of.paths.extend(data.mapping_paths.iter().map(text));
            of.frames.extend(data.frames.iter().map(|frame| (frame.iid, *frame)));
            of.mappings.extend(data.mappings.iter().map(|of| (of.iid, of.clone())));
            of.stacks.extend(data.callstacks.iter().map(|of| (of.iid, of.frame_ids.clone())));
        }
        let Some(part) = &packet.profile_packet else { continue };
        assert_eq!(part.index, next);
        next += 1;
        assert!(part.process_dumps.iter().all(|dump| !dump.heap_name.is_empty()));
        of.dumps.extend(part.process_dumps.iter().cloned());
    }
    let last = trace.packet.last().unwrap().profile_packet.as_ref().unwrap();
    assert!(!last.continued, "nothing is taken in before the last packet");
    for sample in of.dumps.iter().flat_map(|dump| &dump.samples) {
        let frames = &of.stacks[&sample.callstack_id];
        assert!(!frames.is_empty());
        for iid in frames {
            let frame = of.frames[iid];
            assert!(
                of.functions.contains_key(&frame.function_name_id) || frame.function_name_id == 0
            );
            let mapping = &of.mappings[&frame.mapping_id];
            assert!(mapping.path_string_ids.iter().all(|iid| of.paths.contains_key(iid)));
        }
        assert!(sample.self_freed <= sample.self_allocated);
        assert!(sample.free_count <= sample.alloc_count);
    }
    of
}

fn names(of: &Read, stack: u64) -> Vec<&str> {
    let name = |iid: &u64| of.functions.get(&of.frames[iid].function_name_id).map_or("", |s| s);
    of.stacks[&stack].iter().map(name).collect()
}

/// The trace as a reader would show it.
fn raw_text(profile: &Profile) -> String {
    let trace = decoded(profile);
    let of = read(&trace);
    let mut out = String::new();
    for clock in &trace.packet[0].clock_snapshot.as_ref().unwrap().clocks {
        writeln!(out, "clock {} {}", clock.clock_id, clock.timestamp).unwrap();
    }
    for event in trace.packet.iter().filter_map(|packet| packet.track_event.as_ref()) {
        writeln!(out, "event {}", event.name).unwrap();
        for note in &event.debug_annotations {
            writeln!(out, "  {}: {}", note.name, note.string_value).unwrap();
        }
    }
    for dump in &of.dumps {
        writeln!(out, "heap {:?} of pid {}", dump.heap_name, dump.pid).unwrap();
        for sample in &dump.samples {
            writeln!(out, "  {}", format!("{sample:?}").replace("HeapSample ", "")).unwrap();
        }
    }
    let mut stacks: Vec<_> = of.stacks.iter().collect();
    stacks.sort();
    for (iid, frames) in stacks {
        writeln!(out, "stack {iid}").unwrap();
        for (name, frame) in names(&of, *iid).iter().zip(frames) {
            let frame = of.frames[frame];
            let path = &of.paths[&of.mappings[&frame.mapping_id].path_string_ids[0]];
            writeln!(out, "  {name} {path}+{:#x} line {}", frame.rel_pc, frame.line_number)
                .unwrap();
        }
    }
    out
}

#[test]
fn golden() {
    fixture::golden("alloc.perfetto.txt", raw_text(&fixture::profile(Kind::Alloc)));
}

#[test]
fn stacks_read_back_with_their_intervals() {
    for kind in [Kind::Alloc, Kind::Live] {
        let profile = fixture::profile(kind);
        let of = read(&decoded(&profile));
        for (index, stack) in profile.stacks.iter().enumerate() {
            let iid = index as u64 + 1;
            let frames: Vec<_> = profile.frames(stack).map(|line| &*line.function).collect();
            assert_eq!(names(&of, iid), frames);
            let heap = |heap| {
                let name = heap_name(kind, heap);
                let dump = of.dumps.iter().filter(|of| of.heap_name == name);
                let own = dump.filter(|of| of.pid == u64::from(stack.pid));
                own.flat_map(|of| &of.samples).find(|of| of.callstack_id == iid).copied()
            };
            let held = stack.quantities.inuse_space.estimate.value.round() as u64;
            let sample = heap(Heap::Estimates).unwrap();
            assert_eq!(
                sample.self_allocated,
                stack.quantities.alloc_space.estimate.value.round() as u64
            );
            assert_eq!(sample.self_allocated - sample.self_freed, held);
            let space = stack.quantities.space(kind).estimate;
            let end = |of| heap(of).unwrap_or_default().self_allocated;
            assert_eq!(end(Heap::Low), space.low.round() as u64);
            assert_eq!(end(Heap::High), space.high.round() as u64);
        }
    }
}

#[test]
fn a_peak_profile_has_held_bytes() {
    let profile = Profile { kind: Kind::Peak, ..fixture::profile(Kind::Live) };
    let of = read(&decoded(&profile));
    let held = profile.stacks[0].quantities.inuse_space.estimate.value.round() as u64;
    let sample = of.dumps[0].samples[0];
    assert_eq!((sample.self_max, sample.self_allocated), (Some(held), 0));
}

#[test]
fn odd_profiles_are_valid() {
    for profile in [fixture::hostile(), fixture::empty(), fixture::stride()] {
        let of = read(&decoded(&profile));
        let all = of.functions.values().chain(of.paths.values());
        assert!(all.flat_map(|text| text.chars()).all(|c| !c.is_control() && c != '\u{202e}'));
    }
    let of = read(&decoded(&fixture::stride()));
    assert!(of.dumps.iter().all(|dump| !dump.heap_name.contains("high")));
}
