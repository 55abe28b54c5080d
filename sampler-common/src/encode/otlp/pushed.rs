//! Pushes as requests for `ProfilesService/Export`: a service is a resource, a quantity is a
//! profile.
//!
//! Receivers have rules beyond the published proto:
//!
//! - Pyroscope makes labels of the attributes of samples, scopes and resources, so only resources
//!   have attributes.
//! - Parca refuses a whole request if one profile has no samples. It takes a profile with a
//!   duration for a difference.
//!
//! Addresses are those of the file, in mappings from 0 to the end. Pyroscope's symbolizer takes the
//! address as it is, and Parca's does no arithmetic on such mappings.

use super::message::{
    AnyValue, ExportResponse, KeyValue, Location, Mapping, Profile, ProfilesData, Resource,
    ResourceProfiles, RetryInfo, Sample, Scope, ScopeProfiles, Status, ValueType, any_value::Value,
};
use super::tables::{BUILD_ID, Tables};
use crate::encode::pprof::SAMPLE_TYPES;
use crate::encode::push::{Push, Stack, in_parts};
use crate::profile::Kind;
use prost::Message as _;
use std::collections::HashMap;
use std::time::Duration;

/// Maximum bytes of a request, not compressed: receivers over gRPC take 4 MiB.
pub const MAX_REQUEST_BYTES: usize = (4 << 20) - (64 << 10);
/// Maximum samples of a profile: Pyroscope takes 16,000.
pub const MAX_SAMPLES: usize = 16_000;

/// OpenTelemetry's attribute for its own identifier of a file.
const HTLHASH: &str = "process.executable.build_id.htlhash";

/// A request, encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `ExportProfilesServiceRequest`.
    pub bytes: Vec<u8>,
    /// Number of profiles in the request.
    pub profiles: u64,
}

/// The requests that carry a push; none if the push is empty. `next_id` makes the id of each
/// profile, by which a receiver recognizes a duplicate.
pub fn requests(push: &Push, mut next_id: impl FnMut() -> [u8; 16]) -> Vec<Request> {
    requests_within(push, (MAX_REQUEST_BYTES, MAX_SAMPLES), &mut next_id)
}

fn requests_within(
    push: &Push,
    (max_bytes, max_samples): (usize, usize),
    next_id: &mut dyn FnMut() -> [u8; 16],
) -> Vec<Request> {
    let mut message = |stacks| {
        let data = Builder::new(push).message(stacks, next_id);
        let each = data.resource_profiles.iter().flat_map(|of| &of.scope_profiles);
        let profiles: Vec<usize> =
            each.flat_map(|of| &of.profiles).map(|of| of.samples.len()).collect();
        let largest = *profiles.iter().max()?;
        let is_large = data.encoded_len() > max_bytes || largest > max_samples;
        Some(((data, profiles.len() as u64), is_large))
    };
    let mut parts = Vec::new();
    in_parts(&push.stacks, &mut message, &mut parts);
    let request =
        |(data, profiles): (ProfilesData, u64)| Request { bytes: data.encode_to_vec(), profiles };
    parts.into_iter().map(request).collect()
}

/// Number of profiles that a receiver rejected, and the reason, from its answer. `None`: it took
/// all profiles, or the answer is not of the protocol.
pub fn rejected(answer: &[u8]) -> Option<(u64, String)> {
    let partial = ExportResponse::decode(answer).ok()?.partial_success?;
    let profiles = u64::try_from(partial.rejected_profiles).ok().filter(|profiles| *profiles > 0);
    profiles.map(|profiles| (profiles, partial.error_message))
}

/// Time that a gRPC receiver asks a sender to wait, from the details of its status. Without the
/// detail, the receiver may be out of room for ever.
pub fn retry_delay(details: &[u8]) -> Option<Duration> {
    let details = Status::decode(details).ok()?.details;
    let info = details.iter().find(|of| of.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(&info.value[..]).ok()?.retry_delay?;
    let [seconds, nanos] = [delay.seconds, i64::from(delay.nanos)].map(u64::try_from);
    Some(Duration::from_secs(seconds.ok()?).saturating_add(Duration::from_nanos(nanos.ok()?)))
}

/// A request under construction.
struct Builder<'a> {
    push: &'a Push,
    tables: Tables,
    mappings: HashMap<u32, i32>,
    frames: HashMap<u32, i32>,
    locations: HashMap<LocationKey, i32>,
    stacks: HashMap<&'a [u32], i32>,
}

/// Key of a location: mapping, address, and functions with lines.
type LocationKey = (i32, u64, Vec<(i32, i64)>);

