//! Python frames: where the kernel side finds the frames of a process, and the record with the
//! frames of one sample.
//!
//! The kernel side follows pointers and copies words. The daemon interprets the words when it reads
//! the record. By then a code object may be gone, and another one may have its address. So each
//! frame carries a fingerprint of its code object from the time of the sample.

use super::Space;

/// Maximum number of Python frames of a sample. The outer frames of a deeper stack are cut
/// ([`PYTHON_CUT`]).
pub const MAX_PYTHON_FRAMES: usize = 128;

/// Words of [`PythonScratch::words`].
pub const PYTHON_SCRATCH_WORDS: usize = 32;

/// Maximum number of bytes that are read of a frame; used as a mask.
pub const PYTHON_FRAME_BYTES: u64 = 120;

/// Mask of the bytes before a frame that are read with it.
pub const PYTHON_BLOCK_MASK: u64 = 0x3f8;

/// Words of memory for frames and what is read with them.
pub const PYTHON_BLOCK_WORDS: usize = 143;

/// Words of a code object that its fingerprint is made of: sizes, names and, last, the address of
/// the line table, a `bytes` object. None of the words changes while the code object lives.
pub const PYTHON_CODE_WORDS: usize = 11;

/// Bytes from the beginning of a `bytes` object to its length; its hash and its contents follow.
pub const PYTHON_BYTES_OFFSET: u64 = 16;

/// Index of the word of [`PYTHON_CODE_WORDS`] whose upper half is the code object's version, in
/// runtimes that have [`PythonRuntime::versioned`].
pub const PYTHON_VERSION_WORD: usize = 4;

/// Words that are read of the line table's object: its length, its hash, and the beginning of its
/// contents.
pub const PYTHON_TABLE_WORDS: usize = 9;

/// [`PythonRuntime::indirect`]: the thread's state points to the frame directly.
pub const PYTHON_DIRECT: u64 = u64::MAX;

/// [`PythonRuntime::lock`]: all interpreters share the word at [`PythonRuntime::current`].
pub const PYTHON_SHARED: u64 = u64::MAX;

/// Maximum number of interpreters of a process that are searched for the running thread.
pub const MAX_PYTHON_INTERPRETERS: usize = 16;

/// [`PythonRecord::flags`]: the stack has more frames than were copied.
pub const PYTHON_CUT: u32 = 1;

/// [`PythonRecord::flags`]: the process has several interpreters. The frames are those of one of
/// them, and the stack may have frames of others.
pub const PYTHON_SEVERAL: u32 = 2;

/// Where a process keeps the frames of its Python threads; value of the array `PYTHON`, indexed by
/// slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PythonRuntime {
    /// The [`Space::generation`] for which the entry is valid; 0 if there is none.
    pub generation: u64,
    /// Address of the word that points to the running thread's state.
    pub current: u64,
    /// Address of the word that points to the newest interpreter.
    pub interpreters: u64,
    /// Offset of the pointer to the next interpreter in an interpreter.
    pub next: u64,
    /// Offset of the pointer to the lock in an interpreter, or [`PYTHON_SHARED`].
    pub lock: u64,
    /// Offset in a lock of the pointer to the state of the thread that took it last.
    pub holder: u64,
    /// Offset in a lock of the 32-bit number that is not 0 while the lock is taken.
    pub locked: u64,
    /// Offset of `thread_id` in a thread's state.
    pub thread_id: u64,
    /// Offset of the pointer that leads to the newest frame in a thread's state.
    pub frame: u64,
    /// Offset of the pointer to the frame in the object that `frame` points to, or
    /// [`PYTHON_DIRECT`].
    pub indirect: u64,
    /// Bytes of a frame that are read, at most [`PYTHON_FRAME_BYTES`].
    pub frame_bytes: u64,
    /// Bytes before a frame that are read with it, within [`PYTHON_BLOCK_MASK`]. From 3.11 on, the
    /// caller's frame is often there.
    pub before: u64,
    /// Offset of the code object in a frame.
    pub code: u64,
    /// Offset of the instruction in a frame.
    pub instruction: u64,
    /// Offset of the caller in a frame.
    pub previous: u64,
    /// Offset in a frame of the word with the byte that marks where the interpreter was entered.
    pub boundary: u64,
    /// Offset in a code object of the words that its fingerprint is made of.
    pub code_words: u64,
    /// 1 if each code object of an interpreter has a version of its own, or 0.
    pub versioned: u64,
}

