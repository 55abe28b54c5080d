//! The machine code around a hook: its trampolines, and a copy of the original function.

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, Encoder, FlowControl,
    IcedError, Instruction, InstructionBlock, MemoryOperand, Register,
};

use super::{Function, HookPlace, Undo};

/// `jmp [rip + slot]`.
const JUMP_THROUGH_SLOT_BYTES: u64 = 6;

/// Errors of encoding.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that the code refers to is more than 2 GiB away, or cannot be encoded.
    #[error("code for the hook at {patch:#x} cannot be made at {address:#x}: {reason}")]
    Encode {
        /// The hook's byte.
        patch: u64,
        /// Address at which the code should begin.
        address: u64,
        /// The encoder's reason.
        reason: IcedError,
    },
    /// The function is not the one in which the place was found.
    #[error("the hook at {patch:#x} does not belong to the function at {entry:#x}")]
    Foreign {
        /// The hook's byte.
        patch: u64,
        /// Address of the function.
        entry: u64,
    },
}

/// Encodes a trampoline of `place` at `address`. It undoes the instructions that ran in place, and
/// jumps through the 8-byte pointer at `slot`.
///
/// # Errors
/// If `slot` is more than 2 GiB away.
pub fn trampoline(place: &HookPlace, address: u64, slot: u64) -> Result<Vec<u8>, Error> {
    let encode = || -> Result<Vec<u8>, IcedError> {
        let mut encoder = Encoder::new(64);
        let mut next = address;
        for instruction in undoing(&place.undo)? {
            next += encoder.encode(&instruction, next)? as u64;
        }
        let through = MemoryOperand::with_base_displ(Register::RIP, slot as i64);
        encoder.encode(&Instruction::with1(Code::Jmp_rm64, through)?, next)?;
        Ok(encoder.take_buffer())
    };
    encode().map_err(|reason| Error::Encode { patch: place.patch, address, reason })
}

/// Size in bytes of each trampoline of `place`.
pub fn trampoline_length(place: &HookPlace) -> u64 {
    length(&place.undo)
}

/// Size in bytes of a trampoline that undoes `undo`.
pub(super) fn length(undo: &[Undo]) -> u64 {
    let mut encoder = Encoder::new(64);
    let pops: usize = undoing(undo)
        .unwrap_or_default()
        .iter()
        .map(|instruction| encoder.encode(instruction, 0).unwrap_or_default())
        .sum();
    pops as u64 + JUMP_THROUGH_SLOT_BYTES
}

/// Encodes the original function at `address`: its instructions up to the place's `resume`, then a
/// jump to `resume`.
/// A call of this code is a call of the function without the hook.
///
/// # Errors
/// If the instructions refer to data more than 2 GiB away from `address`, or the place is not one
/// of `function`.
pub fn original(place: &HookPlace, function: &Function, address: u64) -> Result<Vec<u8>, Error> {
    let mut decoder = Decoder::with_ip(64, function.bytes, function.entry, DecoderOptions::NONE);
    let mut instructions = Vec::new();
    let mut last = Instruction::default();
    while decoder.ip() < place.resume && decoder.can_decode() {
        last = decoder.decode();
        instructions.push(last);
    }
    if last.next_ip() != place.resume || instructions.iter().any(Instruction::is_invalid) {
        return Err(Error::Foreign { patch: place.patch, entry: function.entry });
    }
    let error = |reason| Error::Encode { patch: place.patch, address, reason };
    if matches!(last.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch) {
        instructions
            .push(Instruction::with_branch(Code::Jmp_rel32_64, place.resume).map_err(error)?);
    }
    let block = InstructionBlock::new(&instructions, address);
    BlockEncoder::encode(64, block, BlockEncoderOptions::NONE)
        .map(|encoded| encoded.code_buffer)
        .map_err(error)
}

/// Instructions that undo `undo` in reversed order.
fn undoing(undo: &[Undo]) -> Result<Vec<Instruction>, IcedError> {
    undo.iter()
        .rev()
        .map(|done| match *done {
            Undo::Pop(register) => Instruction::with1(Code::Pop_r64, register),
            Undo::Release(bytes) => {
                let behind = MemoryOperand::with_base_displ(Register::RSP, i64::from(bytes));
                Instruction::with2(Code::Lea_r64_m, Register::RSP, behind)
            }
        })
        .collect()
}
