//! Pushes in the pprof format: a profile for each service, with the quantities of its kind only.
//!
//! A receiver makes series of the sample types and of the text labels of samples, so samples have
//! no text labels.

use super::message::{Location, Mapping, Profile, Sample, ValueType};
use super::tables::Tables;
use super::{SAMPLE_TYPES, signed};
use crate::encode::NO_STACK;
use crate::encode::push::{Push, Stack, in_parts};
use crate::profile::{Kind, Line, entry_pattern};
use prost::Message as _;
use std::collections::HashMap;

/// Maximum samples of a profile, and maximum bytes of an uncompressed one: Pyroscope takes no more.
const MAX_SAMPLES: usize = 16_000;
const MAX_BYTES: usize = 4 << 20;

/// The profiles that carry a push, encoded and not compressed, each with the index of its service.
/// Services without samples have none.
pub fn profiles(push: &Push) -> Vec<(u32, Vec<u8>)> {
    profiles_within(push, (MAX_BYTES, MAX_SAMPLES))
}

fn profiles_within(push: &Push, (max_bytes, max_samples): (usize, usize)) -> Vec<(u32, Vec<u8>)> {
    let mut message = |stacks: &[Stack]| {
        let profile = Builder::default().profile(push, stacks);
        let is_large = profile.sample.len() > max_samples || profile.encoded_len() > max_bytes;
        (!profile.sample.is_empty()).then_some(((stacks[0].service, profile), is_large))
    };
    let mut parts = Vec::new();
    for stacks in push.stacks.chunk_by(|a, b| a.service == b.service) {
        in_parts(stacks, &mut message, &mut parts);
    }
    parts.into_iter().map(|(service, profile)| (service, profile.encode_to_vec())).collect()
}

/// A profile under construction.
#[derive(Default)]
struct Builder {
    tables: Tables,
    mappings: Vec<Mapping>,
    locations: Vec<Location>,
    /// Mapping ids by file, and location ids by frame; `None`: the location of rows without a
    /// stack.
    mapping_ids: HashMap<u32, u64>,
    location_ids: HashMap<Option<u32>, u64>,
}

impl Builder {
    fn profile(mut self, push: &Push, stacks: &[Stack]) -> Profile {
        let types = match push.kind {
            Kind::Alloc => &SAMPLE_TYPES[..2],
            Kind::Live | Kind::Peak | Kind::Mapped => &SAMPLE_TYPES[2..],
        };
        let samples = stacks.iter().filter_map(|stack| self.sample(push, stack));
        let sample = samples.collect();
        let tables = &mut self.tables;
        let mut value_type = |(name, unit): (&str, &str)| ValueType {
            r#type: tables.string(name),
            unit: tables.string(unit),
        };
        let sample_type = types.iter().map(|of| value_type(*of)).collect();
        let period_type = Some(value_type(("space", "bytes")));
        Profile {
            sample_type,
            sample,
            mapping: self.mappings,
            location: self.locations,
            time_nanos: signed(push.start_unix_ns),
            duration_nanos: signed(push.duration_ns),
            period_type,
            period: signed(push.interval_bytes),
            comment: Vec::new(),
            default_sample_type: self.tables.string(types[1].0),
            // Without `drop_frames` every tool would attribute everything to malloc.
            drop_frames: self.tables.string(&entry_pattern()),
            function: self.tables.functions,
            string_table: self.tables.strings,
        }
    }

    /// The sample of a row; `None` if the row rounds to 0.
    fn sample(&mut self, push: &Push, stack: &Stack) -> Option<Sample> {
        let [space, objects] = stack.values(push.kind);
        if space == 0 && objects == 0 {
            return None;
        }
        let mut location_id: Vec<u64> =
            stack.frames.iter().map(|frame| self.location(push, Some(*frame))).collect();
        if location_id.is_empty() {
            location_id.push(self.location(push, None));
        }
        Some(Sample { location_id, value: vec![objects, space], label: Vec::new() })
    }

