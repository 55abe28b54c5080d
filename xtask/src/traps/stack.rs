//! Finds stacks that are too deep for old kernels. The verifier adds up the frames of functions
//! that call one another.
//! Only newer kernels (from 6.13 on) give programs like the session's a stack of their own.

use anyhow::{Result, bail};

use super::DECIDES;
use super::instruction::{Effect, Instruction};
use super::program::Program;

/// Maximum size of all frames of a chain of calls (`MAX_BPF_STACK` in `include/linux/filter.h`).
const MAX_STACK_BYTES: u32 = 512;
/// Unit to which a frame's size is rounded up (`check_max_stack_depth_subprog` in
/// `kernel/bpf/verifier.c`).
const STACK_UNIT_BYTES: u32 = 32;
/// The frame pointer.
const FRAME: u8 = 10;
/// `destination += immediate`, all 64 bits.
const ADD: u8 = 0x07;

/// Checks the deepest chain of calls of every program that old kernels load. Returns the size of
/// the deepest chain, in bytes.
///
/// # Errors
/// If a chain is too deep; the text names its functions with their frames.
pub(crate) fn check(program: &Program) -> Result<u32> {
    let mut deepest = 0;
    for (index, function) in program.functions.iter().enumerate() {
        // Functions in `.text` are only called. The session's program is only loaded by kernels
        // that give it a stack of its own.
        if function.section == ".text" || function.name.starts_with(DECIDES) {
            continue;
        }
        let chain = chain(program, index, &mut vec![false; program.functions.len()])?;
        let bytes: u32 = chain.iter().map(|(_, frame)| frame).sum();
        if bytes > MAX_STACK_BYTES {
            let frames: Vec<String> = chain
                .iter()
                .map(|(index, frame)| format!("{} ({frame})", program.functions[*index].name))
                .collect();
            bail!("{bytes} bytes of stack, more than {MAX_STACK_BYTES}: {}", frames.join(" → "));
        }
        deepest = deepest.max(bytes);
    }
    Ok(deepest)
}

/// The deepest chain of calls that begins at a function: indexes and frame sizes.
fn chain(program: &Program, index: usize, above: &mut [bool]) -> Result<Vec<(usize, u32)>> {
    let function = &program.functions[index];
    if above[index] {
        bail!("{} calls itself", function.name);
    }
    above[index] = true;
    let mut deepest: Vec<(usize, u32)> = Vec::new();
    for callee in function.calls.values() {
        let below = chain(program, *callee, above)?;
        let sum = |chain: &[(usize, u32)]| chain.iter().map(|(_, frame)| frame).sum::<u32>();
        if sum(&below) > sum(&deepest) {
            deepest = below;
        }
    }
    above[index] = false;
    deepest.insert(
        0,
        (index, frame(&function.instructions).max(1).next_multiple_of(STACK_UNIT_BYTES)),
    );
    Ok(deepest)
}

/// Number of bytes below the frame pointer that a function uses, according to the lowest address
/// that it takes or accesses.
fn frame(instructions: &[Instruction]) -> u32 {
    let mut lowest = 0;
    // Registers that hold the frame pointer itself.
    let mut holds = [false; 16];
    for instruction in instructions {
        let to = usize::from(instruction.destination);
        let is_memory = matches!(instruction.code & 0x07, 0x01..=0x03);
        let base = if instruction.code & 0x07 == 0x01 { instruction.source } else { to as u8 };
        if is_memory && (base == FRAME || holds[usize::from(base)]) {
            lowest = lowest.min(i32::from(instruction.offset));
        }
        if instruction.code == ADD && holds[to] {
            lowest = lowest.min(instruction.immediate);
        }
        match instruction.effect() {
            Effect::Copy => holds[to] = instruction.source == FRAME,
            Effect::Stores | Effect::Jump(_) | Effect::Branch(_) | Effect::Exit => {}
            Effect::Call => holds[..6].fill(false),
            _ => holds[to] = false,
        }
    }
    lowest.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::super::program::Function;
    use super::*;
    use std::collections::BTreeMap;

    /// `*(u64 *)(r10 − bytes) = r1`, `exit`.
    fn stores(bytes: i16) -> Vec<Instruction> {
        let [low, high] = (-bytes).to_le_bytes();
        [[0x7b, 0x1a, low, high, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]]
            .map(Instruction::decode)
            .into()
    }

    fn program(frames: &[i16], calls: &[(usize, usize)]) -> Program {
        let functions = frames.iter().enumerate().map(|(index, bytes)| Function {
            name: format!("f{index}"),
            section: if index == 0 { "uprobe" } else { ".text" }.into(),
            instructions: stores(*bytes),
            calls: calls
                .iter()
                .copied()
                .filter(|(from, _)| *from == index)
                .collect::<BTreeMap<_, _>>(),
        });
        Program { functions: functions.collect(), sections: vec![] }
    }

    #[test]
    fn frames_of_a_chain_are_summed_in_units() {
        assert_eq!(check(&program(&[24, 100, 8], &[(0, 1), (1, 2)])).ok(), Some(32 + 128 + 32));
        assert_eq!(check(&program(&[32, 320, 160], &[(0, 1), (1, 2)])).ok(), Some(512));
        let refused = check(&program(&[32, 304, 208], &[(0, 1), (1, 2)])).expect_err("576 bytes");
        let said = "576 bytes of stack, more than 512: f0 (32) → f1 (320) → f2 (224)";
        assert_eq!(refused.to_string(), said);
        assert!(check(&program(&[8, 8], &[(0, 1), (1, 0)])).is_err());
    }

    #[test]
    fn an_address_below_the_frame_pointer_counts() {
        // First r2 = r10; r2 += −48. Then the same with r1 instead of r10, which is no address in
        // the stack.
        let taken = [[0xbf, 0xa2, 0, 0, 0, 0, 0, 0], [0x07, 0x02, 0, 0, 0xd0, 0xff, 0xff, 0xff]];
        assert_eq!(frame(&taken.map(Instruction::decode)), 48);
        let other = [[0xbf, 0x12, 0, 0, 0, 0, 0, 0], [0x07, 0x02, 0, 0, 0xd0, 0xff, 0xff, 0xff]];
        assert_eq!(frame(&other.map(Instruction::decode)), 0);
    }
}
