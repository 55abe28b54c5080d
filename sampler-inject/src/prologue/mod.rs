//! Hook places: where one byte hooks a function, and the machine code around that byte.
//!
//! One byte of an instruction becomes `E9`, the opcode of `jmp rel32`. The four bytes behind it
//! stay as they are and become the distance of the jump:
//!
//! ```text
//! plain:  E9 b1 b2 b3 b4        leads to patch + 5 + i32(b1 b2 b3 b4)
//! REX:    4x E9 b2 b3 b4 b5     leads to patch + 5 + i32(b2 b3 b4 b5); E9 ignores the REX prefix
//! ```
//!
//! A trampoline lies at the jump's target, its landing. Another tool's `int3` may stand at any
//! instruction boundary within the four bytes and changes the distance. So a trampoline lies at the
//! landing of every such combination, too.

mod code;
mod conditions;
mod elsewhere;
mod landings;
mod places;
mod walk;

pub use code::{Error, original, trampoline, trampoline_length};
pub use elsewhere::jumps_to;
pub use places::{places, places_with};

/// One function of the target.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    /// The address of its entry in the target.
    pub entry: u64,
    /// The function's bytes as the file has them: at least 48 if the code is that long. They may go
    /// on behind the function's end.
    pub bytes: &'a [u8],
    /// The function's size according to its symbol. If the size is unknown, or larger than `bytes`,
    /// a jump into the middle of the function could go unseen. Then only the entry may be hooked.
    pub size: Option<u64>,
    /// Number of integer arguments: 1 for malloc and free; 2 for calloc, realloc, memalign and
    /// aligned_alloc; 3 for posix_memalign.
    pub arguments: u8,
    /// Whether a call with a null pointer does nothing, so that such calls may be missed.
    pub is_free: bool,
}

impl<'a> Function<'a> {
    /// The known bytes of the function, and whether these are all of its bytes and no others.
    fn own(&self) -> (&'a [u8], bool) {
        let size = self.size.and_then(|size| usize::try_from(size).ok());
        match size.and_then(|size| self.bytes.get(..size)) {
            Some(own) => (own, true),
            None => (self.bytes, false),
        }
    }
}

/// Further code of the target as its file has it. Jumps in this code may lead into a function.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// The address of its first byte in the target.
    pub address: u64,
    /// The bytes of the code.
    pub bytes: &'a [u8],
}

/// A place where one byte becomes `E9`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookPlace {
    /// The address of the byte that becomes `E9`.
    pub patch: u64,
    /// The byte at `patch` as the file has it.
    pub original: u8,
    /// The four bytes behind `patch` as the file has them. In memory, a byte at a boundary may be
    /// `CC`.
    pub following: [u8; 4],
    /// Which of the four bytes begin an instruction. Bit 0 stands for the first byte.
    pub boundaries: u8,
    /// Targets of the jump: first for the file's bytes, then for every combination of `int3` at the
    /// boundaries. All of them have to be mapped.
    pub landings: Vec<u64>,
    /// Address in the function at which [`original`], the copy of the function's first
    /// instructions, jumps back into the function. It lies behind the bytes that the jump covers,
    /// as far as these can be copied.
    pub resume: u64,
    /// The REX prefix before the byte, if the byte stands behind one.
    pub prefix: Option<u8>,
    /// Number of instructions between the entry and the hooked one.
    pub depth: usize,
    /// Effects that the trampoline undoes, in the order in which the instructions caused them.
    pub(crate) undo: Vec<Undo>,
}

/// One instruction's effect that a trampoline has to undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// The instruction pushed this register.
    Pop(iced_x86::Register),
    /// The instruction made the stack longer by this many bytes.
    Release(i32),
}

#[cfg(test)]
mod tests;
