//! One eBPF instruction, as far as the checks need to understand it.
//!
//! Encoding: RFC 9669 (BPF instruction set architecture), sections 3 to 5.

/// Size of one encoded slot in bytes.
pub(crate) const SLOT_BYTES: usize = 8;

/// The bit of an atomic operation's immediate that asks for the old value.
const FETCH: i32 = 0x01;

/// One encoded slot. A 64-bit immediate takes two slots, the second with code 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    /// Operation: class in the low three bits.
    pub(crate) code: u8,
    /// Destination register, 0 to 10.
    pub(crate) destination: u8,
    /// Source register, or the kind of call or immediate.
    pub(crate) source: u8,
    /// Jump distance in slots, or memory offset in bytes.
    pub(crate) offset: i16,
    /// Immediate operand.
    pub(crate) immediate: i32,
}

/// Effect of an instruction on control flow and registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// `destination = immediate`, sign-extended or not as the instruction says.
    Constant(u64),
    /// The two-slot load of a 64-bit constant or, with a source, of an address.
    WideConstant,
    /// `destination = source`, all 64 bits.
    Copy,
    /// Writes something else to `destination`.
    Writes,
    /// Writes memory only.
    Stores,
    /// An atomic operation on memory.
    Atomic(Atomic),
    /// Calls a helper, a kernel function or another function of the object.
    Call,
    /// Jumps always, by this many slots after the next one.
    Jump(i64),
    /// Jumps or not, by this many slots after the next one.
    Branch(i64),
    /// Returns register 0.
    Exit,
}

/// Kind of an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atomic {
    /// Changes memory without returning the old value.
    Plain,
    /// Puts the old value into the source register.
    Fetch,
    /// Puts the old value into register 0.
    CompareExchange,
    /// Not an instruction of version 3.
    Illegal,
}

impl Instruction {
    /// Reads one slot.
    pub(crate) fn decode(slot: [u8; SLOT_BYTES]) -> Self {
        let [code, registers, o0, o1, i0, i1, i2, i3] = slot;
        Self {
            code,
            destination: registers & 0x0f,
            source: registers >> 4,
            offset: i16::from_le_bytes([o0, o1]),
            immediate: i32::from_le_bytes([i0, i1, i2, i3]),
        }
    }

    /// Effect of the instruction.
    pub(crate) fn effect(self) -> Effect {
        match self.code {
            0x18 => Effect::WideConstant,
            0xb7 => Effect::Constant(i64::from(self.immediate) as u64),
            0xb4 => Effect::Constant(u64::from(self.immediate as u32)),
            // With an offset this code is a sign extension of a part.
            0xbf if self.offset == 0 => Effect::Copy,
            0x05 => Effect::Jump(i64::from(self.offset)),
            0x06 => Effect::Jump(i64::from(self.immediate)),
            0x85 | 0x8d => Effect::Call,
            0x95 => Effect::Exit,
            0xc3 | 0xdb => Effect::Atomic(atomic(self.immediate)),
            0xcb | 0xd3 => Effect::Atomic(Atomic::Illegal),
            code => match code & 0x07 {
                0x02 | 0x03 => Effect::Stores,
                0x05 | 0x06 => Effect::Branch(i64::from(self.offset)),
                _ => Effect::Writes,
            },
        }
    }
}

fn atomic(operation: i32) -> Atomic {
    match operation {
        // add, or, and, xor
        0x00 | 0x40 | 0x50 | 0xa0 => Atomic::Plain,
        0x01 | 0x41 | 0x51 | 0xa1 => Atomic::Fetch,
        // Exchange and compare-exchange always carry the fetch bit.
        _ if operation == 0xe0 | FETCH => Atomic::Fetch,
        _ if operation == 0xf0 | FETCH => Atomic::CompareExchange,
        _ => Atomic::Illegal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(slot: [u8; 8]) -> Effect {
        Instruction::decode(slot).effect()
    }

    #[test]
    fn fields_of_an_instruction_are_decoded() {
        // if r2 > 0x11 goto -4
        let branch = Instruction::decode([0x25, 0x02, 0xfc, 0xff, 0x11, 0, 0, 0]);
        assert_eq!((branch.destination, branch.offset, branch.immediate), (2, -4, 0x11));
        assert_eq!(branch.effect(), Effect::Branch(-4));
        // r8 = *(u64 *)(r1 + 0x70)
        let load = Instruction::decode([0x79, 0x18, 0x70, 0, 0, 0, 0, 0]);
        assert_eq!((load.destination, load.source, load.effect()), (8, 1, Effect::Writes));
    }

    #[test]
    fn moves_are_decoded_by_their_effect() {
        assert_eq!(effect([0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]), Effect::Constant(u64::MAX));
        assert_eq!(effect([0xb4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]), Effect::Constant(0xffff_ffff));
        assert_eq!(effect([0xbf, 0x60, 0, 0, 0, 0, 0, 0]), Effect::Copy);
        assert_eq!(effect([0xbf, 0x60, 8, 0, 0, 0, 0, 0]), Effect::Writes);
        assert_eq!(effect([0x95, 0, 0, 0, 0, 0, 0, 0]), Effect::Exit);
    }

    #[test]
    fn atomics_are_decoded_by_their_operation() {
        for (operation, wanted) in [
            (0x00, Atomic::Plain),
            (0x01, Atomic::Fetch),
            (0xa1, Atomic::Fetch),
            (0xe1, Atomic::Fetch),
            (0xf1, Atomic::CompareExchange),
            (0xe0, Atomic::Illegal),
            (0x10, Atomic::Illegal),
        ] {
            for code in [0xdb, 0xc3] {
                let slot = [code, 0x10, 0, 0, operation, 0, 0, 0];
                assert_eq!(effect(slot), Effect::Atomic(wanted), "{operation:#x}");
            }
        }
    }
}
