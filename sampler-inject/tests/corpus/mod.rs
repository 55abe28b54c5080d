//! The corpus: functions of allocators as Debian's packages have them.

#![allow(clippy::unwrap_used, reason = "a corpus that cannot be read fails every test")]
#![allow(dead_code, reason = "each test looks at a part of it")]

use sampler_inject::allocator::FAMILY;
use sampler_inject::families::{self, FAMILIES, Shape};
use sampler_inject::prologue::{Code, Function};

const CORPUS: &str = include_str!("../../corpus/prologues.txt");

/// Where the libraries lie in the tests: far enough from both ends of the address space.
pub(crate) const BASE: u64 = 0x7f00_0000_0000;

/// One library of the corpus.
pub(crate) struct Library {
    /// Package, version, file and build id.
    pub(crate) head: &'static str,
    pub(crate) functions: Vec<Entry>,
}

/// One function of the corpus.
#[derive(Clone)]
pub(crate) struct Entry {
    /// In the file's address space.
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) names: Vec<&'static str>,
    /// Offsets at which an instruction begins, as objdump has it.
    pub(crate) starts: Vec<usize>,
    /// Offsets near the entry to which jumps lead, as objdump has it.
    pub(crate) entered: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
}

/// All libraries.
pub(crate) fn libraries() -> Vec<Library> {
    let mut libraries: Vec<Library> = Vec::new();
    for line in CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("library ") {
            Some(head) => libraries.push(Library { head, functions: Vec::new() }),
            None => libraries.last_mut().unwrap().functions.extend(Entry::parse(line)),
        }
    }
    libraries
}

impl Entry {
    /// `None`: the injector hooks no function of these names.
    fn parse(line: &'static str) -> Option<Entry> {
        let fields: Vec<&str> = line.split(' ').collect();
        let [address, size, names, lengths, entered, bytes] = fields[..] else { panic!("{line}") };
        let names: Vec<_> = names.split(',').filter(|name| arguments(name).is_some()).collect();
        (!names.is_empty()).then(|| Entry {
            address: u64::from_str_radix(address, 16).unwrap(),
            size: size.parse().unwrap(),
            names,
            starts: starts(lengths),
            entered: entered.split(',').filter_map(|offset| offset.parse().ok()).collect(),
            bytes: (0..bytes.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&bytes[at..at + 2], 16).unwrap())
                .collect(),
        })
    }

    /// Where the function lies in the tests.
    pub(crate) fn entry(&self) -> u64 {
        BASE + self.address
    }

    /// The function as the injector sees it. The corpus may have only its first bytes: the jumps in
    /// the others are in [`Entry::jumps`].
    pub(crate) fn function(&self) -> Function<'_> {
        self.function_at(BASE)
    }

    /// The function with its library somewhere else.
    pub(crate) fn function_at(&self, base: u64) -> Function<'_> {
        Function {
            entry: base + self.address,
            bytes: &self.bytes,
            // Jumps behind these bytes are in `jumps`.
            size: Some(self.size.min(self.bytes.len() as u64)),
            arguments: arguments(self.names[0]).unwrap(),
            is_free: self.is_free(),
        }
    }

    pub(crate) fn is_free(&self) -> bool {
        let past_malloc = past_malloc(self.names[0]);
        past_malloc.is_some_and(|of| of.shape == Shape::Freed)
            || self.names[0] == "free"
            || self.names[0].starts_with("_Zd")
    }

    /// Jumps from elsewhere in the library to the beginning of the function, each at an address of
    /// its own.
    pub(crate) fn jumps(&self) -> Vec<(u64, [u8; 6])> {
        self.jumps_at(BASE)
    }

    /// The same with the library somewhere else.
    pub(crate) fn jumps_at(&self, base: u64) -> Vec<(u64, [u8; 6])> {
        let entry = base + self.address;
        let jump = |(number, offset): (usize, &u64)| {
            let address = entry + 0x10_0000 + 16 * number as u64;
            let distance = (entry + offset).wrapping_sub(address + 6) as i32;
            let [b0, b1, b2, b3] = distance.to_le_bytes();
            // Conditional and unconditional ones in turn.
            let opcode = if number % 2 == 0 { [0x0f, 0x84] } else { [0x90, 0xe9] };
            (address, [opcode[0], opcode[1], b0, b1, b2, b3])
        };
        self.entered.iter().enumerate().map(jump).collect()
    }
}

/// Code that consists of these jumps.
pub(crate) fn elsewhere(jumps: &[(u64, [u8; 6])]) -> Vec<Code<'_>> {
    jumps.iter().map(|(address, bytes)| Code { address: *address, bytes }).collect()
}

fn starts(lengths: &str) -> Vec<usize> {
    let mut at = 0;
    let mut starts = vec![0];
    for digit in lengths.chars() {
        at += digit.to_digit(16).unwrap() as usize;
        starts.push(at);
    }
    starts
}

/// A function that programs call past `malloc`.
fn past_malloc(name: &str) -> Option<&'static families::Entry> {
    let all = FAMILIES.iter().flat_map(|family| family.entries);
    all.into_iter().find(|of| of.name == name)
}

/// Whether a function belongs to the malloc family.
pub(crate) fn is_of_malloc_family(name: &str) -> bool {
    FAMILY.iter().any(|(of, _)| *of == name)
}

/// Integer arguments by name. `operator delete` has further arguments, the size and the alignment
/// of the block, which the hooks ignore.
fn arguments(name: &str) -> Option<u8> {
    let of_family = FAMILY.iter().find(|(of, _)| *of == name).map(|(_, arguments)| *arguments);
    let listed = of_family.or(past_malloc(name).map(|of| of.arguments));
    listed.or(match name {
        "_Znwm" | "_Znam" | "_ZdlPv" | "_ZdaPv" => Some(1),
        _ if name.contains("St11align_val_tRKSt9nothrow_t") => Some(3),
        _ if name.starts_with("_ZdlPvmSt") || name.starts_with("_ZdaPvmSt") => Some(3),
        _ if name.starts_with("_Z") => Some(2),
        _ => None,
    })
}

/// SplitMix64: the same numbers in every run.
pub(crate) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
