//! The target's allocators: the functions to hook, and their code. The first one is that of
//! `malloc`. Further ones are called past `malloc` (`families.rs`).

use crate::elf::{Segment, Symbol};
use crate::families::{Entry, FAMILIES, Family, Shape};
use crate::maps::Maps;
use crate::preflight::Refusal;
use crate::prologue::{Code, Function};
use crate::target::{Loaded, Target};
use anyhow::Result;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use sampler_common::injected::BREAKPOINT;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// Functions of the malloc family and the number of their arguments, in the order in which their
/// hooks are put in.
///
/// Frees come before allocations: the sampler must see the free of every allocation that it
/// reports.
pub const FAMILY: [(&str, u8); 12] = [
    ("free", 1),
    ("cfree", 1),
    ("free_sized", 2),
    ("free_aligned_sized", 3),
    ("realloc", 2),
    ("calloc", 2),
    ("posix_memalign", 3),
    ("aligned_alloc", 2),
    ("memalign", 2),
    ("valloc", 1),
    ("pvalloc", 1),
    ("malloc", 1),
];
/// C++'s operators, frees before allocations. The operators of libstdc++ and libc++ call `malloc`
/// and `free`; those of an allocator may not.
const OPERATORS: [(&str, u8); 20] = [
    ("_ZdlPv", 1),
    ("_ZdaPv", 1),
    ("_ZdlPvm", 2),
    ("_ZdaPvm", 2),
    ("_ZdlPvRKSt9nothrow_t", 2),
    ("_ZdaPvRKSt9nothrow_t", 2),
    ("_ZdlPvSt11align_val_t", 2),
    ("_ZdaPvSt11align_val_t", 2),
    ("_ZdlPvmSt11align_val_t", 3),
    ("_ZdaPvmSt11align_val_t", 3),
    ("_ZdlPvSt11align_val_tRKSt9nothrow_t", 3),
    ("_ZdaPvSt11align_val_tRKSt9nothrow_t", 3),
    ("_Znwm", 1),
    ("_Znam", 1),
    ("_ZnwmRKSt9nothrow_t", 2),
    ("_ZnamRKSt9nothrow_t", 2),
    ("_ZnwmSt11align_val_t", 2),
    ("_ZnamSt11align_val_t", 2),
    ("_ZnwmSt11align_val_tRKSt9nothrow_t", 3),
    ("_ZnamSt11align_val_tRKSt9nothrow_t", 3),
];
/// Functions of the malloc family that must be hooked if they exist: without them, frees would be
/// missed. `cfree` is absent: since glibc 2.26 no program can be linked with it.
const NEEDED: [&str; 5] = ["free", "free_sized", "free_aligned_sized", "realloc", "malloc"];
/// Functions that call no other function of the family by an exported name, in the allocators of
/// [`KNOWN`].
const PLAIN: [&str; 3] = ["malloc", "free", "calloc"];
/// Symbols that identify the allocators whose calls are known: glibc, jemalloc, tcmalloc, mimalloc.
const KNOWN: [&str; 4] = ["gnu_get_libc_version", "mallctl", "tc_malloc", "mi_malloc"];
/// Maximum number of bytes of an operator's code that are searched for calls.
const OPERATOR_BYTES: u64 = 4096;
/// Maximum number of jumps from one function to another. mimalloc has six from one `operator
/// delete` to `free`.
const MAX_JUMPS: u32 = 8;
/// Bytes of each function that are compared with the file.
const COMPARED_BYTES: usize = 48;

/// A function of an allocator.
#[derive(Clone, Debug)]
pub struct Found {
    /// The function's name.
    pub name: String,
    /// The library's function that the hook leads to.
    pub(crate) served_by: ServedBy,
    /// The function's address in the target.
    pub entry: u64,
    /// The function's size in bytes according to the symbol table; 0: unknown.
    pub bytes: u64,
    /// Number of integer arguments.
    pub arguments: u8,
    /// Whether the function may call other functions of the family by their exported names.
    /// Always true for an operator: its hook also goes through the library's second word
    /// (`marked`).
    pub is_marked: bool,
    /// Whether the function frees the block that is its first argument.
    pub is_free: bool,
}

/// The library's function that serves calls of an allocator's function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ServedBy {
    /// The one of the same name.
    Namesake,
    /// A free slot of this shape.
    Slot(Shape),
}

