//! A code object: the name of its function, and the lines of its instructions.

use super::line_table::{Location, Table};
use super::memory::{self, Memory};
use super::version::{CodeOffsets, Instructions, OWNED_BY_GENERATOR, Offsets};
use sampler_common::wire::{
    PYTHON_BYTES_OFFSET, PYTHON_CODE_WORDS, PYTHON_TABLE_WORDS, PYTHON_VERSION_WORD,
    python_has_version, python_mixed, python_table_words,
};
use std::sync::Arc;

/// Most characters of a function's or a file's name. A longer name is not read.
const MAX_NAME_CHARACTERS: usize = 4096;

/// Most bytes of a table of lines. A code object with a longer table is not read.
const MAX_TABLE_BYTES: u64 = 256 * 1024;

/// Bytes of a code unit.
const UNIT_BYTES: u64 = 2;

/// Offset of an object's number of items.
const SIZE: u64 = 16;

/// A code object, as it was at one time.
#[derive(Clone, Debug)]
pub(super) struct Code {
    /// The function's name. From 3.11 on, the names of the enclosing functions and classes qualify
    /// it.
    pub(super) function: Arc<str>,
    pub(super) file: Arc<str>,
    first_line: u32,
    table: Table,
    lines: Box<[u8]>,
    instructions: CodeUnits,
}

/// The code units of a code object.
#[derive(Clone, Copy, Debug)]
enum CodeUnits {
    /// `units` code units from the address `start` on. The function begins at unit
    /// `first_traceable`.
    At { start: u64, units: u64, first_traceable: u64 },
    /// `units` code units. Each one counts for `each` in the number of an instruction.
    Numbered { units: u64, each: u32 },
}

/// Where a frame is in a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// At this line. 0: the compiler generated the instruction without a line.
    Line(u32),
    /// Before the first line. Python does not show such frames.
    NotBegun,
}

impl Code {
    /// Reads the code object at an address, if it has this fingerprint both before and after the
    /// read. The fingerprint was taken while the process had one interpreter, or several.
    pub(super) fn read(
        memory: &dyn Memory,
        offsets: &Offsets,
        address: u64,
        (expected, is_one): (u64, bool),
    ) -> Option<Code> {
        let is_expected =
            || Some(fingerprint(memory, offsets, address, is_one)? == expected).filter(|is| *is);
        is_expected()?;
        let CodeOffsets { file, name, first_line, lines, instructions } = offsets.code;
        let word = |offset: u64| memory::word(memory, address.checked_add(offset)?);
        let table = word(lines)?;
        let length = memory::word(memory, table.checked_add(SIZE)?)?;
        let length = usize::try_from(length).ok().filter(|_| length <= MAX_TABLE_BYTES)?;
        let code = Code {
            function: string(memory, offsets, word(name)?)?,
            file: string(memory, offsets, word(file)?)?,
            first_line: word(first_line)? as u32,
            table: offsets.table,
            // The hash follows the length.
            lines: memory::bytes(memory, table.checked_add(SIZE + 16)?, length)?.into(),
            instructions: match instructions {
                Instructions::Inline(start, first) => CodeUnits::At {
                    start: address.checked_add(start)?,
                    units: word(SIZE)?,
                    first_traceable: u64::from(word(first)? as u32),
                },
                Instructions::Apart(bytes, each) => CodeUnits::Numbered {
                    units: memory::word(memory, word(bytes)?.checked_add(SIZE)?)? / UNIT_BYTES,
                    each,
                },
            },
        };
        // The fingerprint is unchanged, so the strings belonged to this code object during the
        // read.
        is_expected()?;
        Some(code)
    }

    /// The position of an instruction; `None` if the instruction is not in this code object.
    pub(super) fn position(&self, instruction: u64, owner: u8) -> Option<Position> {
        let (unit, units) = match self.instructions {
            CodeUnits::At { start, units, first_traceable } => {
                let unit = instruction.wrapping_sub(start).cast_signed() / UNIT_BYTES.cast_signed();
                // One unit before the first: the frame has not executed any instruction.
                let has_begun =
                    owner == OWNED_BY_GENERATOR || unit >= first_traceable.cast_signed();
                if unit >= -1 && !has_begun {
                    return Some(Position::NotBegun);
                }
                (u64::try_from(unit).ok()?, units)
            }
            CodeUnits::Numbered { units, each } => match (instruction as u32).cast_signed() {
                -1 => return Some(Position::Line(self.first_line)),
                number => (u64::from(u32::try_from(number).ok()? / each), units),
            },
        };
        if unit >= units {
            return None;
        }
        match self.table.line(&self.lines, self.first_line, unit)? {
            Location::Line(line) => Some(Position::Line(line)),
            Location::NoLine => Some(Position::Line(0)),
        }
    }

    /// Bytes that the code object takes here.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Code>() + self.function.len() + self.file.len() + self.lines.len()
    }
}

/// The present fingerprint of a code object, computed as on the kernel side. `is_one`: the process
/// has one interpreter.
pub(super) fn fingerprint(
    memory: &dyn Memory,
    offsets: &Offsets,
    address: u64,
    is_one: bool,
) -> Option<u64> {
    let mixed = |sum, words: &[u64]| words.iter().fold(sum, |sum, word| python_mixed(sum, *word));
    let kernel = &offsets.kernel;
    let code: [_; PYTHON_CODE_WORDS] = words(memory, address.checked_add(kernel.code_words)?);
    let sum = mixed(1, &code);
    if is_one && kernel.versioned != 0 && python_has_version(*code.get(PYTHON_VERSION_WORD)?) {
        return Some(sum);
    }
    let table = code.last()?.wrapping_add(PYTHON_BYTES_OFFSET);
    let mut table: [_; PYTHON_TABLE_WORDS] = words(memory, table);
    let [length, hash, ..] = &mut table;
    *hash = 0;
    let count = usize::try_from(python_table_words(*length)).ok()?;
    Some(mixed(sum, table.get(..count)?))
}

/// Words from an address on; zeros if they cannot be read, as on the kernel side.
fn words<const COUNT: usize>(memory: &dyn Memory, address: u64) -> [u64; COUNT] {
    let mut bytes = [[0; 8]; COUNT];
    match memory.read(address, bytes.as_flattened_mut()) {
        Some(()) => bytes.map(u64::from_le_bytes),
        None => [0; COUNT],
    }
}

/// Reads a string of one of the compact kinds. All names of code are compact.
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
