//! Which instructions may run before the hook: those that a trampoline can undo, or whose traces nobody looks at.
//!
//! Branches may be passed as well if no call takes them that has to be seen: a call that frees nothing, or one that cannot
//! succeed. [`Conditions`] knows them.

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::conditions::Conditions;
use super::{Function, Undo};

/// The straight line from the entry, and what of it has to be undone.
pub(super) struct Walk {
    /// Registers whose value at the entry nobody needs, or that will be restored.
    free: Vec<Register>,
    undo: Vec<Undo>,
    conditions: Conditions,
    facts: InstructionInfoFactory,
}

/// Registers in which integer arguments arrive (System V calling convention).
const ARGUMENTS: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];
/// Registers that carry nothing into a function and that a function need not keep.
const SCRATCH: [Register; 3] = [Register::RAX, Register::R10, Register::R11];

impl Walk {
    pub(super) fn new(function: &Function) -> Walk {
        let unused = ARGUMENTS.iter().skip(usize::from(function.arguments));
        Walk {
            free: SCRATCH.iter().chain(unused).copied().collect(),
            undo: Vec::new(),
            conditions: Conditions::new(function),
            facts: InstructionInfoFactory::new(),
        }
    }

    /// What has to be undone of the instructions that were passed.
    pub(super) fn undo(&self) -> &[Undo] {
        &self.undo
    }

    /// Goes past an instruction; `false`: a hook must not lie behind it.
    pub(super) fn pass(&mut self, instruction: &Instruction) -> bool {
        let is_passed = match (instruction.code(), grows_stack(instruction)) {
            (Code::Push_r64, _) => self.pass_push(instruction.op0_register()),
            (_, Some(bytes)) => {
                self.undo.push(Undo::Release(bytes));
                true
            }
            _ if instruction.flow_control() == FlowControl::ConditionalBranch => {
                self.conditions.falls_through(instruction)
            }
            _ => is_known(instruction) && self.leaves_no_trace(instruction),
        };
        self.conditions.follow(instruction, &mut self.facts);
        is_passed
    }

    fn pass_push(&mut self, register: Register) -> bool {
        self.undo.push(Undo::Pop(register));
        self.free.push(register);
        register != Register::RSP
    }

    /// Whether an instruction writes no memory and only registers that are free.
    fn leaves_no_trace(&mut self, instruction: &Instruction) -> bool {
        let info = self.facts.info(instruction);
        let mut registers = info.used_registers().iter();
        info.used_memory().iter().all(|memory| !is_write(memory.access()))
            && registers.all(|used| {
                !is_write(used.access()) || self.free.contains(&used.register().full_register())
            })
    }
}

/// By how many bytes `sub rsp, n` (or `add rsp, -n`) makes the stack longer.
fn grows_stack(instruction: &Instruction) -> Option<i32> {
    let bytes = match instruction.code() {
        Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32 => instruction.immediate(1) as i64,
        Code::Add_rm64_imm8 | Code::Add_rm64_imm32 => {
            (instruction.immediate(1) as i64).wrapping_neg()
        }
        _ => return None,
    };
    let is_stack =
        instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RSP;
    i32::try_from(bytes).ok().filter(|bytes| is_stack && *bytes > 0)
}

/// Instructions that do nothing but compute: what is not listed is not passed.
fn is_known(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    instruction.flow_control() == FlowControl::Next
        && !instruction.is_privileged()
        && !instruction.has_rep_prefix()
        && matches!(
            instruction.mnemonic(),
            Mov | Movzx
                | Movsx
                | Movsxd
                | Lea
                | Cmp
                | Test
                | Xor
                | Or
                | And
                | Add
                | Sub
                | Adc
                | Sbb
                | Shl
                | Shr
                | Sar
                | Rol
                | Ror
                | Not
                | Neg
                | Inc
                | Dec
                | Mul
                | Imul
                | Bt
                | Bsf
                | Bsr
                | Lzcnt
                | Tzcnt
                | Cdq
                | Cqo
                | Cdqe
                | Seto
                | Sete
                | Setne
                | Nop
                | Endbr64
        )
}

/// Whether an access writes, or might.
pub(super) fn is_write(access: OpAccess) -> bool {
    !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
}
