//! The dictionary: each entry once; entry 0 of every table is empty.

use super::super::NO_STACK;
use super::super::address::Space;
use super::message::{
    AnyValue, Dictionary, Function, KeyValueAndUnit, Line, Link, Location, Mapping, Stack,
    any_value::Value,
};
use crate::profile::{self, Profile};
use std::collections::HashMap;

/// Attribute names of the semantic conventions.
pub(super) const BUILD_ID: &str = "process.executable.build_id.gnu";
const FRAME_TYPE: &str = "profile.frame.type";

/// A dictionary under construction.
pub(super) struct Tables {
    strings: Vec<String>,
    string_indices: HashMap<String, i32>,
    functions: Vec<Function>,
    function_indices: HashMap<(i32, i32), i32>,
    attributes: Vec<KeyValueAndUnit>,
    /// Indices of attributes by key, value and unit; texts by the index of their string.
    attribute_indices: HashMap<(i32, Known, i32), i32>,
    mappings: Vec<Mapping>,
    locations: Vec<Location>,
    stacks: Vec<Stack>,
}

/// A value as part of an attribute's key in `attribute_indices`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Known {
    Text(i32),
    Int(i64),
    Double(u64),
}

impl Tables {
    /// Tables with only entry 0.
    pub(super) fn empty() -> Tables {
        Tables {
            strings: vec![String::new()],
            string_indices: HashMap::from([(String::new(), 0)]),
            functions: vec![Function::default()],
            function_indices: HashMap::from([((0, 0), 0)]),
            attributes: vec![KeyValueAndUnit::default()],
            attribute_indices: HashMap::new(),
            mappings: vec![Mapping::default()],
            locations: vec![Location::default()],
            stacks: vec![Stack::default()],
        }
    }

    /// The dictionary of a profile, and the index of each of the profile's stacks.
    pub(super) fn of(profile: &Profile) -> (Tables, Vec<i32>) {
        let mut tables = Tables::empty();
        tables.add_locations(profile);
        let stacks = tables.add_stacks(profile);
        (tables, stacks)
    }

    pub(super) fn finish(self) -> Dictionary {
        Dictionary {
            mapping_table: self.mappings,
            location_table: self.locations,
            function_table: self.functions,
            link_table: vec![Link {}],
            string_table: self.strings,
            attribute_table: self.attributes,
            stack_table: self.stacks,
        }
    }

    /// Index of a string.
    pub(super) fn string(&mut self, text: &str) -> i32 {
        if let Some(index) = self.string_indices.get(text) {
            return *index;
        }
        let index = self.strings.len() as i32;
        self.strings.push(text.to_owned());
        self.string_indices.insert(text.to_owned(), index);
        index
    }

    /// Index of an attribute; a unit may be empty.
    pub(super) fn attribute(&mut self, key: &str, value: Value, unit: &str) -> i32 {
        let (key_strindex, unit_strindex) = (self.string(key), self.string(unit));
        let known = match &value {
            Value::StringValue(text) => Known::Text(self.string(text)),
            Value::IntValue(number) => Known::Int(*number),
            Value::DoubleValue(number) => Known::Double(number.to_bits()),
        };
        *self.attribute_indices.entry((key_strindex, known, unit_strindex)).or_insert_with(|| {
            let value = Some(AnyValue { value: Some(value) });
            self.attributes.push(KeyValueAndUnit { key_strindex, value, unit_strindex });
            self.attributes.len() as i32 - 1
        })
    }

    fn add_locations(&mut self, profile: &Profile) {
        let space = Space::of(profile);
        for (index, mapping) in profile.mappings.iter().enumerate() {
            let range = space.range(index);
            let id = Some(mapping.build_id.clone()).filter(|id| !id.is_empty());
            let id = id.map(|id| self.attribute(BUILD_ID, Value::StringValue(id), ""));
            let filename_strindex = self.string(&mapping.path);
            self.mappings.push(Mapping {
                memory_start: range.start,
                memory_limit: range.limit,
                file_offset: range.file_offset,
                filename_strindex,
                attribute_indices: id.into_iter().collect(),
            });
        }
        let native = self.native();
        for location in &profile.locations {
            let lines = location.lines.iter().map(|line| self.line(line)).collect();
            self.locations.push(Location {
                mapping_index: location.mapping as i32 + 1,
                address: space.range(location.mapping as usize).address(location.address),
                lines,
                attribute_indices: vec![native],
            });
        }
    }

    /// Index of the attribute with the frame type, which all frames share.
    pub(super) fn native(&mut self) -> i32 {
        self.attribute(FRAME_TYPE, Value::StringValue("native".into()), "")
    }

    /// Index of a new mapping.
    pub(super) fn mapping(&mut self, mapping: Mapping) -> i32 {
        self.mappings.push(mapping);
        self.mappings.len() as i32 - 1
    }

    /// Index of a new location.
    pub(super) fn location(&mut self, location: Location) -> i32 {
        self.locations.push(location);
        self.locations.len() as i32 - 1
    }

    /// Index of a new stack. A stack without locations gets the location `NO_STACK`.
    pub(super) fn stack(&mut self, mut location_indices: Vec<i32>) -> i32 {
        if location_indices.is_empty() {
            location_indices.push(self.no_stack());
        }
        self.stacks.push(Stack { location_indices });
        self.stacks.len() as i32 - 1
    }

    pub(super) fn line(&mut self, line: &profile::Line) -> Line {
        let (name, file) = (self.string(&line.function), self.string(&line.file));
        let function_index = *self.function_indices.entry((name, file)).or_insert_with(|| {
            self.functions.push(Function {
                name_strindex: name,
                system_name_strindex: name,
                filename_strindex: file,
            });
            self.functions.len() as i32 - 1
        });
        Line { function_index, line: i64::from(line.line) }
    }

    fn add_stacks(&mut self, profile: &Profile) -> Vec<i32> {
        let mut known: HashMap<&[u32], i32> = HashMap::new();
        let mut indices = Vec::with_capacity(profile.stacks.len());
        for stack in &profile.stacks {
            let next = self.stacks.len() as i32;
            let index = *known.entry(&stack.locations).or_insert(next);
            if index == next {
                self.stack(stack.locations.iter().map(|location| *location as i32 + 1).collect());
            }
            indices.push(index);
        }
        indices
    }

    /// The location of stacks without locations. All such stacks are one stack, so this function is
    /// called once.
    fn no_stack(&mut self) -> i32 {
        let line = profile::Line { function: NO_STACK.into(), ..profile::Line::default() };
        let lines = vec![self.line(&line)];
        self.location(Location { lines, ..Location::default() })
    }
}
