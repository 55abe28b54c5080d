//! The messages of the public `profile.proto`, with its field numbers
//! (<https://github.com/google/pprof/blob/main/proto/profile.proto>).
//!
//! Indices into the string table are `i64` there; entry 0 is the empty string. Ids are never 0.

use prost::Message;

/// The file.
#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    /// Meaning of each value of a sample.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// One for each stack and set of labels.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    /// Mapped files.
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    /// Code locations.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    /// Functions.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    /// Every string of the file.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// Nanoseconds since the Unix epoch.
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    /// Nanoseconds sampled.
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    /// Meaning of `period`.
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    /// Mean distance between samples.
    #[prost(int64, tag = "12")]
    pub period: i64,
    /// Free text, string indices.
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    /// Which sample type a tool shows first, a string index.
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// A quantity and its unit, string indices.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ValueType {
    /// Name.
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    /// Unit.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// A stack with its values.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Sample {
    /// Leaf first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// As many as there are sample types.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    /// Further facts.
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

/// A fact about a sample.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Label {
    /// String index.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// Its number.
    #[prost(int64, tag = "3")]
    pub num: i64,
}

/// A mapped file.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Mapping {
    /// Never 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// First address.
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    /// Past the last address.
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    /// Offset in the file of `memory_start`.
    #[prost(uint64, tag = "4")]
    pub file_offset: u64,
    /// Path, a string index.
    #[prost(int64, tag = "5")]
    pub filename: i64,
    /// A string index.
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    /// Whether functions are resolved; a tool then does not try again.
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    /// Whether source files are known.
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    /// Whether lines are known.
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    /// Whether inlined functions are known.
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

/// A code location.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Location {
    /// Never 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// 0 for none.
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    /// Within the mapping's addresses.
    #[prost(uint64, tag = "3")]
    pub address: u64,
    /// Innermost inlined function first.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

/// A line of a function.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Line {
    /// Its function.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// 0 if unknown.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function; all but the id are string indices.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Function {
    /// Never 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Name for people.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// Name for the system.
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    /// Source file.
    #[prost(int64, tag = "4")]
    pub filename: i64,
}
