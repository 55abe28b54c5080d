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

/// Offsets of the next interpreter, of an interpreter's threads, and of a thread's interpreter.
#[derive(Clone, Copy, Debug)]
pub(super) struct InterpreterOffsets {
    /// The next interpreter of the list.
    pub(super) next: u64,
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
    /// By the lock of the interpreter.
    ByLock {
        /// Offset of the pointer to the lock.
        lock: u64,
        /// Offset of the holder in the lock.
        holder: u64,
        /// Offset in the lock of what tells whether it is taken.
        locked: u64,
    },
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
    /// Offset in the runtime of the pointer to the main interpreter. The pointer to the newest
    /// interpreter is before it.
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
    /// The kernel side's values, without those that [`NOT_FOUND`] has.
    pub(super) kernel: PythonRuntime,
}

/// Value of `owner` of a generator's frame.
pub(super) const OWNED_BY_GENERATOR: u8 = 1;

/// The kernel side's values that only a process has, or that [`Running`] and
/// [`InterpreterOffsets`] have.
const NOT_FOUND: PythonRuntime = PythonRuntime {
    generation: 0,
    current: 0,
    interpreters: 0,
    next: 0,
    lock: 0,
    holder: 0,
    locked: 0,
    thread_id: 0,
    frame: 0,
    indirect: 0,
    frame_bytes: 0,
    before: 0,
    code: 0,
    instruction: 0,
    previous: 0,
    boundary: 0,
    code_words: 0,
    versioned: 0,
};

/// Bytes before a frame that are read with it: room for some six frames of callers.
const BEFORE: u64 = 896;

const V3_11: Offsets = Offsets {
    main_interpreter: 48,
    interpreter: InterpreterOffsets { next: 0, threads: 16, of_thread: 16 },
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
        thread_id: 152,
        frame: 56,
        indirect: 8,
        code: 32,
        instruction: 56,
        previous: 48,
        frame_bytes: 72,
        before: BEFORE,
        boundary: 64,
        code_words: 56,
        ..NOT_FOUND
    },
};

const V3_10: Offsets = Offsets {
    main_interpreter: 40,
    interpreter: InterpreterOffsets { next: 0, threads: 8, of_thread: 16 },
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
        thread_id: 176,
        frame: 24,
        indirect: PYTHON_DIRECT,
        frame_bytes: 104,
        code: 32,
        instruction: 96,
        previous: 24,
        code_words: 40,
        ..NOT_FOUND
    },
};

const V3_9: Offsets = Offsets {
    code: CodeOffsets { instructions: Instructions::Apart(48, 2), ..V3_10.code },
    table: Table::Increments,
    kernel: PythonRuntime { frame_bytes: 112, instruction: 104, ..V3_10.kernel },
    ..V3_10
};

const V3_12: Offsets = Offsets {
    interpreter: InterpreterOffsets { next: 0, threads: 72, of_thread: 16 },
    running: Running::ByLock { lock: 384, holder: 8, locked: 16 },
    boundary: Boundary::Owner(3),
    owner: 70,
    code: CodeOffsets {
        first_line: 68,
        instructions: Instructions::Inline(192, 176),
        ..V3_11.code
    },
    string: [40, 56],
    kernel: PythonRuntime {
        thread_id: 136,
        indirect: 0,
        code: 0,
        previous: 8,
        versioned: 1,
        ..V3_11.kernel
    },
    ..V3_11
};

/// The numbers of the used words of a version's `_Py_DebugOffsets`, counted from its beginning.
struct Words {
    interpreter_next: usize,
    threads_head: usize,
    ceval_gil: usize,
    gil: usize,
    gil_locked: usize,
    gil_holder: usize,
    thread_interpreter: usize,
    current_frame: usize,
    thread_id: usize,
    frame_previous: usize,
    frame_code: usize,
    frame_instruction: usize,
    frame_owner: usize,
    code_file: usize,
    code_name: usize,
    code_lines: usize,
    code_first_line: usize,
    code_instructions: usize,
}

/// The words that are the same in all versions.
const VERSION: usize = 1;
const FREE_THREADED: usize = 2;
const INTERPRETERS_HEAD: usize = 5;

const WORDS_3_13: Words = Words {
    interpreter_next: 8,
    threads_head: 9,
    ceval_gil: 14,
    gil: 15,
    gil_locked: 17,
    gil_holder: 18,
    thread_interpreter: 22,
    current_frame: 23,
    thread_id: 24,
    frame_previous: 29,
    frame_code: 30,
    frame_instruction: 31,
    frame_owner: 33,
    code_file: 35,
    code_name: 37,
    code_lines: 38,
    code_first_line: 39,
    code_instructions: 43,
};

