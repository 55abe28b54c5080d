//! Interned data that the packets of the trace refer to: strings, mappings, frames, stacks.

use super::super::address::Space;
use super::super::{NO_STACK, name};
use super::message::{Callstack, Frame, InternedData, InternedString, Mapping};
use crate::profile::{Line, Profile};
use std::collections::HashMap;

/// Strings and their iids.
#[derive(Default)]
struct Strings {
    entries: Vec<InternedString>,
    iids: HashMap<Vec<u8>, u64>,
}

impl Strings {
    /// The iid of some bytes; 0 for no bytes.
    fn iid(&mut self, bytes: Vec<u8>) -> u64 {
        if bytes.is_empty() {
            return 0;
        }
        let next = self.entries.len() as u64 + 1;
        *self.iids.entry(bytes).or_insert_with_key(|bytes| {
            self.entries.push(InternedString { iid: next, str: bytes.clone() });
            next
        })
    }

    fn text(&mut self, text: &str) -> u64 {
        self.iid(if text.is_empty() { Vec::new() } else { name::shown(text).as_bytes().to_vec() })
    }
}

/// All interned data except the stacks, and for each stack the iids of its frames, outermost first.
pub(super) fn of(profile: &Profile) -> (InternedData, Vec<Vec<u64>>) {
    let (mut names, mut files) = (Strings::default(), Strings::default());
    let (mut build_ids, mut paths) = (Strings::default(), Strings::default());
    let space = Space::of(profile);
    let mut mappings: Vec<Mapping> = Vec::with_capacity(profile.mappings.len() + 1);
    for (index, mapping) in profile.mappings.iter().enumerate() {
        let range = space.range(index);
        mappings.push(Mapping {
            iid: index as u64 + 1,
            build_id: build_ids.iid(raw(&mapping.build_id)),
            start: range.start,
            end: range.limit,
            path_string_ids: vec![paths.text(&mapping.path)],
            exact_offset: range.file_offset,
        });
    }
    let mut frames: Vec<Frame> = Vec::new();
    let mut add = |line: &Line, mapping_id: u64, rel_pc: u64| {
        let iid = frames.len() as u64 + 1;
        frames.push(Frame {
            iid,
            function_name_id: names.text(&line.function),
            mapping_id,
            rel_pc,
            source_path_iid: files.text(&line.file),
            line_number: line.line,
        });
        iid
    };
    let each = profile.locations.iter().map(|location| {
        let (mapping, at) = (u64::from(location.mapping) + 1, location.address);
        location.lines.iter().rev().map(|line| add(line, mapping, at)).collect::<Vec<u64>>()
    });
    let at: Vec<Vec<u64>> = each.collect();
    let unknown = mappings.len() as u64 + 1;
    let no_stack = add(&Line { function: NO_STACK.into(), ..Line::default() }, unknown, 0);
    let path_string_ids = vec![paths.text(NO_STACK)];
    mappings.push(Mapping { iid: unknown, path_string_ids, ..Mapping::default() });
    let stacks = profile.stacks.iter().map(|stack| {
        let ids = stack.locations.iter().rev().flat_map(|index| &at[*index as usize]).copied();
        let ids: Vec<u64> = ids.collect();
        if ids.is_empty() { vec![no_stack] } else { ids }
    });
    let stacks = stacks.collect();
    let data = InternedData {
        function_names: names.entries,
        frames,
        callstacks: Vec::new(),
        build_ids: build_ids.entries,
        mapping_paths: paths.entries,
        source_paths: files.entries,
        mappings,
    };
    (data, stacks)
}

/// The stacks from index `start` on.
pub(super) fn callstacks(start: u64, stacks: &[Vec<u64>]) -> Vec<Callstack> {
    let iids = start + 1..;
    let each = iids.zip(stacks);
    each.map(|(iid, frame_ids)| Callstack { iid, frame_ids: frame_ids.clone() }).collect()
}

/// The bytes of a build id in hex; no bytes for other text.
fn raw(build_id: &str) -> Vec<u8> {
    let digits: Option<Vec<u8>> =
        build_id.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.unwrap_or_default();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
