//! Whether a program may move its own code to anonymous memory, as some do for huge pages: BOLT's
//! hugify, ClickHouse's `remap_executable`, iodlr's `MapStaticCodeToLargePages`, PHP's
//! `opcache.huge_code_pages`.
//!
//! Such a program copies its code as it is in memory, with the breakpoints of probes in it. The
//! kernel knows of no probes in anonymous memory, so the first call of a probed function ends the
//! program with SIGTRAP. Nothing can be done between the copy and that call. So such a program is
//! recognized by its code, before it is probed. The code maps writable anonymous memory at a fixed
//! address, or moves a mapping to one. Close to that, it makes memory executable. Allocators and
//! loaders do only the first, and compilers of code at run time only the second. A program that
//! hides its system calls is not recognized (computed numbers, or a library that makes the calls
//! for the program).

mod constants;

use super::calls;
use crate::inspect::elf::{Elf, ElfError};
use constants::{Constants, MPROTECT, MREMAP, NumberOf, RequestedProtection};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use std::collections::HashMap;
use std::ops::Range;

/// Bytes of code read at a time.
const CHUNK_BYTES: u64 = 1 << 20;
/// Most bytes of code between the two system calls. As a rule, both are in one function.
const MAX_DISTANCE_BYTES: usize = 4096;
/// Most bytes of code before a system call in which its constants are set, and behind the first of
/// these constants.
const LOOKBEHIND_BYTES: usize = 192;
/// Most parts of a file's code that are read, some 10 µs each. No ordinary program has so many; a
/// file that was made to have them is left alone.
const MAX_PARTS_READ: u64 = 1 << 19;
/// Most bytes of a function that makes one system call.
const MAX_WRAPPER_BYTES: u64 = 64;
/// Functions that make these system calls.
const FUNCTIONS: &[(&str, u64)] =
    &[("mprotect", MPROTECT), ("__mprotect", MPROTECT), ("mremap", MREMAP), ("__mremap", MREMAP)];
/// Bytes of the longest instruction.
const MAX_INSTRUCTION_BYTES: usize = 15;

/// Which allocators that are linked into executables are probed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Executables {
    /// Allocators of programs whose code shows no sign of moving itself.
    #[default]
    Checked,
    /// All allocators: a program that moves its code is killed.
    All,
    /// No allocators.
    None,
}

/// The address of code that moves code, if the file has such code.
///
/// # Errors
/// If the file contradicts itself or cannot be read.
pub(in crate::inspect) fn find(elf: &Elf<'_>) -> Result<Option<u64>, ElfError> {
    let functions = functions(elf)?;
    let number_of = |target: u64| number(elf, &functions, target);
    let mut search = Search { number_of: &number_of, parts_read: 0 };
    for (start, bytes) in elf.code_segments() {
        let mut at = 0;
        while at < bytes {
            // The end of a chunk is read again as the beginning of the next one.
            let begin = at.saturating_sub(2 * MAX_DISTANCE_BYTES as u64);
            let length = (bytes - begin).min(CHUNK_BYTES);
            let address = start.wrapping_add(begin);
            if let Some(found) = search.of(&elf.code_at(address, length)?, address) {
                return Ok(Some(found));
            }
            at = begin + length;
        }
    }
    Ok(None)
}

/// System call numbers of functions, by the functions' addresses and by the slots that the loader
/// fills with these.
fn functions(elf: &Elf<'_>) -> Result<HashMap<u64, u64>, ElfError> {
    let names: Vec<&'static str> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
    let imported = elf.imports("", &names)?.into_iter();
    let defined = elf.static_functions(&names)?.into_iter().chain(elf.dynamic_functions(&names)?);
    let all = imported.chain(defined.map(|symbol| (symbol.svma, symbol.name)));
    let number = |name: &str| FUNCTIONS.iter().find(|of| of.0 == name).map(|of| of.1);
    Ok(all.filter_map(|(at, name)| Some((at, number(name)?))).collect())
}

