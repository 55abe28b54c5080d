//! Where in a function to put a probe so that the kernel emulates the probed instruction.

/// Where a probe goes, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Bytes from the function's entry to the probed instruction.
    pub displacement: u32,
    /// The probed instruction, disassembled (Intel syntax, or its bytes in hex if it does not decode).
    pub instruction: String,
    /// Whether the kernel emulates it; otherwise it is single-stepped, which costs many times more.
    pub emulated: bool,
    /// Why it is there, in a few words for `status`.
    pub reason: String,
}
