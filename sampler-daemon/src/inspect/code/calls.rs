//! The direct targets of a function's code: its calls and jumps to code outside. Pure.
//!
//! Calls through a register or a table cannot be seen. Allocators call each other's public
//! functions directly, or through the linker's stubs.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

/// A target outside a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Target {
    /// The code at this address.
    Code(u64),
    /// The function whose address the loader puts at this address.
    Slot(u64),
}

/// Bytes of the linker's stub of an imported function.
pub(in crate::inspect) const STUB_BYTES: u64 = 16;

/// The targets of the function with this code, at this address. `is_whole`: the code is all of the
/// function. Otherwise the function ends no later than at the first return or the first jump out of
/// it.
pub(crate) fn targets(code: &[u8], address: u64, is_whole: bool) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let inside = address..address + code.len() as u64;
        let target = target(&instruction)
            .filter(|target| !matches!(target, Target::Code(at) if inside.contains(at)));
        targets.extend(target);
        let ends = match instruction.flow_control() {
            FlowControl::Return => true,
            FlowControl::UnconditionalBranch => target.is_some(),
            _ => false,
        };
        if ends && !is_whole {
            break;
        }
    }
    targets
}

/// The target of a function that only jumps there, with or without a few instructions before the
/// jump.
pub(in crate::inspect) fn thunk(code: &[u8], address: u64) -> Option<Target> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => {
                return target(&instruction);
            }
            _ => return None,
        }
    }
    None
}

/// The slot to which the linker's stub with this code, at this address, jumps.
pub(in crate::inspect) fn stub(code: &[u8], address: u64) -> Option<u64> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut instruction = decoder.decode();
    if instruction.code() == Code::Endbr64 {
        instruction = decoder.decode();
    }
    match target(&instruction) {
        Some(Target::Slot(slot)) => Some(slot),
        _ => None,
    }
}

fn target(instruction: &Instruction) -> Option<Target> {
    let leaves = matches!(
        instruction.flow_control(),
        FlowControl::Call
            | FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch
            | FlowControl::IndirectCall
            | FlowControl::IndirectBranch
    );
    if !leaves || instruction.is_invalid() {
        return None;
    }
    match instruction.op0_kind() {
        OpKind::NearBranch64 => Some(Target::Code(instruction.near_branch_target())),
        OpKind::Memory if instruction.is_ip_rel_memory_operand() => {
            Some(Target::Slot(instruction.ip_rel_memory_address()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_and_calls_out_of_a_function_are_found() {
        // call +0x10; je +2 (inside); jmp [rip+0x20]; ret
        let code =
            [0xe8, 0x10, 0, 0, 0, 0x74, 0x00, 0xff, 0x25, 0x20, 0, 0, 0, 0xc3, 0xe9, 0, 1, 0, 0];
        let all = targets(&code, 0x1000, true);
        assert_eq!(all, [Target::Code(0x1015), Target::Slot(0x102d), Target::Code(0x1113)]);
        // The code behind the return may be another function.
        assert_eq!(targets(&code, 0x1000, false).len(), 2);
        assert_eq!(targets(&[0xc3], 0x1000, true), []);
    }

    #[test]
    fn only_functions_that_just_jump_are_thunks() {
        // xor esi, esi; jmp +0x100
        assert_eq!(thunk(&[0x31, 0xf6, 0xe9, 0, 1, 0, 0], 0x1000), Some(Target::Code(0x1107)));
        // test rdi, rdi; je +2; jmp +0x100
        assert_eq!(thunk(&[0x48, 0x85, 0xff, 0x74, 2, 0xe9, 0, 1, 0, 0], 0x1000), None);
        assert_eq!(thunk(&[0xc3], 0x1000), None);
    }

    #[test]
    fn stubs_are_followed() {
        // endbr64; bnd jmp [rip+0x100]
        let code = [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0, 1, 0, 0, 0x0f, 0x1f, 0x44, 0, 0];
        assert_eq!(stub(&code, 0x2000), Some(0x210b));
        assert_eq!(stub(&code[4..], 0x2000), Some(0x2107));
        assert_eq!(stub(&[0x55], 0x2000), None);
    }
}
