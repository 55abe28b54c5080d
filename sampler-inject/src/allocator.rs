//! The target's allocator: the functions to hook, and the code that they lie in.

use crate::elf::Segment;
use crate::maps::Maps;
use crate::preflight::Refusal;
use crate::prologue::{Code, Function};
use crate::target::{Loaded, Target};
use anyhow::Result;
use iced_x86::{Decoder, DecoderOptions, Instruction};
use std::collections::HashMap;

/// Functions of the malloc family in the order in which their hooks are put in: whoever sees an allocation has to see its end.
///
/// With each goes the number of its arguments.
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
/// C++'s operators in the same order. libstdc++'s and libc++'s call `malloc` and `free`; those of an allocator may not.
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
/// Without these there is no hook at all: ends would be missed. Not `cfree`: since glibc 2.26 no program can be linked with it.
const NEEDED: [&str; 5] = ["free", "free_sized", "free_aligned_sized", "realloc", "malloc"];
/// These call no other function of the family by an exported name, in the allocators that [`KNOWN`] names.
const PLAIN: [&str; 3] = ["malloc", "free", "calloc"];
/// Names that stand for allocators whose calls are known: glibc, jemalloc, tcmalloc, mimalloc.
const KNOWN: [&str; 4] = ["gnu_get_libc_version", "mallctl", "tc_malloc", "mi_malloc"];
/// Bytes of an operator's code that are looked at, at most.
const OPERATOR_BYTES: u64 = 4096;
/// Jumps from one function to another, at most; mimalloc has six from one `operator delete` to `free`.
const MAX_JUMPS: u32 = 8;
/// Bytes of a function that are compared with the file.
const COMPARED_BYTES: usize = 48;
/// `int3`, as debuggers and uprobes write it.
const BREAKPOINT: u8 = 0xcc;

/// A function of the allocator.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its name.
    pub name: &'static str,
    /// Its address in the target.
    pub entry: u64,
    /// Its bytes in the symbol table; 0: unknown.
    pub bytes: u64,
    /// Its integer arguments.
    pub arguments: u8,
    /// Whether it may call other functions of the family by their exported names. Of an operator: always, since its way has two words as well.
    pub is_marked: bool,
}

impl Found {
    /// The function for the search of places, in `code` that begins at `start`.
    #[must_use]
    pub fn function<'c>(&self, start: u64, code: &'c [u8]) -> Function<'c> {
        let from = (self.entry - start) as usize;
        let length = (self.bytes as usize).max(COMPARED_BYTES);
        Function {
            entry: self.entry,
            bytes: &code[from..code.len().min(from + length)],
            size: (self.bytes != 0).then_some(self.bytes),
            arguments: self.arguments,
            is_free: matches!(self.name, "free" | "cfree") || self.name.starts_with("_Zd"),
        }
    }
}

/// The allocator.
pub struct Allocator {
    /// The file that has it.
    pub file: Loaded,
    /// Address of its code in the target.
    pub code_address: u64,
    segment: Segment,
    /// Its functions in the order of [`FAMILY`], each address once.
    pub functions: Vec<Found>,
}

impl Allocator {
    /// The first one in link order.
    ///
    /// # Errors
    /// If there is none, or its code differs from its file.
    pub fn find(target: &Target, files: Vec<Loaded>) -> Result<Allocator> {
        let has =
            |file: &Loaded| ["malloc", "free"].iter().all(|of| file.symbols.contains_key(*of));
        let file = files.into_iter().find(has).ok_or(Refusal::NoAllocator)?;
        let malloc = file.symbols["malloc"];
        let (segment, _) = file.file.code(malloc.address)?;
        let code_address = file.base.wrapping_add(segment.address);
        let functions = functions(target, &file, &segment)?;
        let allocator = Allocator { file, code_address, segment, functions };
        allocator.compare(target)?;
        Ok(allocator)
    }

