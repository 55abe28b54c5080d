//! Recognizes branches that no relevant call takes. A call is relevant if the sampler has to see
//! it.
//!
//! ```text
//! free:    pointer == 0             nothing is freed
//! free:    pointer & 15 != 0        no block begins there: allocators align blocks to 8 at least,
//!                                   or to 16 if they test four bits
//! any:     first argument < 0       no size and no address is as large (2^63 and more)
//! calloc:  count * size overflows   no block is as large
//! calloc:  count * size < 0         no block is as large
//! ```

use std::collections::HashMap;

use iced_x86::{
    Code, ConditionCode, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register,
};

use super::Function;
use super::walk::is_write;

/// The low bits of a pointer that are zero for every block, if the allocator tests them.
const MAX_ALIGNMENT_MASK: u64 = 15;

/// Content of a register that comes from the call's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    First,
    Second,
    /// First argument times second argument, if the product does not overflow.
    Product,
}

/// Meaning of the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flags {
    Unknown,
    /// A comparison of the value with zero.
    Compared(Value),
    /// A test of the lowest bits of the first argument.
    LowBits,
    /// Whether the product overflows.
    Overflow,
}

/// Known contents of registers and flags on the straight line from the entry.
pub(super) struct Conditions {
    is_free: bool,
    values: HashMap<Register, Value>,
    flags: Flags,
}

impl Conditions {
    pub(super) fn new(function: &Function) -> Conditions {
        let mut values = HashMap::from([(Register::RDI, Value::First)]);
        if function.arguments >= 2 {
            values.insert(Register::RSI, Value::Second);
        }
        Conditions { is_free: function.is_free, values, flags: Flags::Unknown }
    }

    /// Whether every relevant call continues behind this branch.
    pub(super) fn falls_through(&self, branch: &Instruction) -> bool {
        match (branch.condition_code(), self.flags) {
            (ConditionCode::e, Flags::Compared(Value::First))
            | (ConditionCode::ne, Flags::LowBits) => self.is_free,
            (ConditionCode::s, Flags::Compared(Value::First | Value::Product))
            | (ConditionCode::o, Flags::Overflow) => true,
            _ => false,
        }
    }

    /// Applies the effects of an instruction.
    pub(super) fn follow(&mut self, instruction: &Instruction, facts: &mut InstructionInfoFactory) {
        let flags = self.flags_after(instruction);
        let moved = self.moved(instruction);
        for used in facts.info(instruction).used_registers() {
            if is_write(used.access()) {
                self.values.remove(&used.register().full_register());
            }
        }
        self.values.extend(moved);
        self.flags = flags;
    }

    fn value(&self, instruction: &Instruction, operand: u32) -> Option<Value> {
        let is_register = instruction.op_kind(operand) == OpKind::Register;
        let register = is_register.then(|| instruction.op_register(operand))?;
        self.values.get(&register).copied()
    }

    /// The register that receives a known value from the instruction.
    fn moved(&self, instruction: &Instruction) -> Option<(Register, Value)> {
        match instruction.code() {
            Code::Mov_r64_rm64 | Code::Mov_rm64_r64 => {
                let value = self.value(instruction, 1)?;
                let is_register = instruction.op0_kind() == OpKind::Register;
                is_register.then(|| (instruction.op0_register(), value))
            }
            Code::Mul_rm64 => {
                self.is_product(instruction).then_some((Register::RAX, Value::Product))
            }
            _ => None,
        }
    }

    fn is_product(&self, multiplication: &Instruction) -> bool {
        let factors = (self.values.get(&Register::RAX), self.value(multiplication, 0));
        matches!(
            factors,
            (Some(Value::First), Some(Value::Second)) | (Some(Value::Second), Some(Value::First))
        )
    }

    fn flags_after(&self, instruction: &Instruction) -> Flags {
        if instruction.rflags_modified() == 0 {
            return self.flags;
        }
        match instruction.code() {
            Code::Test_rm64_r64 if instruction.op0_register() == instruction.op1_register() => {
                self.value(instruction, 0).map_or(Flags::Unknown, Flags::Compared)
            }
            Code::Cmp_rm64_imm8 if instruction.immediate(1) == 0 => {
                self.value(instruction, 0).map_or(Flags::Unknown, Flags::Compared)
            }
            Code::Mul_rm64 if self.is_product(instruction) => Flags::Overflow,
            _ if self.tests_low_bits(instruction) => Flags::LowBits,
            _ => Flags::Unknown,
        }
    }

    fn tests_low_bits(&self, instruction: &Instruction) -> bool {
        let is_test = instruction.mnemonic() == Mnemonic::Test
            && instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() != OpKind::Register;
        let register = instruction.op0_register();
        // The second byte of a register (such as `ah`) has other bits of the value.
        let is_low = !matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
        is_test
            && is_low
            && self.values.get(&register.full_register()) == Some(&Value::First)
            && instruction.immediate(1) <= MAX_ALIGNMENT_MASK
    }
}
