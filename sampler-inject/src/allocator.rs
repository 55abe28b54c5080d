//! The target's allocator: the functions to hook, and their code.

use crate::elf::Segment;
use crate::maps::Maps;
use crate::preflight::Refusal;
use crate::prologue::{Code, Function};
use crate::target::{Loaded, Target};
use anyhow::Result;
use iced_x86::{Decoder, DecoderOptions, Instruction};
use std::collections::HashMap;

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
/// Functions that must be hooked if they exist: without them, frees would be missed.
/// `cfree` is absent: since glibc 2.26 no program can be linked with it.
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
/// `int3`, as debuggers and uprobes write it.
const BREAKPOINT: u8 = 0xcc;

/// A function of the allocator.
#[derive(Clone, Debug)]
pub struct Found {
    /// The function's name.
    pub name: &'static str,
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
            is_free: matches!(self.name, "free" | "cfree") || self.name.starts_with("_Zd"),
        }
    }
}

/// The allocator.
pub struct Allocator {
    /// The file that contains the allocator.
    pub file: Loaded,
    /// Address of the allocator's code in the target.
    pub code_address: u64,
    segment: Segment,
    /// The allocator's functions in the order of [`FAMILY`]. Each address occurs once.
    pub functions: Vec<Found>,
}

impl Allocator {
    /// Finds the first allocator in link order.
    ///
    /// # Errors
    /// If there is no allocator, or its code differs from its file.
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
        // The symbol may have this name or another one.
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

/// Whether a process must be left alone if this function exists and has no hook place: frees would
/// be missed.
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

    /// Whether an operator calls a function that was found. That function then samples for the
    /// operator, or reports the free.
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

    /// Follows a function that is only a jump to another one, perhaps through the procedure linkage
    /// table (PLT).
    /// For example mimalloc's `posix_memalign` jumps to `mi_posix_memalign`, and jemalloc's
    /// `operator delete` to `free`.
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

    /// The function whose address a word of the file holds. Before the first call the word may
    /// still lead to the code of lazy binding; then the function is found by its name.
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