/// The Python frames of a sampled allocation; sent before its
/// [`AllocationRecord`](super::AllocationRecord). The ring has the record without the frames that
/// are not valid.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PythonRecord {
    /// [`RecordKind::Python`](super::RecordKind::Python)
    pub kind: u32,
    /// Number of valid `frames`.
    pub count: u32,
    /// Address space.
    pub space: Space,
    /// Number of the sample.
    pub sample: u64,
    /// [`PYTHON_CUT`] and [`PYTHON_SEVERAL`].
    pub flags: u32,
    /// Explicit padding, 0.
    pub pad: u32,
    /// The frames, newest first.
    pub frames: [PythonFrame; MAX_PYTHON_FRAMES],
}

/// Memory in which a CPU makes one record; entry of `PYTHON_SCRATCH`. The memory stays in the CPU's
/// cache, unlike the ring, through which every record passes once.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PythonScratch {
    /// 1 while the CPU uses the entry.
    pub taken: u64,
    /// The record.
    pub record: PythonRecord,
    /// Words of a code object and of its line table.
    pub words: [u64; PYTHON_SCRATCH_WORDS],
    /// Address of the last frame in `block`, or 0.
    pub block_frame: u64,
    /// Frames as the process has them, and what lies between them.
    pub block: [u64; PYTHON_BLOCK_WORDS],
}

/// A frame of the Python interpreter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PythonFrame {
    /// Address of the frame's code object. 0: the frame could not be read, and is the last one.
    pub code: u64,
    /// Address of the frame's current instruction, as the interpreter keeps it.
    pub instruction: u64,
    /// The word at [`PythonRuntime::boundary`].
    pub boundary: u64,
    /// [Fingerprint](python_mixed) of the code object.
    pub fingerprint: u64,
    /// Address of the frame. From 3.12 on, a frame at which the interpreter was entered is on the
    /// stack of the thread.
    pub address: u64,
}

/// The fingerprint with one more word mixed in; a fingerprint begins with 1.
///
/// The words are those of the code object, then the [first words](python_table_words) of the line
/// table's object, with 0 for its hash. The function is short and has no branch, since the verifier
/// checks it for each word.
#[inline(always)]
pub const fn python_mixed(fingerprint: u64, word: u64) -> u64 {
    (fingerprint ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Whether the code object with this word at [`PYTHON_VERSION_WORD`] has a version. When the
/// versions are used up, code objects have 0.
///
/// No two code objects of an interpreter have the same version. So the fingerprint of a code object
/// with a version does not need the line table, if the process has one interpreter.
#[inline(always)]
pub const fn python_has_version(word: u64) -> bool {
    word >> 32 != 0
}

/// The number of fingerprinted words of a line table's object that has `length` bytes of contents.
/// The bytes behind the contents, up to a whole word, belong to the object and do not change.
#[inline(always)]
pub const fn python_table_words(length: u64) -> u64 {
    const MAX: u64 = PYTHON_TABLE_WORDS as u64 - 2;
    let contents = length.saturating_add(7) / 8;
    2 + if contents < MAX { contents } else { MAX }
}

const _: () = assert!(size_of::<PythonFrame>() == 40);
const _: () = assert!(size_of::<PythonRecord>() == 32 + MAX_PYTHON_FRAMES * 40);
const _: () = assert!(PYTHON_SCRATCH_WORDS.is_power_of_two());
const _: () = assert!(PYTHON_CODE_WORDS + PYTHON_TABLE_WORDS <= PYTHON_SCRATCH_WORDS);
const _: () = assert!(PYTHON_BLOCK_MASK + PYTHON_FRAME_BYTES + 8 <= PYTHON_BLOCK_WORDS as u64 * 8);
