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

/// Words of scratch memory for the kernel side.
pub const PYTHON_SCRATCH_WORDS: usize = 16;

/// Maximum number of bytes that are read of a frame; used as a mask.
pub const PYTHON_FRAME_BYTES: u64 = 120;

/// Words of a code object that its fingerprint is made of: sizes, names and, last, the address of
/// the line table, a `bytes` object. None of the words changes while the code object lives.
pub const PYTHON_CODE_WORDS: usize = 11;

/// Bytes from the beginning of a `bytes` object to its length; its hash and its contents follow.
pub const PYTHON_BYTES_OFFSET: u64 = 16;

/// Mask of the line table's length: the fingerprint includes as many bytes of the table as the
/// masked length says.
pub const PYTHON_TABLE_MASK: u64 = 63;

/// Words that hold the fingerprinted bytes of the line table.
pub const PYTHON_TABLE_WORDS: usize = 8;

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
}

/// The Python frames of a sampled allocation; sent before its
/// [`AllocationRecord`](super::AllocationRecord).
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
    /// Scratch memory of the kernel side, without a meaning for readers.
    pub scratch: [u64; PYTHON_SCRATCH_WORDS],
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
/// The words are those of the code object, then the length of the line table and the words of the
/// table's beginning. The function is short and has no branch, since the verifier checks it for
/// each frame and each word.
#[inline(always)]
pub const fn python_mixed(fingerprint: u64, word: u64) -> u64 {
    (fingerprint ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

const _: () = assert!(size_of::<PythonFrame>() == 40);
const _: () =
    assert!(size_of::<PythonRecord>() == 32 + MAX_PYTHON_FRAMES * 40 + PYTHON_SCRATCH_WORDS * 8);
const _: () = assert!(PYTHON_SCRATCH_WORDS.is_power_of_two());
const _: () = assert!(PYTHON_TABLE_WORDS * 8 > PYTHON_TABLE_MASK as usize);
