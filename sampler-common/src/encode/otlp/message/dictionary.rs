//! The entries of the dictionary.

use super::AnyValue;
use prost::Message;

/// A mapped file.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Mapping {
    /// First address.
    #[prost(uint64, tag = "1")]
    pub memory_start: u64,
    /// Past the last address.
    #[prost(uint64, tag = "2")]
    pub memory_limit: u64,
    /// Offset in the file of `memory_start`.
    #[prost(uint64, tag = "3")]
    pub file_offset: u64,
    /// Path.
    #[prost(int32, tag = "4")]
    pub filename_strindex: i32,
    /// Facts.
    #[prost(int32, repeated, tag = "5")]
    pub attribute_indices: Vec<i32>,
}

/// Locations, leaf first.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Stack {
    /// Them.
    #[prost(int32, repeated, tag = "1")]
    pub location_indices: Vec<i32>,
}

/// A code location.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Location {
    /// Its mapping.
    #[prost(int32, tag = "1")]
    pub mapping_index: i32,
    /// Within the mapping's addresses.
    #[prost(uint64, tag = "2")]
    pub address: u64,
    /// Innermost inlined function first.
    #[prost(message, repeated, tag = "3")]
    pub lines: Vec<Line>,
    /// Facts.
    #[prost(int32, repeated, tag = "4")]
    pub attribute_indices: Vec<i32>,
}

/// A line of a function.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Line {
    /// Its function.
    #[prost(int32, tag = "1")]
    pub function_index: i32,
    /// 0 if unknown.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function; all are string indices.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Function {
    /// Name for people.
    #[prost(int32, tag = "1")]
    pub name_strindex: i32,
    /// Name for the system.
    #[prost(int32, tag = "2")]
    pub system_name_strindex: i32,
    /// Source file.
    #[prost(int32, tag = "3")]
    pub filename_strindex: i32,
}

/// An attribute.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValueAndUnit {
    /// Key.
    #[prost(int32, tag = "1")]
    pub key_strindex: i32,
    /// Value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
    /// Unit.
    #[prost(int32, tag = "3")]
    pub unit_strindex: i32,
}
