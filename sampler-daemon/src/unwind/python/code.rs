//! A code object: what its function is called, and which lines its instructions come from.

use super::line_table::{self, Location};
use super::memory::{self, Memory};
use super::version::{CodeOffsets, OWNED_BY_GENERATOR, Offsets};
use sampler_common::wire::{
    PYTHON_BYTES_OFFSET, PYTHON_BYTES_WORDS, PYTHON_CODE_OFFSET, PYTHON_CODE_WORDS,
    PYTHON_LINES_WORD, python_kept, python_mixed,
};
use std::sync::Arc;

/// Characters of a function's or a file's name, at most. A longer one is not read.
const MAX_NAME_CHARACTERS: usize = 4096;

/// Bytes of a table of lines, at most. A code object with a longer one is not read.
const MAX_TABLE_BYTES: u64 = 256 * 1024;

/// Code units of a code object, at most.
const MAX_UNITS: u64 = 1 << 24;

/// Bytes of a code unit.
const UNIT_BYTES: u64 = 2;

/// Offset of the number of items of an object.
const SIZE: u64 = 16;

/// A code object, as it was at one time.
#[derive(Clone, Debug)]
pub(super) struct Code {
    /// Its function, qualified by the functions and classes around it.
    pub(super) function: Arc<str>,
    pub(super) file: Arc<str>,
    first_line: u32,
    lines: Box<[u8]>,
    /// Address of its first code unit.
    start: u64,
    units: u64,
    first_traceable: u64,
}

/// Where in a code object a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// At a line, 0: the compiler made the instruction up.
    Line(u32),
    /// Before the first line: Python shows no such frames.
    NotBegun,
}

impl Code {
    /// Reads the code object at an address, if it is the one of this fingerprint before and after.
    pub(super) fn read(
        memory: &dyn Memory,
        offsets: &Offsets,
        address: u64,
        expected: u64,
    ) -> Option<Code> {
        let is_expected = || Some(fingerprint(memory, address)? == expected).filter(|is| *is);
        is_expected()?;
        let CodeOffsets { file, name, first_line, lines, first_traceable, instructions } =
            offsets.code;
        let word = |offset: u64| memory::word(memory, address.checked_add(offset)?);
        let half = |offset: u64| Some(word(offset)? as u32);
        let table = word(lines)?;
        let length = memory::word(memory, table.checked_add(SIZE)?)?;
        let length = usize::try_from(length).ok().filter(|_| length <= MAX_TABLE_BYTES)?;
        let code = Code {
            function: string(memory, offsets, word(name)?)?,
            file: string(memory, offsets, word(file)?)?,
            first_line: half(first_line)?,
            // Behind its length is its hash.
            lines: memory::bytes(memory, table.checked_add(SIZE + 16)?, length)?.into(),
            start: address.checked_add(instructions)?,
            units: word(SIZE)?,
            first_traceable: half(first_traceable)?.into(),
        };
        // What its strings were read from was theirs all the time then.
        is_expected()?;
        (code.units <= MAX_UNITS).then_some(code)
    }

    /// Where an instruction is; `None` if it is none of this code object.
    pub(super) fn position(&self, instruction: u64, owner: u8) -> Option<Position> {
        let is_before = instruction.wrapping_add(UNIT_BYTES) == self.start;
        if is_before && owner != OWNED_BY_GENERATOR {
            return Some(Position::NotBegun);
        }
        let unit = instruction.checked_sub(self.start)? / UNIT_BYTES;
        if unit >= self.units {
            return None;
        }
        if unit < self.first_traceable && owner != OWNED_BY_GENERATOR {
            return Some(Position::NotBegun);
        }
        match line_table::line(&self.lines, self.first_line, unit)? {
            Location::Line(line) => Some(Position::Line(line)),
            Location::NoLine => Some(Position::Line(0)),
        }
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Code>() + self.function.len() + self.file.len() + self.lines.len()
    }
}

/// What the kernel side makes of a code object, now.
pub(super) fn fingerprint(memory: &dyn Memory, address: u64) -> Option<u64> {
    let mut code = [0; PYTHON_CODE_WORDS * 8];
    memory.read(address.checked_add(PYTHON_CODE_OFFSET)?, &mut code)?;
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    let mixed = code.chunks_exact(8).fold(1, |mixed, bytes| python_mixed(mixed, word(bytes)));
    let mut table = [0; PYTHON_BYTES_WORDS * 8];
    let lines = word(code.get(PYTHON_LINES_WORD * 8..)?);
    memory.read(lines.checked_add(PYTHON_BYTES_OFFSET)?, &mut table)?;
    let length = word(&table);
    // Behind the length is the hash, which comes when somebody asks for it.
    let contents = table.chunks_exact(8).skip(2).zip(0..);
    let mixed = python_mixed(mixed, length);
    Some(contents.fold(mixed, |mixed, (bytes, place)| {
        python_mixed(mixed, python_kept(word(bytes), place, length))
    }))
}

/// A string of one of the compact kinds, as all names of code are.
fn string(memory: &dyn Memory, offsets: &Offsets, address: u64) -> Option<Arc<str>> {
    const STATE: u64 = 32;
    let length = memory::word(memory, address.checked_add(SIZE)?)?;
    let length = usize::try_from(length).ok().filter(|it| *it <= MAX_NAME_CHARACTERS)?;
    let state = memory::word(memory, address.checked_add(STATE)?)? as u32;
    let (width, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1, state >> 6 & 1);
    if is_compact == 0 || !matches!(width, 1 | 2 | 4) || (is_ascii == 1 && width != 1) {
        return None;
    }
    let [ascii, other] = offsets.string;
    let header = if is_ascii == 1 { ascii } else { other };
    let text = memory::bytes(memory, address.checked_add(header)?, length * width as usize)?;
    let characters = text.chunks_exact(width as usize).map(|bytes| {
        let number = bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
        char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)
    });
    Some(characters.collect::<String>().into())
}