impl<'a> Builder<'a> {
    fn new(push: &'a Push) -> Builder<'a> {
        Builder {
            push,
            tables: Tables::empty(),
            mappings: HashMap::new(),
            frames: HashMap::new(),
            locations: HashMap::new(),
            stacks: HashMap::new(),
        }
    }

    fn message(
        mut self,
        stacks: &'a [Stack],
        next_id: &mut dyn FnMut() -> [u8; 16],
    ) -> ProfilesData {
        let mut resource_profiles = Vec::new();
        for of_service in stacks.chunk_by(|a, b| a.service == b.service) {
            let profiles: Vec<Profile> = self.profiles(of_service, next_id);
            if profiles.is_empty() {
                continue;
            }
            let attributes = self.push.services[of_service[0].service as usize].iter();
            let text =
                |text: &String| Some(AnyValue { value: Some(Value::StringValue(text.clone())) });
            let attributes =
                attributes.map(|(key, of)| KeyValue { key: key.clone(), value: text(of) });
            let scope = Scope { name: "sampler".into(), attributes: Vec::new() };
            resource_profiles.push(ResourceProfiles {
                resource: Some(Resource { attributes: attributes.collect() }),
                scope_profiles: vec![ScopeProfiles { scope: Some(scope), profiles }],
            });
        }
        ProfilesData { resource_profiles, dictionary: Some(self.tables.finish()) }
    }

    /// Profiles of bytes and objects of a service, without empty ones.
    fn profiles(
        &mut self,
        stacks: &'a [Stack],
        next_id: &mut dyn FnMut() -> [u8; 16],
    ) -> Vec<Profile> {
        let push = self.push;
        // Bytes first: tools show the first profile.
        let types = match push.kind {
            Kind::Alloc => [1, 0],
            Kind::Live | Kind::Peak | Kind::Mapped => [3, 2],
        };
        let mut profiles = Vec::new();
        for (index, of_type) in types.into_iter().enumerate() {
            let samples = stacks.iter().filter_map(|stack| {
                let value = stack.values(push.kind)[index];
                (value != 0).then(|| Sample {
                    stack_index: self.stack(&stack.frames),
                    attribute_indices: Vec::new(),
                    values: vec![value],
                })
            });
            let samples: Vec<Sample> = samples.collect();
            if samples.is_empty() {
                continue;
            }
            let (name, unit) = SAMPLE_TYPES[of_type];
            profiles.push(Profile {
                sample_type: Some(self.value_type(name, unit)),
                samples,
                time_unix_nano: push.start_unix_ns,
                duration_nano: push.duration_ns,
                period_type: Some(self.value_type("space", "bytes")),
                period: i64::try_from(push.interval_bytes).unwrap_or(i64::MAX),
                profile_id: next_id().to_vec(),
                attribute_indices: Vec::new(),
            });
        }
        profiles
    }

    fn value_type(&mut self, name: &str, unit: &str) -> ValueType {
        ValueType {
            type_strindex: self.tables.string(name),
            unit_strindex: self.tables.string(unit),
        }
    }

    fn stack(&mut self, frames: &'a [u32]) -> i32 {
        if let Some(index) = self.stacks.get(frames) {
            return *index;
        }
        let locations = frames.iter().map(|frame| self.location(*frame)).collect();
        let index = self.tables.stack(locations);
        self.stacks.insert(frames, index);
        index
    }

    fn location(&mut self, number: u32) -> i32 {
        if let Some(index) = self.frames.get(&number) {
            return *index;
        }
        let push = self.push;
        let frame = &push.frames[number as usize];
        let (mapping_index, address) = match frame.code {
            Some((file, address)) => (self.mapping(file), address),
            None => (0, 0),
        };
        let lines: Vec<_> = frame.lines.iter().map(|line| self.tables.line(line)).collect();
        let known = lines.iter().map(|line| (line.function_index, line.line)).collect();
        let native = self.tables.native();
        let tables = &mut self.tables;
        let index = *self.locations.entry((mapping_index, address, known)).or_insert_with(|| {
            tables.location(Location {
                mapping_index,
                address,
                lines,
                attribute_indices: vec![native],
            })
        });
        self.frames.insert(number, index);
        index
    }

    fn mapping(&mut self, number: u32) -> i32 {
        if let Some(index) = self.mappings.get(&number) {
            return *index;
        }
        let file = &self.push.files[number as usize];
        let ids = [(BUILD_ID, &file.build_id), (HTLHASH, &file.htlhash)];
        let ids = ids.into_iter().filter(|(_, id)| !id.is_empty());
        let attribute_indices = ids
            .map(|(key, id)| self.tables.attribute(key, Value::StringValue(id.clone()), ""))
            .collect();
        let filename_strindex = self.tables.string(&file.path);
        let index = self.tables.mapping(Mapping {
            memory_start: 0,
            memory_limit: u64::MAX,
            file_offset: 0,
            filename_strindex,
            attribute_indices,
        });
        self.mappings.insert(number, index);
        index
    }
}

#[cfg(test)]
mod tests;
