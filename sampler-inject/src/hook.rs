//! Hooks: one byte of each hooked function is written, and later put back.
//!
//! Before a byte is written, the code is compared with the file. The byte itself has to be the
//! file's.
//! Each of the four bytes behind it has to be the file's, or another tool's `int3` at the beginning
//! of an instruction.
//! Before a byte is put back, it has to be `E9`, and the four bytes are checked in the same way.
//! Code that differs is left alone, and so is code that cannot be read: its library is unloaded.

use crate::kernel::Tid;
use crate::memory::Memory;
use crate::record::Hook;
use anyhow::Result;
pub use sampler_common::injected::HookState as State;
use sampler_common::injected::JUMP;

/// Reads whether a hook is in. A hook that a breakpoint of another tool hides counts as foreign.
#[must_use]
pub fn state(memory: &Memory, hook: &Hook) -> State {
    hook.read_state(|address, bytes| memory.read_into(address, bytes)).unwrap_or(State::Foreign)
}

/// Puts hooks in, in their order. Returns the hooks that are now in.
///
/// # Errors
/// If code cannot be written.
pub fn put_in<'h>(memory: &Memory, tid: Tid, hooks: &'h [Hook]) -> Result<Vec<&'h Hook>> {
    let mut are_in = Vec::new();
    for hook in hooks {
        match state(memory, hook) {
            State::Out => memory.write_code(tid, hook.patch, [hook.original, JUMP])?,
            State::In => {}
            State::Foreign => continue,
        }
        are_in.push(hook);
    }
    Ok(are_in)
}

/// Takes hooks out in reversed order: allocation functions first. Returns the hooks that stay
/// because another tool changed their code.
///
/// # Errors
/// If code cannot be written.
pub fn take_out<'h>(memory: &Memory, tid: Tid, hooks: &'h [Hook]) -> Result<Vec<&'h Hook>> {
    let mut foreign = Vec::new();
    for hook in hooks.iter().rev() {
        // A hidden hook is taken out, too.
        let state = memory.array(hook.patch).map_or(State::Foreign, |of| hook.state(of));
        match state {
            State::In => memory.write_code(tid, hook.patch, [JUMP, hook.original])?,
            State::Out => {}
            State::Foreign => foreign.push(hook),
        }
    }
    Ok(foreign)
}
