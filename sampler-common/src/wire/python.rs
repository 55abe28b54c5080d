//! Python frames: where the kernel side finds those of a process, and the record that has those of one sample.
//!
//! The kernel side follows pointers and copies words. What they mean, the daemon finds out when it reads the record; by then a code object may be gone and
//! another one lie where it lay. So each frame carries a fingerprint of its code object as it was when the sample was taken.

use super::Space;

/// Python frames of a sample at most; the outer ones of a deeper stack are cut ([`PYTHON_CUT`]).
pub const MAX_PYTHON_FRAMES: usize = 128;

/// Words that the kernel side has room for.
pub const PYTHON_SCRATCH_WORDS: usize = 16;

/// Bytes of a frame that are read at most, a mask.
pub const PYTHON_FRAME_BYTES: u64 = 120;

/// Words of a code object that its fingerprint is made of: sizes, names and, last, the address of the table of lines, a `bytes` object. None of them changes
/// while the code object lives.
pub const PYTHON_CODE_WORDS: usize = 11;

/// Bytes from the beginning of a `bytes` object to its length; its hash and its contents follow.
pub const PYTHON_BYTES_OFFSET: u64 = 16;

/// As many bytes of the table of lines are part of the fingerprint as are left of its length by this mask.
pub const PYTHON_TABLE_MASK: u64 = 63;

/// Words that these are.
pub const PYTHON_TABLE_WORDS: usize = 8;

/// [`PythonRuntime::indirect`]: the thread's state has the frame itself.
pub const PYTHON_DIRECT: u64 = u64::MAX;

/// [`PythonRecord::flags`]: there are more frames than were copied.
pub const PYTHON_CUT: u32 = 1;

/// Where a process has the frames of its Python threads; value of the array `PYTHON`, indexed by slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PythonRuntime {
    /// The [`Space::generation`] that it holds for, 0: none.
    pub generation: u64,
    /// Address of the word that points to the running thread's state.
    pub current: u64,
    /// Offset of `thread_id` in a thread's state.
    pub thread_id: u64,
    /// Offset of the pointer that leads to the newest frame in a thread's state.
    pub frame: u64,
    /// Offset of the pointer to the frame in what that leads to, or [`PYTHON_DIRECT`].
    pub indirect: u64,
    /// Bytes of a frame that are read, at most [`PYTHON_FRAME_BYTES`].
    pub frame_bytes: u64,
    /// Offset of the code object in a frame.
    pub code: u64,
    /// Offset of the instruction in a frame.
    pub instruction: u64,
    /// Offset of the caller in a frame.
    pub previous: u64,
    /// Offset of the word with the byte that marks where the interpreter was entered, in a frame.
    pub boundary: u64,
    /// Offset of the words of a code object that its fingerprint is made of.
    pub code_words: u64,
}

/// The Python frames of a sampled allocation; comes before its [`AllocationRecord`](super::AllocationRecord).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PythonRecord {
    /// [`RecordKind::Python`](super::RecordKind::Python)
    pub kind: u32,
    /// How many of `frames` are there.
    pub count: u32,
    /// Address space.
    pub space: Space,
    /// Number of the sample.
    pub sample: u64,
    /// [`PYTHON_CUT`] or 0.
    pub flags: u32,
    /// Explicit padding, 0.
    pub pad: u32,
    /// The frames, newest first.
    pub frames: [PythonFrame; MAX_PYTHON_FRAMES],
    /// Where the kernel side reads: means nothing here.
    pub scratch: [u64; PYTHON_SCRATCH_WORDS],
}

/// A frame of the Python interpreter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PythonFrame {
    /// Address of its code object; 0: the frame could not be read, and it is the last.
    pub code: u64,
    /// Address of the instruction that it is at, as the interpreter keeps it.
    pub instruction: u64,
    /// The word at [`PythonRuntime::boundary`].
    pub boundary: u64,
    /// [Fingerprint](python_mixed) of its code object.
    pub fingerprint: u64,
}

/// One more word of a fingerprint, which begins with 1: first the words of the code object, then the length of the table of lines and the words of its
/// beginning. Without a branch and short, since the verifier goes through it for each frame and each word.
#[inline(always)]
pub const fn python_mixed(fingerprint: u64, word: u64) -> u64 {
    (fingerprint ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

const _: () = assert!(size_of::<PythonFrame>() == 32);
const _: () =
    assert!(size_of::<PythonRecord>() == 32 + MAX_PYTHON_FRAMES * 32 + PYTHON_SCRATCH_WORDS * 8);
const _: () = assert!(PYTHON_SCRATCH_WORDS.is_power_of_two());
const _: () = assert!(PYTHON_TABLE_WORDS * 8 > PYTHON_TABLE_MASK as usize);
