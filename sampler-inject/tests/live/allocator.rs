//! The functions of this process's allocator, and its mappings.

use std::ffi::CString;
use std::ops::Range;

use object::{Object, ObjectSegment, ObjectSymbol};

use sampler_inject::plan::{Candidate, HEAP_GROWTH_BYTES, Layout};
use sampler_inject::prologue::{Code, Function, places_with};

/// Names, and integer arguments.
const FUNCTIONS: [(&str, u8); 13] = [
    ("malloc", 1),
    ("free", 1),
    ("calloc", 2),
    ("realloc", 2),
    ("memalign", 2),
    ("aligned_alloc", 2),
    ("posix_memalign", 3),
    ("valloc", 1),
    ("pvalloc", 1),
    ("_Znwm", 1),
    ("_Znam", 1),
    ("_ZdlPv", 1),
    ("_ZdaPv", 1),
];

/// The library that has this process's malloc.
pub(crate) struct Allocator {
    pub(crate) families: Vec<Family>,
    /// Its executable segment: address in this process, and bytes as the file has them.
    text: (u64, &'static [u8]),
}

/// A function by name.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) address: u64,
    size: u64,
    arguments: u8,
}

impl Allocator {
    /// Reads the library's file. Memory may hold other tools' breakpoints.
    pub(crate) fn of_this_process() -> Allocator {
        let malloc = resolve("malloc").unwrap();
        let maps = Maps::of_this_process();
        let bytes: &'static [u8] = std::fs::read(maps.path_of(malloc)).unwrap().leak();
        let file = object::File::parse(bytes).unwrap();
        let symbol = |name: &str| {
            file.dynamic_symbols().find(|of| of.is_definition() && of.name() == Ok(name))
        };
        let base = malloc - symbol("malloc").unwrap().address();
        let mut families: Vec<Family> = Vec::new();
        for (name, arguments) in FUNCTIONS {
            let Some(symbol) = symbol(name) else { continue };
            let address = base + symbol.address();
            let is_new = families.iter().all(|other| other.address != address);
            if is_new && resolve(name) == Some(address) {
                families.push(Family { name, address, size: symbol.size(), arguments });
            }
        }
        let holds_malloc = |segment: &object::Segment| {
            let start = base + segment.address();
            (start..start + segment.size()).contains(&malloc)
        };
        let text = file.segments().find(holds_malloc).unwrap();
        Allocator { families, text: (base + text.address(), text.data().unwrap()) }
    }

    /// The functions with their places. Of several names of one function there is the first.
    pub(crate) fn candidates(&self) -> Vec<Candidate<'static>> {
        self.families.iter().map(|family| self.candidate(family)).collect()
    }

    fn candidate(&self, family: &Family) -> Candidate<'static> {
        let (start, text) = self.text;
        let function = Function {
            entry: family.address,
            bytes: &text[(family.address - start) as usize..],
            size: Some(family.size),
            arguments: family.arguments,
            is_free: family.name == "free" || family.name.starts_with("_Zd"),
        };
        let elsewhere = [Code { address: start, bytes: text }];
        Candidate { function, places: places_with(&function, &elsewhere) }
    }
}

fn resolve(name: &str) -> Option<u64> {
    let symbol = CString::new(name).unwrap();
    // SAFETY: the name ends with a zero.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) };
    (!address.is_null()).then_some(address as u64)
}

/// `/proc/self/maps`.
pub(crate) struct Maps {
    lines: Vec<(Range<u64>, String)>,
}

impl Maps {
    pub(crate) fn of_this_process() -> Maps {
        let text = std::fs::read_to_string("/proc/self/maps").unwrap();
        let parse = |line: &str| {
            let (range, rest) = line.split_once(' ').unwrap();
            let (start, end) = range.split_once('-').unwrap();
            let address = |text| u64::from_str_radix(text, 16).unwrap();
            (address(start)..address(end), rest.to_owned())
        };
        Maps { lines: text.lines().map(parse).collect() }
    }

    fn path_of(&self, address: u64) -> &str {
        let (_, rest) = self.lines.iter().find(|(range, _)| range.contains(&address)).unwrap();
        &rest[rest.find('/').unwrap()..]
    }

    fn named(&self, name: &str) -> Option<Range<u64>> {
        let (range, _) = self.lines.iter().find(|(_, rest)| rest.ends_with(name))?;
        Some(range.clone())
    }

    pub(crate) fn layout(&self) -> Layout {
        let mapped = self.lines.iter().map(|(range, _)| range.clone());
        let growing = |heap: Range<u64>| heap.start..heap.end + HEAP_GROWTH_BYTES[0];
        let heap = self.named("[heap]").map(growing);
        Layout::new(mapped, heap, self.named("[stack]"), 8 << 20)
    }
}
