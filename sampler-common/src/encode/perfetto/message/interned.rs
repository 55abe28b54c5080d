//! What iids stand for.

use prost::Message;

/// What iids stand for.
#[derive(Clone, PartialEq, Message)]
pub struct InternedData {
    /// Functions.
    #[prost(message, repeated, tag = "5")]
    pub function_names: Vec<InternedString>,
    /// Frames.
    #[prost(message, repeated, tag = "6")]
    pub frames: Vec<Frame>,
    /// Stacks.
    #[prost(message, repeated, tag = "7")]
    pub callstacks: Vec<Callstack>,
    /// Build ids, as bytes.
    #[prost(message, repeated, tag = "16")]
    pub build_ids: Vec<InternedString>,
    /// Paths of mappings.
    #[prost(message, repeated, tag = "17")]
    pub mapping_paths: Vec<InternedString>,
    /// Source files.
    #[prost(message, repeated, tag = "18")]
    pub source_paths: Vec<InternedString>,
    /// Mappings.
    #[prost(message, repeated, tag = "19")]
    pub mappings: Vec<Mapping>,
}

/// A string with its iid.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct InternedString {
    /// Iid.
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    /// Bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub str: Vec<u8>,
}

/// A mapped file.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Mapping {
    /// Iid.
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    /// Iid, 0 for none.
    #[prost(uint64, tag = "2")]
    pub build_id: u64,
    /// First address.
    #[prost(uint64, tag = "4")]
    pub start: u64,
    /// Past the last address.
    #[prost(uint64, tag = "5")]
    pub end: u64,
    /// Iids of the parts of its path.
    #[prost(uint64, repeated, packed = "false", tag = "7")]
    pub path_string_ids: Vec<u64>,
    /// Offset in the file of `start`.
    #[prost(uint64, tag = "8")]
    pub exact_offset: u64,
}

/// A frame.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Frame {
    /// Iid.
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    /// Iid.
    #[prost(uint64, tag = "2")]
    pub function_name_id: u64,
    /// Iid.
    #[prost(uint64, tag = "3")]
    pub mapping_id: u64,
    /// Where in the mapped file.
    #[prost(uint64, tag = "4")]
    pub rel_pc: u64,
    /// Iid, 0 for none.
    #[prost(uint64, tag = "5")]
    pub source_path_iid: u64,
    /// 0 for none.
    #[prost(uint32, tag = "6")]
    pub line_number: u32,
}

/// A stack.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Callstack {
    /// Iid.
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    /// Iids, outermost first.
    #[prost(uint64, repeated, packed = "false", tag = "2")]
    pub frame_ids: Vec<u64>,
}