    /// Its code as the file has it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn code(&self) -> Result<&[u8]> {
        self.file.file.bytes(self.segment.offset, self.segment.file_bytes)
    }

    /// The beginnings of its functions in memory are those of the file, but for other tools' breakpoints.
    fn compare(&self, target: &Target) -> Result<()> {
        let code = self.code()?;
        for found in &self.functions {
            let is_there = |maps: &Maps| {
                maps.at(found.entry).is_some_and(|of| of.is_of_file_of(&self.file.mapping))
            };
            let function = found.name;
            if !is_there(&target.maps) {
                return Err(Refusal::Moved { function }.into());
            }
            let expected = found.function(self.code_address, code).bytes;
            let expected = &expected[..expected.len().min(COMPARED_BYTES)];
            let actual = target.memory.read(found.entry, expected.len())?;
            let differs = |(file, memory): (&u8, &u8)| *memory != *file && *memory != BREAKPOINT;
            if expected.iter().zip(&actual).any(differs) {
                return Err(Refusal::Changed { function }.into());
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
        let entry = jumps.follow(file.base.wrapping_add(symbol.address));
        let address = entry.wrapping_sub(file.base);
        let is_inside = address.wrapping_sub(segment.address) < segment.file_bytes;
        if !is_inside || found.iter().any(|of| of.entry == entry) {
            continue;
        }
        // Under this name or another one.
        let named = file.symbols.values().find(|of| of.address == address);
        let bytes = named.map_or(0, |of| of.bytes);
        if name.starts_with("_Z") && jumps.passes_on(entry, bytes, &found) {
            continue;
        }
        let is_marked = !(is_known && PLAIN.contains(&name));
        found.push(Found { name, entry, bytes, arguments, is_marked });
    }
    Ok(found)
}

/// Whether a process must be left alone that has a function of this name and no place for its hook: ends would be missed.
#[must_use]
pub fn is_needed(name: &str) -> bool {
    NEEDED.contains(&name) || name.starts_with("_Zd")
}

/// Where the code of an allocator leads.
struct Jumps<'a> {
    target: &'a Target,
    file: &'a Loaded,
    code: Code<'a>,
    /// Functions by the words that get their addresses.
    by_name: HashMap<u64, String>,
}

impl<'a> Jumps<'a> {
    fn new(target: &'a Target, file: &'a Loaded, segment: &Segment) -> Result<Jumps<'a>> {
        let bytes = file.file.bytes(segment.offset, segment.file_bytes)?;
        let code = Code { address: file.base.wrapping_add(segment.address), bytes };
        Ok(Jumps { target, file, code, by_name: file.file.functions_by_name()? })
    }

    /// Whether an operator calls a function that was found: then that one samples for it, or reports the end.
    fn passes_on(&self, entry: u64, bytes: u64, found: &[Found]) -> bool {
        let from = (entry - self.code.address) as usize;
        let end = self.code.bytes.len().min(from + bytes.min(OPERATOR_BYTES) as usize);
        let code = &self.code.bytes[from..end];
        let decoder = Decoder::with_ip(64, code, entry, DecoderOptions::NONE);
        let is_branch = |of: &Instruction| of.is_call_near() || of.is_jmp_short_or_near();
        let branches = decoder.into_iter().filter(is_branch);
        let mut targets = branches.map(|of| self.follow(of.near_branch_target()));
        targets.any(|to| found.iter().any(|of| of.entry == to))
    }

    /// Where a function leads that is only a jump to another one, perhaps through the procedure linkage table: mimalloc's `posix_memalign` is
    /// `mi_posix_memalign`, jemalloc's `operator delete` is `free`.
    fn follow(&self, entry: u64) -> u64 {
        let bytes_at = |at: u64| -> Option<[u8; 6]> {
            let from = usize::try_from(at.checked_sub(self.code.address)?).ok()?;
            self.code.bytes.get(from..from + 6)?.try_into().ok()
        };
        let mut at = entry;
        for _ in 0..MAX_JUMPS {
            at = match bytes_at(at) {
                // jmp rel32
                Some([0xe9, a, b, c, d, _]) => jump(at + 5, [a, b, c, d]),
                // jmp [rip + rel32]
                Some([0xff, 0x25, a, b, c, d]) => match self.linked(jump(at + 6, [a, b, c, d])) {
                    Some(to) => to,
                    None => return entry,
                },
                Some(_) => return at,
                None => return entry,
            };
        }
        entry
    }

    /// Where a word of the file leads. Before the first call that may be code that looks for the function.
    fn linked(&self, word: u64) -> Option<u64> {
        let to = self.target.memory.word(word).ok()?;
        let is_ours = to.wrapping_sub(self.code.address) < self.code.bytes.len() as u64;
        let name = self.by_name.get(&word.wrapping_sub(self.file.base)).filter(|_| is_ours);
        let symbol = name.and_then(|name| self.file.symbols.get(name));
        Some(symbol.map_or(to, |of| self.file.base.wrapping_add(of.address)))
    }
}

fn jump(next: u64, distance: [u8; 4]) -> u64 {
    next.wrapping_add_signed(i64::from(i32::from_le_bytes(distance)))
}
