//! A Perfetto trace (<https://ui.perfetto.dev>) with a heap profile, in the form that heapprofd
//! writes.
//!
//! Heap samples have no place for an interval. So each process has three heaps: one with the
//! estimates, one with the low ends and one with the high ends of its stacks' intervals. Sums of
//! ends, as Perfetto makes them, are further apart than the interval of the sum: too wide, never
//! too narrow. An instant on a track of its own has the description of the profile. Time 0 is the
//! start of sampling.

mod interned;

/// The messages of the file.
pub use sampler_messages::perfetto as message;

use super::pprof::comments;
use super::{Encode, name};
use crate::estimate::Estimate;
use crate::profile::{Kind, Profile, Quantities, Stack};
use message::{
    Clock, ClockSnapshot, DebugAnnotation, HeapSample, InternedData, ProcessHeapSamples,
    ProfilePacket, Trace, TracePacket, TrackDescriptor, TrackEvent,
};
use prost::Message;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Samples and stacks in a packet; readers hold a whole packet in memory.
const PER_PACKET: usize = 10_000;
/// All packets belong to one sequence.
const SEQUENCE: u32 = 1;
const BEGINS: u32 = 1;
const GOES_ON: u32 = 2;
/// Clocks: real time, coarse monotonic time, boot time.
const REAL_TIME: u32 = 1;
const MONOTONIC_COARSE: u32 = 4;
const BOOT_TIME: u32 = 6;
const TRACK: u64 = 1;
const INSTANT: i32 = 3;

/// Writes the trace.
pub struct Perfetto;

/// The numbers that a heap has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heap {
    Estimates,
    Low,
    High,
}

impl Encode for Perfetto {
    fn encode(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        let now = profile.duration_ns;
        let clock = |clock_id, timestamp| Clock { clock_id, timestamp };
        let clocks = vec![
            clock(REAL_TIME, profile.time_unix_ns),
            clock(MONOTONIC_COARSE, now),
            clock(BOOT_TIME, now),
        ];
        let mut first = packet(now);
        first.sequence_flags = BEGINS;
        first.clock_snapshot = Some(ClockSnapshot { clocks });
        write_packet(first, out)?;
        about(profile, out)?;
        let (tables, stacks) = interned::of(profile);
        write_packet(TracePacket { interned_data: Some(tables), ..packet(now) }, out)?;
        for (chunk, part) in stacks.chunks(PER_PACKET).enumerate() {
            let start = (chunk * PER_PACKET) as u64;
            let callstacks = interned::callstacks(start, part);
            let data = InternedData { callstacks, ..InternedData::default() };
            write_packet(TracePacket { interned_data: Some(data), ..packet(now) }, out)?;
        }
        heaps(profile, out)
    }
}

fn packet(timestamp: u64) -> TracePacket {
    TracePacket {
        timestamp: Some(timestamp),
        trusted_packet_sequence_id: SEQUENCE,
        sequence_flags: GOES_ON,
        ..TracePacket::default()
    }
}

fn write_packet(packet: TracePacket, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&Trace { packet: vec![packet] }.encode_to_vec())
}

/// The track with the description of the profile.
fn about(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let track = TrackDescriptor { uuid: TRACK, name: "sampler".into() };
    let now = profile.duration_ns;
    write_packet(TracePacket { track_descriptor: Some(track), ..packet(now) }, out)?;
    let annotation = |comment: String| {
        let (label, text) = comment.split_once(": ").unwrap_or(("method", &comment));
        DebugAnnotation {
            name: name::shown(label).into_owned(),
            string_value: name::shown(text).into_owned(),
        }
    };
    let event = TrackEvent {
        debug_annotations: comments(profile).into_iter().map(annotation).collect(),
        r#type: INSTANT,
        track_uuid: TRACK,
        name: format!("profile of kind {}", profile.kind.name()),
    };
    write_packet(TracePacket { track_event: Some(event), ..packet(now) }, out)
}

