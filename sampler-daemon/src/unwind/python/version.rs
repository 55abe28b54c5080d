//! For each version of CPython, the offsets that lead to a function's name and line.
//!
//! The tables of 3.9 to 3.12 have the offsets of the versions' own headers
//! (`Include/internal/pycore_*.h`). No patch release has changed them. From 3.13 on, the runtime
//! states its offsets itself (`_Py_DebugOffsets`, at the beginning of `_PyRuntime`).

use super::line_table::Table;
use super::memory::Memory;
use sampler_common::wire::{PYTHON_DIRECT, PythonRuntime};

/// The magic number at the beginning of `_Py_DebugOffsets`.
const COOKIE: [u8; 8] = *b"xdebugpy";

/// Offsets of an interpreter's threads, and of a thread's interpreter.
#[derive(Clone, Copy, Debug)]
pub(super) struct InterpreterOffsets {
    /// The first thread's state.
    pub(super) threads: u64,
    /// The thread's interpreter, in a thread's state.
    pub(super) of_thread: u64,
}

/// How to find the state of the running thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum Running {
    /// By a word of the runtime, at this offset.
    InRuntime(u64),
    /// By the lock of the interpreter: the offset of the pointer to the lock, and the offset of the
    /// holder in the lock.
    ByLock(u64, u64),
}

/// How a run of frames shows the frame at which a call in C entered the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Boundary {
    /// The byte at this offset of the run's oldest frame is not 0.
    Byte(u64),
    /// A frame that is no function's follows the run's oldest frame. Its byte `owner` has this
    /// value.
    Owner(u8),
    /// Every frame is a run of its own.
    Every,
}

/// How a frame gives its instruction, and where the code object has its instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instructions {
    /// By address. The first value is the offset of the first instruction. The second is the offset
    /// of the number of instructions before the function's beginning.
    Inline(u64, u64),
    /// By number. The first value is the offset of the pointer to the `bytes` object with the
    /// instructions. The second is how much one code unit counts.
    Apart(u64, u32),
}

/// Offsets in a code object.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodeOffsets {
    pub(super) file: u64,
    pub(super) name: u64,
    pub(super) first_line: u64,
    pub(super) lines: u64,
    pub(super) instructions: Instructions,
}

/// The offsets of one version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    /// Offset in the runtime of the pointer to the main interpreter.
    pub(super) main_interpreter: u64,
    pub(super) interpreter: InterpreterOffsets,
    pub(super) running: Running,
    pub(super) boundary: Boundary,
    /// Offset in a frame of the byte `owner`.
    pub(super) owner: u64,
    pub(super) code: CodeOffsets,
    pub(super) table: Table,
    /// Sizes of a string's header: of an ASCII string, and of others.
    pub(super) string: [u64; 2],
    /// The kernel side's values, without `generation` and `current`.
    pub(super) kernel: PythonRuntime,
}

/// Value of `owner` of a generator's frame.
pub(super) const OWNED_BY_GENERATOR: u8 = 1;

const V3_11: Offsets = Offsets {
    main_interpreter: 48,
    interpreter: InterpreterOffsets { threads: 16, of_thread: 16 },
    running: Running::InRuntime(576),
    boundary: Boundary::Byte(68),
    owner: 69,
    code: CodeOffsets {
        file: 112,
        name: 128,
        first_line: 72,
        lines: 136,
        instructions: Instructions::Inline(184, 168),
    },
    table: Table::Locations,
    string: [48, 72],
    kernel: PythonRuntime {
        generation: 0,
        current: 0,
        thread_id: 152,
        frame: 56,
        indirect: 8,
        code: 32,
        instruction: 56,
        previous: 48,
        frame_bytes: 72,
        boundary: 64,
        code_words: 56,
    },
};

const V3_10: Offsets = Offsets {
    main_interpreter: 40,
    interpreter: InterpreterOffsets { threads: 8, of_thread: 16 },
    running: Running::InRuntime(568),
    boundary: Boundary::Every,
    owner: 0,
    code: CodeOffsets {
        file: 104,
        name: 112,
        first_line: 40,
        lines: 120,
        instructions: Instructions::Apart(48, 1),
    },
    table: Table::Pairs,
    string: V3_11.string,
    kernel: PythonRuntime {
        generation: 0,
        current: 0,
        thread_id: 176,
        frame: 24,
        indirect: PYTHON_DIRECT,
        frame_bytes: 104,
        code: 32,
        instruction: 96,
        previous: 24,
        boundary: 0,
        code_words: 40,
    },
};

const V3_9: Offsets = Offsets {
    code: CodeOffsets { instructions: Instructions::Apart(48, 2), ..V3_10.code },
    table: Table::Increments,
    kernel: PythonRuntime { frame_bytes: 112, instruction: 104, ..V3_10.kernel },
    ..V3_10
};

