//! What the unwinder knows of a code address: where it lies and how to get to its caller.

use super::mapped::Region;
use super::module::{Frame, ModuleId};
use super::modules::Modules;

/// A code address in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Where a call returns to: the call itself lies before it.
    Return(u64),
    /// The instruction itself.
    Exact(u64),
}

impl Address {
    /// An address inside the instruction that the frame is at.
    pub(super) fn lookup(self) -> u64 {
        match self {
            Address::Return(address) => address.wrapping_sub(1),
            Address::Exact(address) => address,
        }
    }
}

/// What is known of a code address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) frame: Frame,
    pub(super) step: Step,
}

/// How to get from a frame to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// By call frame information: an index into the rules of an [`Image`](super::Image).
    Rule(u32),
    /// By rbp, in code that call frame information does not cover.
    FramePointer,
    /// The same in code that has none at all: a guess.
    Guess,
    /// The return address is on top of the stack.
    Return,
    /// The kernel put a signal frame there.
    Signal,
    /// The uprobe trampoline: the true return address is lost.
    Lost,
}

/// The kernel's signal return code of glibc, musl and Go: `mov $15, %rax; syscall` (rt_sigreturn).
const SIGNAL_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];

/// The frame of signal return code, if this is some. Nobody calls it, so it is looked up where it is: before it
/// lies another function.
pub(super) fn signal_return(
    region: &Region,
    module: ModuleId,
    address: Address,
    modules: &Modules,
) -> Option<Frame> {
    let (Address::Return(exact) | Address::Exact(exact)) = address;
    let offset = region.offset(exact);
    let mut code = [0; SIGNAL_RETURN.len()];
    let is_it = modules.read_code(module, offset, &mut code) && code == SIGNAL_RETURN;
    is_it.then_some(Frame { module, offset })
}
