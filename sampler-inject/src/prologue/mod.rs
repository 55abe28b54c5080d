//! Where a function is hooked by one byte, and the machine code around that byte.
//!
//! One byte of an instruction becomes `E9`, the opcode of `jmp rel32`. The four bytes behind it stay as they are and
//! become the distance of the jump:
//!
//! ```text
//! plain:  E9 b1 b2 b3 b4        leads to patch + 5 + i32(b1 b2 b3 b4)
//! REX:    4x E9 b2 b3 b4 b5     leads to patch + 5 + i32(b2 b3 b4 b5); E9 ignores the REX prefix in front of it
//! ```
//!
//! A trampoline lies where the jump leads. Another tool's `int3` may stand at any instruction boundary within the four
//! bytes and changes the distance. A trampoline therefore lies at the landing of every such combination, too.
//!
//! A place may lie behind the entry. The instructions in front of it then run in place first, and the trampoline undoes
//! them: it pops what they pushed. [`original`] runs them again from a copy.
//!
//! The caller finds the functions, maps memory at the landings and writes the byte.

mod code;
mod conditions;
mod elsewhere;
mod landings;
mod places;
mod walk;

pub use code::{Error, original, trampoline, trampoline_length};
pub use places::{places, places_with};

/// One function of the target.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    /// The address of its entry in the target.
    pub entry: u64,
    /// Its bytes as the file has them: at least 48 where there are as many. They may go on behind its end.
    pub bytes: &'a [u8],
    /// Its size as its symbol has it. A jump to a place behind the entry could go unseen if the size is unknown, or if `bytes`
    /// hold less: then only the entry is a place.
    pub size: Option<u64>,
    /// Integer arguments: 1 for malloc and free; 2 for calloc, realloc, memalign and aligned_alloc; 3 for
    /// posix_memalign.
    pub arguments: u8,
    /// Whether a call with a null pointer does nothing, so that such calls may be missed.
    pub is_free: bool,
}

impl<'a> Function<'a> {
    /// The bytes that are the function's own, and whether they are all.
    fn own(&self) -> (&'a [u8], bool) {
        let size = self.size.and_then(|size| usize::try_from(size).ok());
        match size.and_then(|size| self.bytes.get(..size)) {
            Some(own) => (own, true),
            None => (self.bytes, false),
        }
    }
}

/// Further code of the target as its file has it. Its jumps may lead into a function.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// The address of its first byte in the target.
    pub address: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// A place where one byte becomes `E9`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookPlace {
    /// The address of the byte that becomes `E9`.
    pub patch: u64,
    /// That byte as the file has it.
    pub original: u8,
    /// The four bytes behind it as the file has them. In memory any of those at a boundary may be `CC`.
    pub following: [u8; 4],
    /// Which of the four bytes begin an instruction: bit 0 stands for the first of them.
    pub boundaries: u8,
    /// Where the jump leads: for the file's bytes first, then for every combination of `int3` at the boundaries. All have to be mapped.
    pub landings: Vec<u64>,
    /// The first address that is executed in place again: behind the bytes that the jump covers, where these can be copied.
    pub resume: u64,
    /// Whether the byte stands behind a REX prefix.
    pub has_prefix: bool,
    /// Instructions between the entry and the hooked one.
    pub depth: usize,
    /// What the trampoline undoes, in the order in which the instructions did it.
    pub(crate) undo: Vec<Undo>,
}

/// What a trampoline has to undo of one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// The instruction pushed this register.
    Pop(iced_x86::Register),
    /// The instruction made the stack longer by so many bytes.
    Release(i32),
}

#[cfg(test)]
mod tests;