impl Found {
    /// Describes the function for the search of hook places. `code` begins at address `start`.
    #[must_use]
    pub fn function<'c>(&self, start: u64, code: &'c [u8]) -> Function<'c> {
        let from = (self.entry - start) as usize;
        let length = (self.bytes as usize).max(COMPARED_BYTES);
        Function {
            entry: self.entry,
            bytes: &code[from..code.len().min(from + length)],
            size: (self.bytes != 0).then_some(self.bytes),
            arguments: self.arguments,
            is_free: self.is_free,
        }
    }
}

/// An allocator.
pub struct Allocator {
    /// The file that contains the allocator.
    pub file: Rc<Loaded>,
    /// Address of the allocator's code in the target.
    pub code_address: u64,
    segment: Segment,
    /// The allocator's functions, frees first. Each address occurs once.
    pub functions: Vec<Found>,
    /// Name and file. `None`: the allocator is that of `malloc`, and a process cannot be injected
    /// without it.
    pub past_malloc: Option<String>,
}

/// The allocators of a process.
pub struct Allocators {
    /// The allocators to hook. The first one is that of `malloc`, the first in link order.
    pub all: Vec<Allocator>,
    /// One line for each allocator that is called past `malloc` and cannot be hooked.
    pub left_out: Vec<String>,
}

impl Allocators {
    /// Finds the allocators of a process with these files, which are in link order.
    ///
    /// # Errors
    /// If there is no `malloc`, or the code of its allocator differs from its file.
    pub fn find(target: &Target, files: Vec<Loaded>) -> Result<Allocators> {
        let files: Vec<Rc<Loaded>> = files.into_iter().map(Rc::new).collect();
        let file = files.iter().find(|file| has_malloc(file)).ok_or(Refusal::NoAllocator)?;
        let first = Allocator::of_malloc(target, file)?;
        let mut found = Allocators { all: vec![first], left_out: Vec::new() };
        for file in &files {
            found.add_past_malloc(target, file)?;
        }
        Ok(found)
    }

    /// Adds the allocators of a file that are called past `malloc`.
    fn add_past_malloc(&mut self, target: &Target, file: &Rc<Loaded>) -> Result<()> {
        let malloc = &self.all[0];
        let is_of_malloc = Rc::ptr_eq(&malloc.file, file);
        // The program reaches another file's `malloc` only by its address.
        if !is_of_malloc && has_malloc(file) {
            return Ok(());
        }
        let functions_of_malloc = malloc.functions.clone();
        let symbols = match file.file.linked_functions(is_of_families) {
            Ok(linked) => with_exported(linked, file),
            Err(error) => {
                self.left_out.push(format!("{}: {error:#}", file.mapping.name));
                with_exported(HashMap::new(), file)
            }
        };
        for family in &FAMILIES {
            for prefix in prefixes(family, &symbols) {
                // Names that have no prefix where there may be one are those of `malloc`'s file.
                let is_malloc = family.has_prefix && prefix.is_empty();
                if is_malloc && !is_of_malloc || is_of_malloc && !family.has_prefix {
                    continue;
                }
                let known = if is_malloc { &functions_of_malloc[..] } else { &[] };
                let part = Part { target, file, symbols: &symbols, family, prefix: &prefix };
                match part.allocator(known) {
                    Ok(Some(allocator)) => self.all.push(allocator),
                    Ok(None) => {}
                    // Frees of `malloc`'s blocks would be missed.
                    Err(error) if is_malloc => return Err(error),
                    Err(error) => self.left_out.push(format!("{}: {error:#}", part.title())),
                }
            }
        }
        Ok(())
    }
}

fn has_malloc(file: &Loaded) -> bool {
    ["malloc", "free"].iter().all(|of| file.symbols.contains_key(*of))
}

/// Whether a function of this name may belong to one of the families.
fn is_of_families(name: &str) -> bool {
    FAMILIES.iter().any(|family| {
        let mut names = family.entries.iter().map(|of| of.name).chain(family.marks.iter().copied());
        names.any(|of| if family.has_prefix { name.ends_with(of) } else { name == of })
    })
}

fn with_exported(mut linked: HashMap<String, Symbol>, file: &Loaded) -> HashMap<String, Symbol> {
    let exported = file.symbols.iter().filter(|(name, _)| is_of_families(name));
    linked.extend(exported.map(|(name, symbol)| (name.clone(), *symbol)));
    linked
}

