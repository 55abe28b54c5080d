//! The messages of OTLP profiles, `opentelemetry/proto/profiles/v1development/profiles.proto`, with its field numbers
//! (<https://github.com/open-telemetry/opentelemetry-proto>; checked against the descriptors of the Python package 1.45).
//!
//! Everything refers to one dictionary by indices; entry 0 of each of its tables is empty and stands for "not set".

mod dictionary;

pub use dictionary::{Function, KeyValueAndUnit, Line, Location, Mapping, Stack};

use prost::Message;

/// The file.
#[derive(Clone, PartialEq, Message)]
pub struct ProfilesData {
    /// By what they are about: one for each process.
    #[prost(message, repeated, tag = "1")]
    pub resource_profiles: Vec<ResourceProfiles>,
    /// What indices mean.
    #[prost(message, optional, tag = "2")]
    pub dictionary: Option<Dictionary>,
}

/// The tables.
#[derive(Clone, PartialEq, Message)]
pub struct Dictionary {
    /// Mapped files.
    #[prost(message, repeated, tag = "1")]
    pub mapping_table: Vec<Mapping>,
    /// Code locations.
    #[prost(message, repeated, tag = "2")]
    pub location_table: Vec<Location>,
    /// Functions.
    #[prost(message, repeated, tag = "3")]
    pub function_table: Vec<Function>,
    /// Links to traces: none but the empty one.
    #[prost(message, repeated, tag = "4")]
    pub link_table: Vec<Link>,
    /// Strings.
    #[prost(string, repeated, tag = "5")]
    pub string_table: Vec<String>,
    /// Attributes of samples, mappings, locations and profiles.
    #[prost(message, repeated, tag = "6")]
    pub attribute_table: Vec<KeyValueAndUnit>,
    /// Stacks.
    #[prost(message, repeated, tag = "7")]
    pub stack_table: Vec<Stack>,
}

/// The profiles of a resource.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceProfiles {
    /// The process.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// By who made them.
    #[prost(message, repeated, tag = "2")]
    pub scope_profiles: Vec<ScopeProfiles>,
}

/// What profiles are about.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    /// Facts.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// The profiles of a profiler.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeProfiles {
    /// Who made them, and how.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    /// One for each quantity.
    #[prost(message, repeated, tag = "2")]
    pub profiles: Vec<Profile>,
}

/// Who made profiles.
#[derive(Clone, PartialEq, Message)]
pub struct Scope {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Facts.
    #[prost(message, repeated, tag = "3")]
    pub attributes: Vec<KeyValue>,
}

/// A key and a value.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// Key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// A value of some type.
#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    /// It.
    #[prost(oneof = "Value", tags = "1, 3, 4")]
    pub value: Option<Value>,
}

/// The types that are used.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Value {
    /// Text.
    #[prost(string, tag = "1")]
    Text(String),
    /// Whole number.
    #[prost(int64, tag = "3")]
    Int(i64),
    /// Number.
    #[prost(double, tag = "4")]
    Double(f64),
}

/// One quantity.
#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub sample_type: Option<ValueType>,
    /// Its stacks.
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
    /// When it began, nanoseconds since the Unix epoch.
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    /// Nanoseconds.
    #[prost(uint64, tag = "4")]
    pub duration_nano: u64,
    /// Meaning of `period`.
    #[prost(message, optional, tag = "5")]
    pub period_type: Option<ValueType>,
    /// Mean distance between samples.
    #[prost(int64, tag = "6")]
    pub period: i64,
    /// Facts.
    #[prost(int32, repeated, tag = "11")]
    pub attribute_indices: Vec<i32>,
}

/// Links samples to traces; never set here.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Link {}

/// A quantity and its unit, string indices.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ValueType {
    /// Name.
    #[prost(int32, tag = "1")]
    pub type_strindex: i32,
    /// Unit.
    #[prost(int32, tag = "2")]
    pub unit_strindex: i32,
}

/// A stack with its number.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Sample {
    /// Stack.
    #[prost(int32, tag = "1")]
    pub stack_index: i32,
    /// Facts.
    #[prost(int32, repeated, tag = "2")]
    pub attribute_indices: Vec<i32>,
    /// The number.
    #[prost(int64, repeated, tag = "4")]
    pub values: Vec<i64>,
}
