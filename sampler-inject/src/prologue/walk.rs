//! Which instructions may run before the hook: those that a trampoline can undo, or whose traces nobody looks at.

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
    RflagsBits,
};

use super::{Function, Undo};

/// The straight line from the entry, and what of it has to be undone.
pub(super) struct Walk {
    /// Registers whose value at the entry nobody needs, or that will be restored.
    free: Vec<Register>,
    undo: Vec<Undo>,
    is_free: bool,
    /// Whether the zero flag says that the first argument is null.
    has_tested_null: bool,
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
            is_free: function.is_free,
            has_tested_null: false,
            facts: InstructionInfoFactory::new(),
        }
    }

    /// What has to be undone of the instructions that were passed.
    pub(super) fn undo(&self) -> &[Undo] {
        &self.undo
    }

    /// Goes past an instruction; `false`: a hook must not lie behind it.
    pub(super) fn pass(&mut self, instruction: &Instruction) -> bool {
        match instruction.code() {
            Code::Push_r64 => self.pass_push(instruction.op0_register()),
            Code::Je_rel8_64 | Code::Je_rel32_64 => self.is_free && self.has_tested_null,
            _ if grows_stack(instruction).is_some() => {
                self.undo.extend(grows_stack(instruction).map(Undo::Release));
                self.has_tested_null = false;
                true
            }
            _ => self.pass_plain(instruction),
        }
    }

    fn pass_push(&mut self, register: Register) -> bool {
        self.undo.push(Undo::Pop(register));
        self.free.push(register);
        register != Register::RSP
    }

    /// An instruction that writes no memory and only registers that are free.
    fn pass_plain(&mut self, instruction: &Instruction) -> bool {
        if tests_first_argument(instruction) {
            self.has_tested_null = true;
            return true;
        }
        if instruction.rflags_modified() & RflagsBits::ZF != 0 {
            self.has_tested_null = false;
        }
        is_known(instruction) && self.leaves_no_trace(instruction)
    }

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

fn tests_first_argument(instruction: &Instruction) -> bool {
    let is_first = |operand| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand) == Register::RDI
    };
    match instruction.code() {
        Code::Test_rm64_r64 => is_first(0) && is_first(1),
        Code::Cmp_rm64_imm8 => is_first(0) && instruction.immediate(1) == 0,
        _ => false,
    }
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
                | Imul
                | Bt
                | Bsf
                | Bsr
                | Lzcnt
                | Tzcnt
                | Cdq
                | Cqo
                | Cdqe
                | Nop
                | Endbr64
        )
}

fn is_write(access: OpAccess) -> bool {
    match access {
        OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess => false,
        // Everything else writes or might.
        _ => true,
    }
}