const V3_12: Offsets = Offsets {
    interpreter: InterpreterOffsets { threads: 72, of_thread: 16 },
    running: Running::ByLock(384, 8),
    boundary: Boundary::Owner(3),
    owner: 70,
    code: CodeOffsets {
        first_line: 68,
        instructions: Instructions::Inline(192, 176),
        ..V3_11.code
    },
    string: [40, 56],
    kernel: PythonRuntime { thread_id: 136, indirect: 0, code: 0, previous: 8, ..V3_11.kernel },
    ..V3_11
};

/// The used words of `_Py_DebugOffsets` of 3.13, counted from its beginning.
mod word_3_13 {
    pub(super) const FREE_THREADED: usize = 2;
    pub(super) const INTERPRETERS_HEAD: usize = 5;
    pub(super) const THREADS_HEAD: usize = 9;
    pub(super) const CEVAL_GIL: usize = 14;
    pub(super) const GIL: usize = 15;
    pub(super) const GIL_HOLDER: usize = 18;
    pub(super) const THREAD_INTERPRETER: usize = 22;
    pub(super) const CURRENT_FRAME: usize = 23;
    pub(super) const THREAD_ID: usize = 24;
    pub(super) const FRAME_PREVIOUS: usize = 29;
    pub(super) const FRAME_CODE: usize = 30;
    pub(super) const FRAME_INSTRUCTION: usize = 31;
    pub(super) const FRAME_OWNER: usize = 33;
    pub(super) const CODE_FILE: usize = 35;
    pub(super) const CODE_NAME: usize = 37;
    pub(super) const CODE_LINES: usize = 38;
    pub(super) const CODE_FIRST_LINE: usize = 39;
    pub(super) const CODE_INSTRUCTIONS: usize = 43;
    pub(super) const COUNT: usize = 44;
}

/// Bound of a stated offset. No struct is larger.
const MAX_OFFSET: u64 = 1 << 20;

/// The offsets of a version whose runtime is at an address; `None` if they are not known.
pub(super) fn offsets(version: (u8, u8), memory: &dyn Memory, runtime: u64) -> Option<Offsets> {
    match version {
        (3, 9) => Some(V3_9),
        (3, 10) => Some(V3_10),
        (3, 11) => Some(V3_11),
        (3, 12) => Some(V3_12),
        (3, 13) => stated_3_13(memory, runtime),
        _ => None,
    }
}

/// The offsets that the runtime of 3.13 states.
fn stated_3_13(memory: &dyn Memory, runtime: u64) -> Option<Offsets> {
    use word_3_13 as at;
    let mut bytes = [0; at::COUNT * 8];
    memory.read(runtime, &mut bytes)?;
    let word =
        |index: usize| bytes.get(index * 8..)?.first_chunk().map(|word| u64::from_le_bytes(*word));
    let offset = |index| word(index).filter(|offset| *offset < MAX_OFFSET);
    if bytes.first_chunk() != Some(&COOKIE) || word(at::FREE_THREADED)? != 0 {
        return None;
    }
    let owner = offset(at::FRAME_OWNER)?;
    let instructions = offset(at::CODE_INSTRUCTIONS)?;
    let holder = offset(at::GIL_HOLDER)?.checked_sub(offset(at::GIL)?)?;
    Some(Offsets {
        // The first interpreter of the list is the newest one. The pointer to the main interpreter
        // follows.
        main_interpreter: offset(at::INTERPRETERS_HEAD)? + 8,
        interpreter: InterpreterOffsets {
            threads: offset(at::THREADS_HEAD)?,
            of_thread: offset(at::THREAD_INTERPRETER)?,
        },
        running: Running::ByLock(offset(at::CEVAL_GIL)?, holder),
        boundary: Boundary::Owner(3),
        owner,
        code: CodeOffsets {
            file: offset(at::CODE_FILE)?,
            name: offset(at::CODE_NAME)?,
            first_line: offset(at::CODE_FIRST_LINE)?,
            lines: offset(at::CODE_LINES)?,
            // The place of the function's beginning is not stated. In all of 3.13 so far, it is
            // before the instructions.
            instructions: Instructions::Inline(instructions, instructions.checked_sub(16)?),
        },
        table: V3_12.table,
        string: V3_12.string,
        kernel: PythonRuntime {
            generation: 0,
            current: 0,
            thread_id: offset(at::THREAD_ID)?,
            frame: offset(at::CURRENT_FRAME)?,
            indirect: PYTHON_DIRECT,
            code: offset(at::FRAME_CODE)?,
            instruction: offset(at::FRAME_INSTRUCTION)?,
            previous: offset(at::FRAME_PREVIOUS)?,
            frame_bytes: owner / 8 * 8 + 8,
            boundary: owner / 8 * 8,
            code_words: V3_12.kernel.code_words,
        },
    })
}
