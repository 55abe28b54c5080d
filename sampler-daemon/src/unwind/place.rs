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

/// The last page of user space with four levels of page tables, where the kernel has its return probes' trampoline.
const TRAMPOLINE: u64 = (1 << 47) - 2 * 4096;

impl Address {
    /// Whether it is the kernel's trampoline in place of a return address.
    pub(super) fn is_trampoline(self) -> bool {
        let (Address::Return(address) | Address::Exact(address)) = self;
        address >= TRAMPOLINE
    }
}

/// What is known of a code address.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodePlace {
    pub(super) frame: Frame,
    pub(super) step: Step,
}

/// How to get from a frame to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// By call frame information: an index into the rules of an [`Image`](super::Image).
    Rule(u32),
    /// By rbp, in code of a file that call frame information does not cover: a guess.
    FramePointer,
    /// By rbp, in code that may become other code: a guess.
    Guess,
    /// The return address is on top of the stack: a guess.
    Return,
    /// None if rbp is zero: the code at a file's entry point, without call frame information.
    Entry,
    /// The kernel put a signal frame there.
    Signal,
    /// The uprobe trampoline: the true return address is lost.
    Lost,
}

/// The kernel's signal return code of glibc, musl and Go: `mov $15, %rax; syscall` (rt_sigreturn).
const SIGNAL_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];

/// What entry code does first (psABI, section 3.4.1): `xor %ebp, %ebp`, or `mov %rsp, %rdi` for what the kernel has put on the stack.
const ENTRY_CODE: [&[u8]; 2] = [&[0x31, 0xed], &[0x48, 0x89, 0xe7]];

/// Bytes that hold the first instruction of entry code, behind an `endbr64` too.
const ENTRY_BEGINNING: usize = 8;

/// Whether a caller is the code at its file's entry point, which nobody has called.
pub(super) fn is_entry(region: &Region, module: ModuleId, lookup: u64, modules: &Modules) -> bool {
    let offset = region.offset(lookup);
    let headers = modules.headers(module);
    let behind = headers.and_then(|it| it.behind_entry(it.svma(offset)?));
    let Some(entry) = behind.and_then(|behind| offset.checked_sub(behind)) else { return false };
    let mut code = [0; ENTRY_BEGINNING];
    modules.read_code(module, entry, &mut code)
        && ENTRY_CODE.iter().any(|begins| code.windows(begins.len()).any(|it| it == *begins))
}

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
