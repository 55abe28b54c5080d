//! What code requests from the kernel, as far as constants in the code show it. Constants are
//! followed through registers and local variables in the order of the bytes.
//!
//! Reference: System V ABI for AMD64 (arguments of functions and of system calls),
//! `asm/unistd_64.h`, `asm-generic/mman-common.h`.

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::collections::HashMap;

/// Numbers of system calls.
const MMAP: u64 = 9;
pub(super) const MPROTECT: u64 = 10;
pub(super) const MREMAP: u64 = 25;
const NONE: u64 = u64::MAX;
const PROT_WRITE: u64 = 2;
const PROT_EXEC: u64 = 4;
/// All protection bits of a mapping.
const PROTECTIONS: u64 = 7;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
/// `MAP_SHARED` or `MAP_PRIVATE`.
const MAP_TYPE: u64 = 3;
/// Other known flags: `MAP_32BIT`, `MAP_GROWSDOWN`, `MAP_LOCKED`, `MAP_NORESERVE`, `MAP_POPULATE`,
/// `MAP_NONBLOCK`, `MAP_STACK`, `MAP_HUGETLB` and the page sizes of `MAP_HUGETLB`.
const MAP_OTHERS: u64 = 0x40 | 0x100 | 0xe000 | 0x7_0000 | 0x3f << 26;
const MREMAP_MAYMOVE: u64 = 1;
const MREMAP_FIXED: u64 = 2;
const MREMAP_DONTUNMAP: u64 = 4;

/// By an address: the system call that the function there makes, or that the function makes whose
/// address the loader puts there.
pub(super) type NumberOf<'a> = &'a dyn Fn(u64) -> Option<u64>;

/// What one request or several ask the kernel for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestedProtection {
    /// Writable anonymous memory, or another mapping, at a fixed address.
    pub(super) replaces: bool,
    /// Memory from which code can run.
    pub(super) makes_executable: bool,
}

impl RequestedProtection {
    pub(super) fn and(self, other: RequestedProtection) -> RequestedProtection {
        RequestedProtection {
            replaces: self.replaces | other.replaces,
            makes_executable: self.makes_executable | other.makes_executable,
        }
    }
}

/// Whether these are flags of `mmap` for anonymous memory at a fixed address.
pub(super) fn maps_over(flags: u64) -> bool {
    let is_fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
    let known = MAP_TYPE | MAP_ANONYMOUS | MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_OTHERS;
    is_fixed && flags & MAP_ANONYMOUS != 0 && flags & MAP_TYPE != 0 && flags & !known == 0
}

/// Whether these are flags of `mremap` to a fixed address.
pub(super) fn moves_over(flags: u64) -> bool {
    flags & !MREMAP_DONTUNMAP == MREMAP_MAYMOVE | MREMAP_FIXED
}

/// Where a constant may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ConstantPlace {
    /// A register, by its 64-bit name.
    Register(Register),
    /// A local variable: base register and displacement.
    Local(Register, u64),
}

/// The known constants at one instruction.
#[derive(Default)]
pub(super) struct Constants {
    known: HashMap<ConstantPlace, u64>,
    /// The constant of the last `push`, for a `pop`.
    pushed: Option<u64>,
}

impl Constants {
    /// Processes an instruction and returns its request.
    pub(super) fn pass(
        &mut self,
        instruction: &Instruction,
        number_of: NumberOf<'_>,
    ) -> RequestedProtection {
        match instruction.flow_control() {
            _ if instruction.code() == Code::Syscall => {
                let number = self.of(Register::RAX).unwrap_or(NONE);
                let requested = self.requested(number, [Register::RDX, Register::R10]);
                [Register::RAX, Register::RCX, Register::R11]
                    .iter()
                    .for_each(|of| self.forget(*of));
                requested
            }
            FlowControl::Call | FlowControl::IndirectCall => {
                let requested = self.called(instruction, number_of);
                self.known.retain(|place, _| matches!(place, ConstantPlace::Local(..)));
                requested
            }
            FlowControl::UnconditionalBranch => {
                // A tail call.
                let requested = self.called(instruction, number_of);
                self.known.clear();
                requested
            }
            FlowControl::Return | FlowControl::IndirectBranch => {
                self.known.clear();
                RequestedProtection::default()
            }
            _ => {
                self.assign(instruction);
                RequestedProtection::default()
            }
        }
    }

