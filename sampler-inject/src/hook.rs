//! One byte of each hooked function is written, and put back.
//!
//! Before a byte is written the code is compared with the file: the byte itself has to be the file's, the four behind it the file's or another tool's `int3` at the beginning of an instruction.
//! Before it is put back it has to be `E9`, and the four bytes as before. What is otherwise is left alone.

use crate::kernel::Tid;
use crate::memory::Memory;
use crate::record::Hook;
use anyhow::Result;
pub use sampler_common::injected::HookState as State;
use sampler_common::injected::JUMP;

/// What stands there.
///
/// # Errors
/// If the code cannot be read.
pub fn state(memory: &Memory, hook: &Hook) -> Result<State> {
    Ok(hook.state(memory.array(hook.patch)?))
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
