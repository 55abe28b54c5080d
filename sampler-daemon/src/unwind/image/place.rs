//! Where a code address is, and how to step to its caller.

use super::mapped::Region;
use crate::unwind::module::{Frame, ModuleId};
use crate::unwind::modules::Modules;

/// A code address in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// The return address of a call. The call itself is before it.
    Return(u64),
    /// The instruction itself.
    Exact(u64),
}

impl Address {
    /// An address inside the instruction of the frame.
    pub(in crate::unwind) fn lookup(self) -> u64 {
        match self {
            Address::Return(address) => address.wrapping_sub(1),
            Address::Exact(address) => address,
        }
    }
}

/// Start of the last page of user space with four levels of page tables. The kernel has the
/// trampoline of its return probes there.
const TRAMPOLINE: u64 = (1 << 47) - 2 * 4096;

impl Address {
    /// Whether the address is the kernel's trampoline instead of a return address.
    pub(super) fn is_trampoline(self) -> bool {
        let (Address::Return(address) | Address::Exact(address)) = self;
        address >= TRAMPOLINE
    }
}

/// The frame of a code address, and the step to its caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodePlace {
    pub(in crate::unwind) frame: Frame,
    pub(in crate::unwind) step: Step,
}

/// How to step from a frame to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// By call frame information: an index into the rules of an [`Image`](crate::unwind::Image).
    Rule(u32),
    /// By rbp, in code of a file that call frame information does not cover: a guess.
    FramePointer,
    /// By rbp, in code that may become other code: a guess.
    Guess,
    /// The return address is on top of the stack: a guess.
    Return,
    /// Code at a file's entry point without call frame information: no caller if rbp is zero,
    /// otherwise by rbp.
    Entry,
    /// By the signal frame that the kernel wrote.
    Signal,
    /// The uprobe trampoline. The true return address is lost.
    Lost,
}

/// The signal return code of glibc, musl and Go: `mov $15, %rax; syscall` (rt_sigreturn).
const SIGNAL_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];

/// First instructions of entry code (psABI, section 3.4.1): `xor %ebp, %ebp`, or `mov %rsp, %rdi`
/// for the words that the kernel has put on the stack.
const ENTRY_CODE: [&[u8]; 2] = [&[0x31, 0xed], &[0x48, 0x89, 0xe7]];

/// Bytes that hold the first instruction of entry code, even behind an `endbr64`.
const ENTRY_BEGINNING: usize = 8;

/// Whether a caller is the code at its file's entry point, which no function has called.
pub(super) fn is_entry(region: &Region, module: ModuleId, lookup: u64, modules: &Modules) -> bool {
    let offset = region.offset(lookup);
    let headers = modules.headers(module);
    let behind = headers.and_then(|it| it.behind_entry(it.svma(offset)?));
    let Some(entry) = behind.and_then(|behind| offset.checked_sub(behind)) else { return false };
    let mut code = [0; ENTRY_BEGINNING];
    modules.read_code(module, entry, &mut code)
        && ENTRY_CODE.iter().any(|begins| code.windows(begins.len()).any(|it| it == *begins))
}

/// The frame of signal return code, if the address is such code. No function calls that code, so
/// the look-up uses the exact address: before it is another function.
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
