//! The target's allocator: the functions to hook, and the code that they lie in.

use crate::elf::Segment;
use crate::maps::Maps;
use crate::preflight::Refusal;
use crate::prologue::{Code, Function};
use crate::target::{Loaded, Target};
use anyhow::Result;

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
/// Without these there is no hook at all: ends would be missed. Not `cfree`: since glibc 2.26 no program can be linked with it.
pub const NEEDED: [&str; 5] = ["free", "free_sized", "free_aligned_sized", "realloc", "malloc"];
/// These call no other function of the family by an exported name, in the allocators that [`KNOWN`] names.
const PLAIN: [&str; 3] = ["malloc", "free", "calloc"];
/// Names that stand for allocators whose calls are known: glibc, jemalloc, tcmalloc, mimalloc.
const KNOWN: [&str; 4] = ["gnu_get_libc_version", "mallctl", "tc_malloc", "mi_malloc"];
/// Jumps from one function to another, at most.
const MAX_JUMPS: u32 = 4;
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
    /// Whether it may call other functions of the family by their exported names.
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
            is_free: self.name == "free" || self.name == "cfree",
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
    let code = file.file.bytes(segment.offset, segment.file_bytes)?;
    let code = Code { address: file.base.wrapping_add(segment.address), bytes: code };
    let is_known = KNOWN.iter().any(|name| file.symbols.contains_key(*name));
    let mut found: Vec<Found> = Vec::new();
    for (name, arguments) in FAMILY {
        let Some(symbol) = file.symbols.get(name) else { continue };
        let entry = follow(target, code, file.base.wrapping_add(symbol.address));
        let address = entry.wrapping_sub(file.base);
        let is_inside = address.wrapping_sub(segment.address) < segment.file_bytes;
        if !is_inside || found.iter().any(|of| of.entry == entry) {
            continue;
        }
        // Under this name or another one.
        let named = file.symbols.values().find(|of| of.address == address);
        let bytes = named.map_or(0, |of| of.bytes);
        let is_marked = !(is_known && PLAIN.contains(&name));
        found.push(Found { name, entry, bytes, arguments, is_marked });
    }
    Ok(found)
}

/// Where a function leads that is only a jump to another one, perhaps through the procedure linkage table: mimalloc's `posix_memalign` is `mi_posix_memalign`.
fn follow(target: &Target, code: Code, entry: u64) -> u64 {
    let bytes_at = |at: u64| -> Option<[u8; 6]> {
        let from = usize::try_from(at.checked_sub(code.address)?).ok()?;
        code.bytes.get(from..from + 6)?.try_into().ok()
    };
    let mut at = entry;
    for _ in 0..MAX_JUMPS {
        at = match bytes_at(at) {
            // jmp rel32
            Some([0xe9, a, b, c, d, _]) => jump(at + 5, [a, b, c, d]),
            // jmp [rip + rel32]
            Some([0xff, 0x25, a, b, c, d]) => {
                match target.memory.word(jump(at + 6, [a, b, c, d])) {
                    Ok(to) => to,
                    Err(_) => return entry,
                }
            }
            Some(_) => return at,
            None => return entry,
        };
    }
    entry
}

fn jump(next: u64, distance: [u8; 4]) -> u64 {
    next.wrapping_add_signed(i64::from(i32::from_le_bytes(distance)))
}