/// The text before the names that identify a family. Of names with a prefix, two are needed: one
/// may be part of another name, as `do_rallocx` is within jemalloc.
fn prefixes(family: &Family, symbols: &HashMap<String, Symbol>) -> BTreeSet<String> {
    let prefix = |name: &String| {
        let mut rests = family.marks.iter().filter_map(|mark| name.strip_suffix(mark));
        rests.next().filter(|rest| family.has_prefix || rest.is_empty()).map(str::to_owned)
    };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for prefix in symbols.keys().filter_map(prefix) {
        *counts.entry(prefix).or_default() += 1;
    }
    let needed = if family.has_prefix { 2 } else { 1 };
    counts.into_iter().filter(|(_, count)| *count >= needed).map(|(prefix, _)| prefix).collect()
}

/// An allocator that is called past `malloc`, as its names show it.
struct Part<'a> {
    target: &'a Target,
    file: &'a Rc<Loaded>,
    symbols: &'a HashMap<String, Symbol>,
    family: &'a Family,
    prefix: &'a str,
}

impl Part<'_> {
    fn title(&self) -> String {
        format!("{} ({})", self.family.name, self.file.mapping.name)
    }

    /// The allocator with its functions, without those that are `known`. `None`: the names belong
    /// to no whole allocator, or nothing is left.
    fn allocator(&self, known: &[Found]) -> Result<Option<Allocator>> {
        let symbol = |name: &str| self.symbols.get(&format!("{}{name}", self.prefix));
        // Names of the malloc family in `malloc`'s file that are not known are not its allocator's.
        let is_new = |name: &str| known.is_empty() || FAMILY.iter().all(|(of, _)| *of != name);
        let is_there = |of: &&Entry| symbol(of.name).is_some() && is_new(of.name);
        let entries = || self.family.entries.iter().filter(is_there);
        let frees = entries().filter(|of| of.shape == Shape::Freed).count();
        let Some(some) = entries().find_map(|of| symbol(of.name)) else { return Ok(None) };
        if known.is_empty() && (frees == 0 || frees == entries().count()) {
            return Ok(None);
        }
        let (segment, _) = self.file.file.code(some.address)?;
        let jumps = Jumps::new(self.target, self.file, &segment)?;
        let mut functions: Vec<Found> = Vec::new();
        for of in entries() {
            let Some(symbol) = symbol(of.name) else { continue };
            let (entry, bytes) = jumps.function(symbol);
            let is_known = known.iter().chain(&functions).any(|other| other.entry == entry);
            if !jumps.has(entry) || is_known {
                continue;
            }
            let is_free = of.shape == Shape::Freed;
            functions.push(Found {
                name: format!("{}{}", self.prefix, of.name),
                served_by: ServedBy::Slot(of.shape),
                entry,
                bytes,
                arguments: of.arguments,
                is_marked: !is_free && !self.family.plain.contains(&of.name),
                is_free,
            });
        }
        let mut functions = without_wrappers(&jumps, functions)?;
        if functions.is_empty() {
            return Ok(None);
        }
        let allocating: Vec<Found> = functions.iter().filter(|of| !of.is_free).cloned().collect();
        for of in functions.iter_mut().filter(|of| !of.is_free) {
            of.is_marked |= jumps.passes_on(of.entry, of.bytes, &allocating);
        }
        let allocator = Allocator {
            file: Rc::clone(self.file),
            code_address: jumps.code.address,
            segment,
            functions,
            past_malloc: known.is_empty().then(|| self.title()),
        };
        allocator.compare(self.target)?;
        Ok(Some(allocator))
    }
}

/// Leaves out functions that only pass calls on to another one, which samples for them.
fn without_wrappers(jumps: &Jumps<'_>, all: Vec<Found>) -> Result<Vec<Found>> {
    let is_served = |of: &&Found| of.served_by != ServedBy::Slot(Shape::Unserved);
    let served: Vec<Found> = all.iter().filter(is_served).cloned().collect();
    // A function that only frees by another one gives out blocks by itself.
    let allocating: Vec<Found> = served.iter().filter(|of| !of.is_free).cloned().collect();
    let mut left = Vec::new();
    for of in all {
        let ends_at = jumps.ends_at(&of);
        if served.iter().any(|other| Some(other.entry) == ends_at && other.entry != of.entry) {
            continue;
        }
        if is_served(&&of) {
            left.push(of);
        } else if !jumps.passes_on(of.entry, of.bytes, &allocating) {
            return Err(Refusal::Unserved { function: of.name }.into());
        }
    }
    Ok(left)
}