/// The system call that a function makes, known by the function's name or by its first system call.
fn number(elf: &Elf<'_>, functions: &HashMap<u64, u64>, target: u64) -> Option<u64> {
    if let Some(number) = functions.get(&target) {
        return Some(*number);
    }
    let code = elf.code_at(target, MAX_WRAPPER_BYTES).ok()?;
    match calls::stub(&code, target) {
        Some(slot) => functions.get(&slot).copied(),
        None => {
            let mut constants = Constants::default();
            decode(&code, target).iter().find_map(|one| constants.number(one))
        }
    }
}

/// The search in the code of a file.
struct Search<'n> {
    number_of: NumberOf<'n>,
    /// Parts of the code that were read so far, in units of [`LOOKBEHIND_BYTES`] bytes to each
    /// side.
    parts_read: u64,
}

impl Search<'_> {
    /// The place in this code, at this address, at which code is moved, or at which the search
    /// exceeded [`MAX_PARTS_READ`].
    fn of(&mut self, code: &[u8], address: u64) -> Option<u64> {
        let mut places = (0..code.len()).filter(|at| may_begin(code, *at));
        let found = places.find(|at| self.moves(code, address, *at))?;
        Some(address.wrapping_add(found as u64))
    }

    fn moves(&mut self, code: &[u8], address: u64, at: usize) -> bool {
        let mut requested = |bytes: usize| {
            self.parts_read += (bytes / LOOKBEHIND_BYTES) as u64;
            requested_around(
                code,
                address,
                at,
                at.saturating_sub(bytes)..at + bytes,
                self.number_of,
            )
        };
        let moves =
            requested(LOOKBEHIND_BYTES).replaces && requested(MAX_DISTANCE_BYTES).makes_executable;
        moves || self.parts_read > MAX_PARTS_READ
    }
}

/// Whether an instruction here, without its prefixes, sets flags that a replacing request may have.
/// Such flags are the fourth argument of a function or of a system call, or the fifth argument of a
/// function, or on the stack.
fn may_begin(code: &[u8], at: usize) -> bool {
    let word = |skip: usize| {
        let bytes = code.get(at + skip..)?.first_chunk()?;
        Some(u64::from(u32::from_le_bytes(*bytes)))
    };
    let is_extended = at > 0 && matches!(code[at - 1], 0x41 | 0x49);
    let value = match code[at..] {
        // mov ecx, imm32; mov r8d, imm32; mov r10d, imm32
        [0xb9, ..] => word(1),
        [0xb8 | 0xba, ..] if is_extended => word(1),
        // push imm8, for a pop
        [0x6a, value, ..] => Some(value.into()),
        // mov rcx, imm32; mov r8, imm32; mov r10, imm32
        [0xc7, 0xc0..=0xc2, ..] => word(2),
        // mov [rsp + disp8], imm32; mov [rbp + disp8], imm32; mov [rbp + disp32], imm32
        [0xc7, 0x44, 0x24, ..] => word(4),
        [0xc7, 0x45, ..] => word(3),
        [0xc7, 0x85, ..] => word(6),
        _ => None,
    };
    value.is_some_and(|value| constants::maps_over(value) || constants::moves_over(value))
}

/// The requests to the kernel in a part of the code in which an instruction begins at `at`. The
/// bytes before `at` can be decoded in several ways. The first decoding that has an instruction at
/// `at` is taken.
fn requested_around(
    code: &[u8],
    address: u64,
    at: usize,
    part: Range<usize>,
    number_of: NumberOf<'_>,
) -> RequestedProtection {
    let end = part.end.min(code.len());
    let begins = |of: &Instruction| {
        // Up to two prefixes before the instruction.
        let start = of.ip().wrapping_sub(address) as usize;
        (start..start + 3).contains(&at) && start + of.len() > at
    };
    let instructions = (part.start..=at)
        .take(MAX_INSTRUCTION_BYTES)
        .map(|start| decode(&code[start..end], address.wrapping_add(start as u64)))
        .find(|all| all.iter().any(begins));
    let mut constants = Constants::default();
    let all = instructions.unwrap_or_default();
    all.iter().fold(RequestedProtection::default(), |requested, one| {
        requested.and(constants.pass(one, number_of))
    })
}

fn decode(code: &[u8], address: u64) -> Vec<Instruction> {
    Decoder::with_ip(64, code, address, DecoderOptions::NONE).iter().collect()
}

#[cfg(test)]
mod tests;
