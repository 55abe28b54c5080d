//! Decides which instructions may run before the hook: those that a trampoline can undo, or whose
//! effects nothing reads.
//!
//! A conditional branch may run before the hook, too, if no relevant call takes it. A call that
//! frees nothing, or that cannot succeed, is not relevant. [`Conditions`] recognizes such branches.

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::conditions::Conditions;
use super::{Function, Undo};

/// The instructions that run from the entry to the hook, and their effects that have to be undone.
pub(super) struct Walk {
    /// Registers whose value at the entry is not needed, or will be restored.
    free: Vec<Register>,
    undo: Vec<Undo>,
    conditions: Conditions,
    facts: InstructionInfoFactory,
}

/// Registers in which integer arguments arrive (System V calling convention).
const ARGUMENTS: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];
/// Registers that carry no argument and that a function need not preserve.
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

    /// Effects of the passed instructions that have to be undone.
    pub(super) fn undo(&self) -> &[Undo] {
        &self.undo
    }

    /// Adds the next instruction. Returns false if a hook must not lie behind the instruction.
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

    /// Whether an instruction writes no memory, and only free registers.
    fn leaves_no_trace(&mut self, instruction: &Instruction) -> bool {
        let info = self.facts.info(instruction);
        let mut registers = info.used_registers().iter();
        info.used_memory().iter().all(|memory| !is_write(memory.access()))
            && registers.all(|used| {
                !is_write(used.access()) || self.free.contains(&used.register().full_register())
            })
    }
}

/// Number of bytes by which `sub rsp, n` (or `add rsp, -n`) makes the stack longer.
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

/// Whether an instruction only computes. No hook lies behind an instruction that is not listed.
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

/// Whether an access writes, or may write.
pub(super) fn is_write(access: OpAccess) -> bool {
    !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
}