impl Allocator {
    /// The allocator of `malloc`.
    fn of_malloc(target: &Target, file: &Rc<Loaded>) -> Result<Allocator> {
        let malloc = file.symbols["malloc"];
        let (segment, _) = file.file.code(malloc.address)?;
        let code_address = file.base.wrapping_add(segment.address);
        let functions = functions(target, file, &segment)?;
        let file = Rc::clone(file);
        let allocator = Allocator { file, code_address, segment, functions, past_malloc: None };
        allocator.compare(target)?;
        Ok(allocator)
    }

    /// The allocator's code as the file has it.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn code(&self) -> Result<&[u8]> {
        self.file.file.bytes(self.segment.offset, self.segment.file_bytes)
    }

    /// Checks that the beginnings of the functions in memory equal the file's, except for other
    /// tools' breakpoints.
    fn compare(&self, target: &Target) -> Result<()> {
        let code = self.code()?;
        for found in &self.functions {
            let is_there = |maps: &Maps| {
                maps.at(found.entry).is_some_and(|of| of.is_of_file_of(&self.file.mapping))
            };
            let function = || found.name.clone();
            if !is_there(&target.maps) {
                return Err(Refusal::Moved { function: function() }.into());
            }
            let expected = found.function(self.code_address, code).bytes;
            let expected = &expected[..expected.len().min(COMPARED_BYTES)];
            let actual = target.memory.read(found.entry, expected.len())?;
            let differs = |(file, memory): (&u8, &u8)| *memory != *file && *memory != BREAKPOINT;
            if expected.iter().zip(&actual).any(differs) {
                return Err(Refusal::Changed { function: function() }.into());
            }
        }
        Ok(())
    }
}

fn functions(target: &Target, file: &Loaded, segment: &Segment) -> Result<Vec<Found>> {
    let jumps = Jumps::new(target, file, segment)?;
    let is_known = KNOWN.iter().any(|name| file.symbols.contains_key(*name));
    let mut found: Vec<Found> = Vec::new();
    let operators = OPERATORS.into_iter().filter(|_| is_known);
    for (name, arguments) in FAMILY.into_iter().chain(operators) {
        let Some(symbol) = file.symbols.get(name) else { continue };
        let (entry, bytes) = jumps.function(symbol);
        if !jumps.has(entry) || found.iter().any(|of| of.entry == entry) {
            continue;
        }
        if name.starts_with("_Z") && jumps.passes_on(entry, bytes, &found) {
            continue;
        }
        found.push(Found {
            name: name.to_owned(),
            served_by: ServedBy::Namesake,
            entry,
            bytes,
            arguments,
            is_marked: !(is_known && PLAIN.contains(&name)),
            is_free: name == "cfree" || name.starts_with("free") || name.starts_with("_Zd"),
        });
    }
    Ok(found)
}

/// Whether a process must be left alone if this function of the malloc family exists and has no
/// hook place: frees would be missed. Functions of allocators that are called past `malloc` are all
/// needed, or none of them is hooked.
#[must_use]
pub fn is_needed(name: &str) -> bool {
    NEEDED.contains(&name) || name.starts_with("_Zd")
}

/// The jumps and calls in an allocator's code.
struct Jumps<'a> {
    target: &'a Target,
    file: &'a Loaded,
    code: Code<'a>,
    /// Names of functions, by the address of the word that receives the function's address.
    by_name: HashMap<u64, String>,
}

