//! Where a USDT probe finds its arguments.

use crate::limits::MAX_SITES;

/// Number of arguments that are read at a probe.
pub const SITE_ARGUMENTS: usize = 3;

/// The kind of an [`Operand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OperandKind {
    /// The operand's `value`.
    Constant = 0,
    /// A register.
    Register = 1,
    /// Memory at register + (index register << shift) + `value`.
    Memory = 2,
}

/// The place of one argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Operand {
    /// Constant, or displacement in bytes.
    pub value: i64,
    /// Byte offset of the register in the kernel's `struct pt_regs`.
    pub register: u8,
    /// Byte offset of the index register, or [`Operand::NO_INDEX`].
    pub index: u8,
    /// Base-2 logarithm of the factor of the index.
    pub shift: u8,
    /// [`OperandKind`]
    pub kind: u8,
    /// Bits of a word above the argument: 0, 32, 48 or 56.
    pub unused_bits: u8,
    /// 1 if the argument's sign is extended.
    pub signed: u8,
    /// Explicit padding, 0.
    pub pad: [u8; 2],
}

impl Operand {
    /// In place of an index register.
    pub const NO_INDEX: u8 = u8::MAX;

    /// The argument's value, taken from a word of which it may be the lower part.
    #[inline(always)]
    pub const fn extend(self, word: u64) -> u64 {
        let bits = (self.unused_bits & 63) as u32;
        let shifted = word << bits;
        if self.signed != 0 { ((shifted as i64) >> bits) as u64 } else { shifted >> bits }
    }
}

/// The arguments of one probe, in order; value of the array `SITES`. Probes with the same argument
/// places share one entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Site {
    /// The arguments; missing ones are constants 0.
    pub arguments: [Operand; SITE_ARGUMENTS],
}

impl Site {
    /// In place of a number: each argument is in the register of a function's argument. No entry is
    /// looked up then.
    pub const FUNCTION_REGISTERS: u32 = (1 << 24) - 1;

    /// Offsets of `rdi`, `rsi` and `rdx` in `struct pt_regs` of x86-64.
    pub const REGISTERS: [u8; SITE_ARGUMENTS] = [112, 104, 96];

    /// Whether the first `count` arguments are whole words in the registers of a function's
    /// arguments.
    pub fn is_as_of_functions(&self, count: usize) -> bool {
        self.arguments.iter().zip(Site::REGISTERS).take(count).all(|(operand, register)| {
            operand.kind == OperandKind::Register as u8
                && operand.register == register
                && operand.unused_bits == 0
        })
    }
}

const _: () = assert!(MAX_SITES <= Site::FUNCTION_REGISTERS);
const _: () = assert!(size_of::<Operand>() == 16);
const _: () = assert!(size_of::<Site>() == 48);

#[cfg(test)]
mod tests {
    use super::{Operand, OperandKind, Site};

    #[test]
    fn a_function_has_its_arguments_whole_and_in_their_order() {
        let of = |register, unused_bits| Operand {
            register,
            index: Operand::NO_INDEX,
            kind: OperandKind::Register as u8,
            unused_bits,
            ..Operand::default()
        };
        let [rdi, rsi, rdx] = Site::REGISTERS.map(|register| of(register, 0));
        let is = |arguments, count| Site { arguments }.is_as_of_functions(count);
        assert!(is([rdi, rsi, rdx], 3) && is([rdi, Operand::default(), Operand::default()], 1));
        assert!(!is([rdi, rsi, Operand::default()], 3), "a constant");
        assert!(!is([rdi, rdx, rsi], 3) && !is([rsi, rsi, rdx], 1), "another register");
        assert!(!is([rdi, of(104, 32), rdx], 3), "half a word");
        let memory = Operand { kind: OperandKind::Memory as u8, ..rdi };
        assert!(!is([memory, rsi, rdx], 1), "memory");
    }

    #[test]
    fn arguments_are_extended() {
        let of = |unused_bits, signed| Operand { unused_bits, signed, ..Operand::default() };
        let word = 0xffff_ffff_8000_0080;
        assert_eq!(of(0, 0).extend(word), word);
        assert_eq!(of(32, 0).extend(word), 0x8000_0080);
        assert_eq!(of(32, 1).extend(word), 0xffff_ffff_8000_0080);
        assert_eq!(of(56, 0).extend(word), 0x80);
        assert_eq!(of(56, 1).extend(word), 0xffff_ffff_ffff_ff80);
        assert_eq!(of(48, 1).extend(0x17fff), 0x7fff);
    }
}