const WORDS_3_14: Words = Words {
    interpreter_next: 8,
    threads_head: 9,
    ceval_gil: 15,
    gil: 16,
    gil_locked: 18,
    gil_holder: 19,
    thread_interpreter: 25,
    current_frame: 26,
    thread_id: 27,
    frame_previous: 32,
    frame_code: 33,
    frame_instruction: 34,
    frame_owner: 36,
    code_file: 40,
    code_name: 42,
    code_lines: 43,
    code_first_line: 44,
    code_instructions: 48,
};

/// The number of words of `_Py_DebugOffsets` that are read.
const WORDS_READ: usize = 49;

/// Bound of a stated offset. No struct is larger.
const MAX_OFFSET: u64 = 1 << 20;

/// Why the offsets of a version are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// There is no table for the version, or the runtime does not state what the table needs.
    Version,
    /// The interpreter has no lock, so no holder of the lock tells which thread runs.
    FreeThreaded,
}

/// The offsets of a version whose runtime is at an address.
///
/// # Errors
/// If they are not known.
pub(super) fn offsets(
    version: (u8, u8),
    memory: &dyn Memory,
    runtime: u64,
) -> Result<Offsets, Unknown> {
    match version {
        (3, 9) => Ok(V3_9),
        (3, 10) => Ok(V3_10),
        (3, 11) => Ok(V3_11),
        (3, 12) => Ok(V3_12),
        (3, 13) => stated(version, &WORDS_3_13, memory, runtime),
        (3, 14) => stated(version, &WORDS_3_14, memory, runtime),
        _ => Err(Unknown::Version),
    }
}

/// The offsets that the runtime states.
fn stated(
    version: (u8, u8),
    words: &Words,
    memory: &dyn Memory,
    runtime: u64,
) -> Result<Offsets, Unknown> {
    let mut bytes = [0; WORDS_READ * 8];
    memory.read(runtime, &mut bytes).ok_or(Unknown::Version)?;
    let word = |index: usize| {
        let word = bytes.get(index * 8..).and_then(<[u8]>::first_chunk);
        word.map_or(0, |word| u64::from_le_bytes(*word))
    };
    // `PY_VERSION_HEX`: major, minor and micro version, then the level. Only releases and their
    // candidates have the layout of the version.
    let [level, _, minor, major, ..] = word(VERSION).to_le_bytes();
    if bytes.first_chunk() != Some(&COOKIE) || (major, minor) != version || level < 0xc0 {
        return Err(Unknown::Version);
    }
    if word(FREE_THREADED) != 0 {
        return Err(Unknown::FreeThreaded);
    }
    let offset = |index| Some(word(index)).filter(|offset| *offset < MAX_OFFSET);
    with_stated(words, offset).ok_or(Unknown::Version)
}

/// The offsets, by the numbers of their words.
fn with_stated(words: &Words, offset: impl Fn(usize) -> Option<u64>) -> Option<Offsets> {
    let owner = offset(words.frame_owner)?;
    let instructions = offset(words.code_instructions)?;
    let gil = offset(words.gil)?;
    let in_gil = |index| offset(index)?.checked_sub(gil);
    Some(Offsets {
        // The first interpreter of the list is the newest one. The pointer to the main interpreter
        // follows.
        main_interpreter: offset(INTERPRETERS_HEAD)? + 8,
        interpreter: InterpreterOffsets {
            next: offset(words.interpreter_next)?,
            threads: offset(words.threads_head)?,
            of_thread: offset(words.thread_interpreter)?,
        },
        running: Running::ByLock {
            lock: offset(words.ceval_gil)?,
            holder: in_gil(words.gil_holder)?,
            locked: in_gil(words.gil_locked)?,
        },
        boundary: Boundary::Owner(3),
        owner,
        code: CodeOffsets {
            file: offset(words.code_file)?,
            name: offset(words.code_name)?,
            first_line: offset(words.code_first_line)?,
            lines: offset(words.code_lines)?,
            // The place of the function's beginning is not stated. In all of 3.13 and 3.14 so far,
            // it is before the instructions.
            instructions: Instructions::Inline(instructions, instructions.checked_sub(16)?),
        },
        table: V3_12.table,
        string: V3_12.string,
        kernel: PythonRuntime {
            thread_id: offset(words.thread_id)?,
            frame: offset(words.current_frame)?,
            indirect: PYTHON_DIRECT,
            code: offset(words.frame_code)?,
            instruction: offset(words.frame_instruction)?,
            previous: offset(words.frame_previous)?,
            frame_bytes: owner / 8 * 8 + 8,
            boundary: owner / 8 * 8,
            ..V3_12.kernel
        },
    })
}
