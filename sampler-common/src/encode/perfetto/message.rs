//! The messages of Perfetto's `trace.proto` that a heap profile takes, with its field numbers
//! (<https://github.com/google/perfetto/tree/main/protos/perfetto>; checked against the descriptors of version 0.59).
//!
//! Things that recur are interned: they have a number, an *iid*, that is never 0.

mod interned;

pub use interned::{Callstack, Frame, InternedData, InternedString, Mapping};

use prost::Message;

/// The file. Traces behind each other are one trace.
#[derive(Clone, PartialEq, Message)]
pub struct Trace {
    /// Its packets.
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

/// One of the things a trace is made of.
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// Nanoseconds of the boot clock.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// What the clocks show at one moment.
    #[prost(message, optional, tag = "6")]
    pub clock_snapshot: Option<ClockSnapshot>,
    /// Who wrote it; iids are known within a sequence.
    #[prost(uint32, tag = "10")]
    pub trusted_packet_sequence_id: u32,
    /// An event on a track.
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    /// What iids stand for.
    #[prost(message, optional, tag = "12")]
    pub interned_data: Option<InternedData>,
    /// 1: the sequence begins anew. 2: it goes on.
    #[prost(uint32, tag = "13")]
    pub sequence_flags: u32,
    /// Heap samples.
    #[prost(message, optional, tag = "37")]
    pub profile_packet: Option<ProfilePacket>,
    /// A track.
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

/// What the clocks show at one moment.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ClockSnapshot {
    /// The clocks.
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<Clock>,
}

/// A clock.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Clock {
    /// 1: real time. 4: monotonic, coarse. 6: boot time.
    #[prost(uint32, tag = "1")]
    pub clock_id: u32,
    /// Nanoseconds.
    #[prost(uint64, tag = "2")]
    pub timestamp: u64,
}

/// A row in the timeline.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TrackDescriptor {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub uuid: u64,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
}

/// Something on a track.
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    /// What is known of it.
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// 3: an instant.
    #[prost(int32, tag = "9")]
    pub r#type: i32,
    /// Its track.
    #[prost(uint64, tag = "11")]
    pub track_uuid: u64,
    /// What it is called.
    #[prost(string, tag = "23")]
    pub name: String,
}

/// A name and a text.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DebugAnnotation {
    /// Name.
    #[prost(string, tag = "10")]
    pub name: String,
    /// Text.
    #[prost(string, tag = "6")]
    pub string_value: String,
}

/// Heap samples.
#[derive(Clone, PartialEq, Message)]
pub struct ProfilePacket {
    /// By process and heap.
    #[prost(message, repeated, tag = "5")]
    pub process_dumps: Vec<ProcessHeapSamples>,
    /// Whether the next one goes on with it.
    #[prost(bool, tag = "6")]
    pub continued: bool,
    /// Counted from 0.
    #[prost(uint64, tag = "7")]
    pub index: u64,
}

/// The samples of a heap of a process.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ProcessHeapSamples {
    /// Process.
    #[prost(uint64, tag = "1")]
    pub pid: u64,
    /// Its stacks.
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<HeapSample>,
    /// Nanoseconds of the coarse monotonic clock.
    #[prost(uint64, tag = "9")]
    pub timestamp: u64,
    /// Which heap.
    #[prost(string, tag = "11")]
    pub heap_name: String,
    /// Mean distance of samples, bytes.
    #[prost(uint64, tag = "12")]
    pub sampling_interval_bytes: u64,
    /// The one that was asked for.
    #[prost(uint64, tag = "13")]
    pub orig_sampling_interval_bytes: u64,
}

/// The numbers of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct HeapSample {
    /// Iid.
    #[prost(uint64, tag = "1")]
    pub callstack_id: u64,
    /// Bytes.
    #[prost(uint64, tag = "2")]
    pub self_allocated: u64,
    /// Bytes.
    #[prost(uint64, tag = "3")]
    pub self_freed: u64,
    /// Objects.
    #[prost(uint64, tag = "5")]
    pub alloc_count: u64,
    /// Objects.
    #[prost(uint64, tag = "6")]
    pub free_count: u64,
    /// Bytes held at the peak; then the four above are not set.
    #[prost(uint64, optional, tag = "8")]
    pub self_max: Option<u64>,
    /// Objects held at the peak.
    #[prost(uint64, tag = "9")]
    pub self_max_count: u64,
}
