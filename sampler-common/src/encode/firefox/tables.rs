//! The tables that all threads share, column by column. Every string is in one table; stacks are a
//! tree, each with its caller.

use super::super::functions::functions;
use super::super::name::base_name;
use super::super::trie::Trie;
use super::super::{NO_STACK, name};
use super::MARKER;
use crate::profile::{Profile, is_entry};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Indices of [`categories`].
const OTHER: u32 = 0;
const PROGRAM: u32 = 1;
const ALLOCATOR: u32 = 2;
/// Type of a resource that is a library.
const LIBRARY: u32 = 1;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tables {
    string_array: Vec<String>,
    sources: Sources,
    stack_table: Stacks,
    frame_table: Frames,
    func_table: Functions,
    resource_table: Resources,
    native_symbols: Value,
    /// Index of the name that all markers have.
    #[serde(skip)]
    pub(super) estimate: usize,
    #[serde(skip)]
    indices: HashMap<String, usize>,
}

#[derive(Default, Serialize)]
struct Sources {
    length: usize,
    id: Vec<Option<String>>,
    filename: Vec<usize>,
}

#[derive(Default, Serialize)]
struct Stacks {
    length: usize,
    frame: Vec<u32>,
    prefix: Vec<Option<u32>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Frames {
    length: usize,
    /// −1: the format has addresses in the image, and only offsets in the file are known.
    address: Vec<i64>,
    inline_depth: Vec<usize>,
    category: Vec<u32>,
    subcategory: Vec<u32>,
    func: Vec<usize>,
    native_symbol: Vec<Option<u32>>,
    #[serde(rename = "innerWindowID")]
    inner_window_id: Vec<Option<u32>>,
    line: Vec<Option<u32>>,
    column: Vec<Option<u32>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Functions {
    length: usize,
    name: Vec<usize>,
    #[serde(rename = "isJS")]
    is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    relevant_for_js: Vec<bool>,
    resource: Vec<i64>,
    source: Vec<Option<usize>>,
    line_number: Vec<Option<u32>>,
    column_number: Vec<Option<u32>>,
}

#[derive(Default, Serialize)]
struct Resources {
    length: usize,
    lib: Vec<usize>,
    name: Vec<usize>,
    host: Vec<Option<usize>>,
    r#type: Vec<u32>,
}

/// Kinds of frames with the colors that the profiler gives them.
pub(super) fn categories() -> Value {
    let category = |name: &str, color: &str| json!({ "name": name, "color": color, "subcategories": ["Other"] });
    // The order is that of `OTHER`, `PROGRAM` and `ALLOCATOR`.
    json!([category("Other", "grey"), category("Program", "blue"), category("Allocator", "orange")])
}

impl Tables {
    /// The tables, and for each stack of the profile its index in the stack table.
    pub(super) fn of(profile: &Profile) -> (Tables, Vec<u32>) {
        let mut tables = Tables {
            string_array: Vec::new(),
            sources: Sources::default(),
            stack_table: Stacks::default(),
            frame_table: Frames::default(),
            func_table: Functions::default(),
            resource_table: Resources::default(),
            native_symbols: json!({
                "length": 0, "libIndex": [], "address": [], "name": [], "functionSize": [],
            }),
            estimate: 0,
            indices: HashMap::new(),
        };
        tables.estimate = tables.string(MARKER);
        tables.add_resources(profile);
        let frames = tables.add_frames(profile);
        let stacks = tables.add_stacks(profile, &frames);
        (tables, stacks)
    }

    /// Index of a text, shown on one line.
    fn string(&mut self, text: &str) -> usize {
        if let Some(index) = self.indices.get(text) {
            return *index;
        }
        let index = self.string_array.len();
        self.string_array.push(name::shown(text).into_owned());
        self.indices.insert(text.to_owned(), index);
        index
    }

    /// A resource for each mapping.
    fn add_resources(&mut self, profile: &Profile) {
        for (index, mapping) in profile.mappings.iter().enumerate() {
            let base = base_name(&mapping.path);
            let name = self.string(base);
            let table = &mut self.resource_table;
            table.lib.push(index);
            table.name.push(name);
            table.host.push(None);
            table.r#type.push(LIBRARY);
            table.length += 1;
        }
    }

    /// Adds a frame for each line of a location. Returns the frames of each location, outermost
    /// first, and last the frame of stacks without locations.
    fn add_frames(&mut self, profile: &Profile) -> Vec<Vec<u32>> {
        let (functions, at) = functions(profile);
        let mut sources = HashMap::new();
        let mut resources: Vec<i64> = vec![-1; functions.len()];
        for (location, ids) in profile.locations.iter().zip(&at) {
            ids.iter().for_each(|id| resources[*id] = i64::from(location.mapping));
        }
        for (function, resource) in functions.iter().zip(resources) {
            let source = (!function.file.is_empty()).then(|| {
                let file = self.string(function.file);
                *sources.entry(file).or_insert_with(|| self.sources.add(file))
            });
            self.add_function(function.name, resource, source);
        }
        let mut frames = Vec::with_capacity(at.len() + 1);
        for (location, ids) in profile.locations.iter().zip(&at) {
            let lines = location.lines.iter().rev().map(|line| line.line);
            let each = ids.iter().zip(lines).enumerate();
            frames.push(
                each.map(|(depth, (func, line))| {
                    let category = category(functions[*func].name);
                    self.frame_table.add(depth, *func, category, line)
                })
                .collect(),
            );
        }
        let no_stack = self.func_table.length;
        self.add_function(NO_STACK, -1, None);
        frames.push(vec![self.frame_table.add(0, no_stack, OTHER, 0)]);
        frames
    }

    fn add_function(&mut self, name: &str, resource: i64, source: Option<usize>) {
        let name = self.string(name);
        let table = &mut self.func_table;
        table.name.push(name);
        table.is_js.push(false);
        table.relevant_for_js.push(false);
        table.resource.push(resource);
        table.source.push(source);
        table.line_number.push(None);
        table.column_number.push(None);
        table.length += 1;
    }

    /// Adds every stack with its callers, each once.
    fn add_stacks(&mut self, profile: &Profile, frames: &[Vec<u32>]) -> Vec<u32> {
        let no_stack = &frames[frames.len() - 1];
        let trie = Trie::of(profile.stacks.iter().map(|stack| {
            let own = stack.locations.iter().rev().flat_map(|index| &frames[*index as usize]);
            let none = no_stack.iter().filter(|_| stack.locations.is_empty());
            own.chain(none).copied()
        }));
        let table = &mut self.stack_table;
        table.length = trie.nodes.len();
        table.frame = trie.nodes.iter().map(|node| node.frame).collect();
        table.prefix = trie.nodes.iter().map(|node| node.caller).collect();
        // Every stack has a frame, since stacks without locations have `NO_STACK`.
        trie.leaves.into_iter().map(|leaf| leaf.unwrap_or(0)).collect()
    }
}

impl Sources {
    fn add(&mut self, filename: usize) -> usize {
        self.id.push(None);
        self.filename.push(filename);
        self.length += 1;
        self.length - 1
    }
}

impl Frames {
    fn add(&mut self, inline_depth: usize, func: usize, category: u32, line: u32) -> u32 {
        self.address.push(-1);
        self.inline_depth.push(inline_depth);
        self.category.push(category);
        self.subcategory.push(0);
        self.func.push(func);
        self.native_symbol.push(None);
        self.inner_window_id.push(None);
        self.line.push(Some(line).filter(|line| *line > 0));
        self.column.push(None);
        self.length += 1;
        (self.length - 1) as u32
    }
}

fn category(function: &str) -> u32 {
    match function {
        name if name.starts_with('[') => OTHER,
        name if is_entry(name) => ALLOCATOR,
        _ => PROGRAM,
    }
}
