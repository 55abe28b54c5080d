//! One byte of each hooked function is written, and put back.
//!
//! Before a byte is written the code is compared with the file: the byte itself has to be the file's, the four behind it the file's or another tool's `int3` at the beginning of an instruction.
//! Before it is put back it has to be `E9`, and the four bytes as before. What is otherwise is left alone.

use crate::kernel::Tid;
use crate::memory::Memory;
use crate::record::Hook;
use anyhow::Result;

/// `jmp rel32`
const JUMP: u8 = 0xe9;
/// `int3`
const BREAKPOINT: u8 = 0xcc;

/// What stands where a hook belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The file's bytes.
    Out,
    /// The hook.
    In,
    /// Something else.
    Foreign,
}

/// What stands there.
///
/// # Errors
/// If the code cannot be read.
pub fn state(memory: &Memory, hook: &Hook) -> Result<State> {
    let [byte, following @ ..] = memory.array::<5>(hook.patch)?;
    Ok(judge(hook, byte, following))
}

fn judge(hook: &Hook, byte: u8, following: [u8; 4]) -> State {
    let is_expected = |at: usize| {
        let may_be_breakpoint = hook.boundaries & 1 << at != 0;
        following[at] == hook.following[at] || may_be_breakpoint && following[at] == BREAKPOINT
    };
    match (0..4).all(is_expected) {
        true if byte == hook.original => State::Out,
        true if byte == JUMP => State::In,
        _ => State::Foreign,
    }
}

/// Puts hooks in, in their order. Those that are in now.
///
/// # Errors
/// If code cannot be read or written.
pub fn put_in<'h>(memory: &Memory, tid: Tid, hooks: &'h [Hook]) -> Result<Vec<&'h Hook>> {
    let mut are_in = Vec::new();
    for hook in hooks {
        match state(memory, hook)? {
            State::Out => memory.write_code(tid, hook.patch, JUMP)?,
            State::In => {}
            State::Foreign => continue,
        }
        are_in.push(hook);
    }
    Ok(are_in)
}

/// Takes hooks out, in reversed order: allocators first. Those that could not be taken out, since something else stands there.
///
/// # Errors
/// If code cannot be read or written.
pub fn take_out<'h>(memory: &Memory, tid: Tid, hooks: &'h [Hook]) -> Result<Vec<&'h Hook>> {
    let mut foreign = Vec::new();
    for hook in hooks.iter().rev() {
        match state(memory, hook)? {
            State::In => memory.write_code(tid, hook.patch, hook.original)?,
            State::Out => {}
            State::Foreign => foreign.push(hook),
        }
    }
    Ok(foreign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_there() {
        let following = [0x54, 0x55, 0x48, 0x83];
        let hook = Hook {
            name: "malloc".to_owned(),
            patch: 0,
            original: 0x41,
            following,
            // The first and the third begin an instruction.
            boundaries: 0b101,
        };
        assert_eq!(judge(&hook, 0x41, following), State::Out);
        assert_eq!(judge(&hook, JUMP, following), State::In);
        assert_eq!(judge(&hook, BREAKPOINT, following), State::Foreign);
        assert_eq!(judge(&hook, JUMP, [BREAKPOINT, 0x55, BREAKPOINT, 0x83]), State::In);
        assert_eq!(judge(&hook, JUMP, [0x54, BREAKPOINT, 0x48, 0x83]), State::Foreign);
        assert_eq!(judge(&hook, 0x41, [0x54, 0x55, 0x48, 0x84]), State::Foreign);
    }
}