    /// The number of the system call that this instruction makes. Any other instruction is
    /// processed.
    pub(super) fn number(&mut self, instruction: &Instruction) -> Option<u64> {
        if instruction.code() == Code::Syscall {
            return self.of(Register::RAX);
        }
        self.assign(instruction);
        None
    }

    fn of(&self, register: Register) -> Option<u64> {
        self.known.get(&ConstantPlace::Register(register)).copied()
    }

    fn forget(&mut self, register: Register) {
        self.known.remove(&ConstantPlace::Register(register.full_register()));
    }

    /// The request of the system call with this number, whose protection and flags are in these
    /// registers.
    fn requested(&self, number: u64, [protection, flags]: [Register; 2]) -> RequestedProtection {
        let protection = self.of(protection).filter(|of| *of <= PROTECTIONS).unwrap_or(0);
        let flags = self.of(flags).unwrap_or(0);
        let replaces = match number {
            MMAP => maps_over(flags) && protection & PROT_WRITE != 0,
            MREMAP => moves_over(flags),
            _ => false,
        };
        let protects = number == MMAP || number == MPROTECT;
        RequestedProtection { replaces, makes_executable: protects && protection & PROT_EXEC != 0 }
    }

    /// The request of a called function: `mmap` by its arguments; `mprotect` or `mremap` by
    /// `number_of`; `syscall` and the like by their first argument, the number.
    fn called(&self, instruction: &Instruction, number_of: NumberOf<'_>) -> RequestedProtection {
        let target = match instruction.op0_kind() {
            OpKind::NearBranch64 => instruction.near_branch_target(),
            OpKind::Memory if instruction.is_ip_rel_memory_operand() => {
                instruction.ip_rel_memory_address()
            }
            _ => 0,
        };
        let by_number = self.of(Register::RDI).unwrap_or(NONE);
        let has_no_file = self.of(Register::R8).is_some_and(|file| file as u32 == u32::MAX);
        let protects = self.of(Register::RDX).is_some_and(|of| of & PROT_EXEC != 0);
        let moves = self.of(Register::RCX).is_some_and(moves_over);
        let number = match () {
            () if has_no_file => MMAP,
            () if protects || moves => number_of(target).unwrap_or(NONE),
            () => NONE,
        };
        self.requested(by_number, [Register::RCX, Register::R8])
            .and(self.requested(number, [Register::RDX, Register::RCX]))
    }

    fn assign(&mut self, instruction: &Instruction) {
        let place = match (instruction.op_count(), instruction.op0_kind()) {
            (1.., OpKind::Register) => {
                Some(ConstantPlace::Register(instruction.op0_register().full_register()))
            }
            (1.., OpKind::Memory) => local(instruction),
            _ => None,
        };
        let value = match instruction.mnemonic() {
            Mnemonic::Mov => self.source(instruction),
            Mnemonic::Xor if instruction.op0_register() == instruction.op1_register() => Some(0),
            Mnemonic::Or if is_immediate(instruction.op1_kind()) => {
                // or r, -1
                let all = instruction.immediate(1);
                (all as u32 == u32::MAX).then_some(all)
            }
            Mnemonic::Push => {
                let is_constant = is_immediate(instruction.op0_kind());
                self.pushed = is_constant.then(|| instruction.immediate(0));
                return;
            }
            Mnemonic::Pop => self.pushed.take(),
            Mnemonic::Cmp | Mnemonic::Test => return,
            _ => None,
        };
        match (place, value) {
            (Some(place), Some(value)) => {
                self.known.insert(place, value);
            }
            (Some(place), None) => {
                self.known.remove(&place);
            }
            (None, _) => {}
        }
    }

    fn source(&self, instruction: &Instruction) -> Option<u64> {
        match instruction.op1_kind() {
            OpKind::Register => self.of(instruction.op1_register().full_register()),
            OpKind::Memory => self.known.get(&local(instruction)?).copied(),
            kind => is_immediate(kind).then(|| instruction.immediate(1)),
        }
    }
}

fn is_immediate(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Immediate8
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
    )
}

fn local(instruction: &Instruction) -> Option<ConstantPlace> {
    let base = instruction.memory_base();
    let is_local = matches!(base, Register::RBP | Register::RSP)
        && instruction.memory_index() == Register::None;
    is_local.then(|| ConstantPlace::Local(base, instruction.memory_displacement64()))
}