    fn location(&mut self, push: &Push, number: Option<u32>) -> u64 {
        if let Some(id) = self.location_ids.get(&number) {
            return *id;
        }
        let frame = number.map(|number| &push.frames[number as usize]);
        let (mapping_id, address) = match frame.and_then(|frame| frame.code) {
            Some((file, address)) => (self.mapping(push, file), address),
            None => (0, 0),
        };
        let line = match frame {
            Some(frame) => frame.lines.iter().map(|line| self.tables.line(line)).collect(),
            None => {
                vec![self.tables.line(&Line { function: NO_STACK.into(), ..Line::default() })]
            }
        };
        let id = self.locations.len() as u64 + 1;
        self.locations.push(Location { id, mapping_id, address, line });
        self.location_ids.insert(number, id);
        id
    }

    fn mapping(&mut self, push: &Push, number: u32) -> u64 {
        if let Some(id) = self.mapping_ids.get(&number) {
            return *id;
        }
        let file = &push.files[number as usize];
        let id = self.mappings.len() as u64 + 1;
        self.mappings.push(Mapping {
            id,
            memory_start: 0,
            memory_limit: u64::MAX,
            file_offset: 0,
            filename: self.tables.string(&file.path),
            build_id: self.tables.string(&file.build_id),
            has_functions: true,
            ..Mapping::default()
        });
        self.mapping_ids.insert(number, id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::push::{Draw, Frame};
    use crate::estimate::RowMoments;

    fn push(rows: u32) -> Push {
        let row = |number: u32| {
            let mut moments = RowMoments::default();
            moments.alloc_space.add_samples(2, 100.0, 1.0);
            moments.alloc_objects.add_samples(2, 1.0, 1.0);
            Stack { service: number % 2, frames: vec![number], moments }
        };
        let lines = vec![Line { function: "f".into(), ..Line::default() }];
        let mut stacks: Vec<Stack> = (0..rows).map(row).collect();
        stacks.push(Stack { service: 2, frames: Vec::new(), moments: RowMoments::default() });
        stacks.sort_by_key(|of| of.service);
        Push {
            kind: Kind::Alloc,
            start_unix_ns: 7,
            duration_ns: 5,
            interval_bytes: 1,
            draw: Draw::ALL,
            services: vec![Vec::new(); 3],
            totals: Vec::new(),
            files: Vec::new(),
            frames: vec![Frame { code: None, lines }; rows as usize],
            stacks,
        }
    }

    fn decoded(bytes: &[u8]) -> Profile {
        Profile::decode(bytes).unwrap()
    }

    #[test]
    fn services_have_profiles_of_their_nonzero_types() {
        let profiles = profiles(&push(10));
        let services: Vec<u32> = profiles.iter().map(|(service, _)| *service).collect();
        assert_eq!(services, [0, 1]);
        let profile = decoded(&profiles[0].1);
        let text = |index: i64| profile.string_table[index as usize].as_str();
        let types: Vec<&str> = profile.sample_type.iter().map(|of| text(of.r#type)).collect();
        assert_eq!(types, ["alloc_objects", "alloc_space"]);
        assert!(profile.sample.iter().all(|of| of.value == [2, 200] && of.label.is_empty()));
        assert_eq!((profile.time_nanos, profile.duration_nanos), (7, 5));
    }

    #[test]
    fn large_profiles_are_split_without_loss() {
        let mut push = push(100);
        push.stacks.retain(|of| of.service == 0);
        for limits in [(1 << 20, 7), (300, 1000)] {
            let profiles = profiles_within(&push, limits);
            let samples: Vec<usize> =
                profiles.iter().map(|(_, bytes)| decoded(bytes).sample.len()).collect();
            assert_eq!(samples.iter().sum::<usize>(), 50, "{limits:?}");
            assert!(samples.len() > 1 && samples.iter().all(|of| *of <= limits.1));
        }
    }
}