impl<'a> Jumps<'a> {
    fn new(target: &'a Target, file: &'a Loaded, segment: &Segment) -> Result<Jumps<'a>> {
        let bytes = file.file.bytes(segment.offset, segment.file_bytes)?;
        let code = Code { address: file.base.wrapping_add(segment.address), bytes };
        Ok(Jumps { target, file, code, by_name: file.file.functions_by_name()? })
    }

    /// Whether an address lies in the code.
    fn has(&self, address: u64) -> bool {
        address.wrapping_sub(self.code.address) < self.code.bytes.len() as u64
    }

    /// Address and size of the function that a symbol leads to.
    fn function(&self, symbol: &Symbol) -> (u64, u64) {
        let named = self.file.base.wrapping_add(symbol.address);
        let entry = self.follow(named);
        if entry == named {
            return (entry, symbol.bytes);
        }
        // The function may have another name.
        let address = entry.wrapping_sub(self.file.base);
        let other = self.file.symbols.values().find(|of| of.address == address);
        (entry, other.map_or(0, |of| of.bytes))
    }

    /// The function at which a function ends that does nothing else than to pass its call on.
    fn ends_at(&self, of: &Found) -> Option<u64> {
        let from = (of.entry - self.code.address) as usize;
        let end = self.code.bytes.len().min(from + of.bytes.min(OPERATOR_BYTES) as usize);
        let code = &self.code.bytes[from..end];
        let mut decoder = Decoder::with_ip(64, code, of.entry, DecoderOptions::NONE);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            match instruction.flow_control() {
                FlowControl::Next => {}
                FlowControl::UnconditionalBranch => {
                    return Some(self.follow(instruction.near_branch_target()));
                }
                _ => return None,
            }
        }
        None
    }

    /// Whether a function calls another one that was found. That one samples for an operator, or
    /// reports the free.
    fn passes_on(&self, entry: u64, bytes: u64, found: &[Found]) -> bool {
        let from = (entry - self.code.address) as usize;
        let end = self.code.bytes.len().min(from + bytes.min(OPERATOR_BYTES) as usize);
        let code = &self.code.bytes[from..end];
        let decoder = Decoder::with_ip(64, code, entry, DecoderOptions::NONE);
        let is_branch = |of: &Instruction| of.is_call_near() || of.is_jmp_short_or_near();
        let branches = decoder.into_iter().filter(is_branch);
        let mut targets = branches.map(|of| self.follow(of.near_branch_target()));
        targets.any(|to| to != entry && found.iter().any(|of| of.entry == to))
    }

    /// Follows a function that is only a jump to another one, perhaps through the procedure linkage
    /// table (PLT).
    /// For example mimalloc's `posix_memalign` jumps to `mi_posix_memalign`, and jemalloc's
    /// `operator delete` to `free`.
    fn follow(&self, entry: u64) -> u64 {
        let bytes_at = |at: u64| -> Option<[u8; 6]> {
            let from = usize::try_from(at.checked_sub(self.code.address)?).ok()?;
            self.code.bytes.get(from..from + 6)?.try_into().ok()
        };
        // With indirect branch tracking, a jump of the linkage table stands behind `endbr64`, and
        // perhaps has a `bnd` prefix.
        let behind_marks = |at: u64| match bytes_at(at) {
            Some([0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff]) => at + 5,
            Some([0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25] | [0xf3, 0x0f, 0x1e, 0xfa, 0xe9, _]) => {
                at + 4
            }
            _ => at,
        };
        let mut at = entry;
        for _ in 0..MAX_JUMPS {
            let jump_at = behind_marks(at);
            at = match bytes_at(jump_at) {
                // jmp rel32
                Some([0xe9, a, b, c, d, _]) => jump(jump_at + 5, [a, b, c, d]),
                // jmp [rip + rel32]
                Some([0xff, 0x25, a, b, c, d]) => {
                    match self.linked(jump(jump_at + 6, [a, b, c, d])) {
                        Some(to) => to,
                        None => return entry,
                    }
                }
                Some(_) => return at,
                None => return entry,
            };
        }
        entry
    }

    /// The function whose address a word of the file holds. Before the first call the word may
    /// still lead to the code of lazy binding; then the function is found by its name.
    fn linked(&self, word: u64) -> Option<u64> {
        let to = self.target.memory.word(word).ok()?;
        let name = self.by_name.get(&word.wrapping_sub(self.file.base)).filter(|_| self.has(to));
        let symbol = name.and_then(|name| self.file.symbols.get(name));
        Some(symbol.map_or(to, |of| self.file.base.wrapping_add(of.address)))
    }
}

fn jump(next: u64, distance: [u8; 4]) -> u64 {
    next.wrapping_add_signed(i64::from(i32::from_le_bytes(distance)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read_from_the_names_that_identify_a_family() {
        let names = [
            "_rjem_mallocx",
            "_rjem_sdallocx",
            "je_arrow_sdallocx",
            "je_arrow_mallctl",
            "do_rallocx",
            "mi_free",
            "xmi_free",
        ];
        let symbol = Symbol { address: 0, bytes: 0 };
        let symbols = names.map(|name| (name.to_owned(), symbol)).into_iter().collect();
        let of =
            |family: &Family| -> Vec<String> { prefixes(family, &symbols).into_iter().collect() };
        assert_eq!(
            FAMILIES.iter().map(of).collect::<Vec<_>>(),
            [vec!["_rjem_", "je_arrow_"], vec![""]]
        );
        assert!(is_of_families("_rjem_sdallocx") && is_of_families("mi_heap_malloc_aligned_at"));
        assert!(!is_of_families("xmi_free_block") && !is_of_families("_rjem_je_malloc_default"));
    }
}