/// Every heap of every process.
fn heaps(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut processes: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (index, stack) in profile.stacks.iter().enumerate() {
        processes.entry(stack.pid).or_default().push(index);
    }
    let mut index = 0;
    for (pid, stacks) in &processes {
        for heap in [Heap::Estimates, Heap::Low, Heap::High] {
            for part in stacks.chunks(PER_PACKET) {
                let each = part.iter().map(|index| sample(profile, heap, *index));
                let samples: Vec<HeapSample> = each.filter(is_some).collect();
                if samples.is_empty() {
                    continue;
                }
                let dump = dump(profile, *pid, heap, samples);
                write_dumps(profile, vec![dump], true, index, out)?;
                index += 1;
            }
        }
    }
    // Readers accept the dumps once one comes that is marked as the last.
    write_dumps(profile, Vec::new(), false, index, out)
}

fn dump(profile: &Profile, pid: u32, heap: Heap, samples: Vec<HeapSample>) -> ProcessHeapSamples {
    ProcessHeapSamples {
        pid: u64::from(pid),
        samples,
        timestamp: profile.duration_ns,
        heap_name: heap_name(profile.kind, heap),
        sampling_interval_bytes: profile.interval_bytes,
        orig_sampling_interval_bytes: profile.interval_bytes,
    }
}

fn write_dumps(
    profile: &Profile,
    process_dumps: Vec<ProcessHeapSamples>,
    continued: bool,
    index: u64,
    out: &mut dyn Write,
) -> io::Result<()> {
    let dumps = ProfilePacket { process_dumps, continued, index };
    write_packet(TracePacket { profile_packet: Some(dumps), ..packet(profile.duration_ns) }, out)
}

fn heap_name(kind: Kind, heap: Heap) -> String {
    let name = if kind == Kind::Mapped { "mmap" } else { "malloc" };
    let what = if kind == Kind::Alloc { "allocated" } else { "held" };
    match heap {
        Heap::Estimates => name.to_owned(),
        Heap::Low => format!("{name}, low ends of what was {what}"),
        Heap::High => format!("{name}, high ends of what was {what}"),
    }
}

/// The numbers of a stack. The iid of a stack is its index plus 1.
fn sample(profile: &Profile, heap: Heap, index: usize) -> HeapSample {
    let stack = &profile.stacks[index];
    let callstack_id = index as u64 + 1;
    match heap {
        Heap::Estimates => estimates(profile.kind, &stack.quantities, callstack_id),
        Heap::Low => ends(profile, stack, callstack_id, |of| of.low),
        Heap::High => ends(profile, stack, callstack_id, |of| of.high),
    }
}

fn estimates(kind: Kind, of: &Quantities, callstack_id: u64) -> HeapSample {
    let Quantities { alloc_objects, alloc_space, inuse_objects, inuse_space } = of;
    let whole = |of: &super::super::profile::Quantity| of.estimate.value.round() as u64;
    let (held, held_count) = (whole(inuse_space), whole(inuse_objects));
    if kind == Kind::Peak {
        return HeapSample {
            callstack_id,
            self_max: Some(held),
            self_max_count: held_count,
            ..HeapSample::default()
        };
    }
    // Allocated and held are two estimates, and the held one may be larger. Tools compute
    // unreleased memory as their difference, which has to be the held one.
    let allocated = whole(alloc_space).max(held);
    let count = whole(alloc_objects).max(held_count);
    HeapSample {
        callstack_id,
        self_allocated: allocated,
        self_freed: allocated - held,
        alloc_count: count,
        free_count: count - held_count,
        ..HeapSample::default()
    }
}

/// One end of the quantities of the profile's kind; 0 if the end is infinite.
fn ends(
    profile: &Profile,
    stack: &Stack,
    callstack_id: u64,
    end: fn(&Estimate) -> f64,
) -> HeapSample {
    let whole = |of: &Estimate| Some(end(of)).filter(|end| end.is_finite()).unwrap_or(0.0).round();
    HeapSample {
        callstack_id,
        self_allocated: whole(&stack.quantities.space(profile.kind).estimate) as u64,
        alloc_count: whole(&stack.quantities.objects(profile.kind).estimate) as u64,
        ..HeapSample::default()
    }
}

/// Whether a sample has a number other than 0 after rounding.
fn is_some(of: &HeapSample) -> bool {
    of.self_allocated + of.alloc_count + of.self_max() + of.self_max_count > 0
}

#[cfg(test)]
mod tests;
