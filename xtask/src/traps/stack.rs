//! Finds stacks that the verifier refuses, and stacks that two runs of a program would share.
//!
//! The verifier adds up the frames of functions that call one another. Since Linux 6.13 a large
//! frame lies in a private stack instead, one for each program and CPU. Programs on uprobes are
//! preemptible, so two runs on one CPU would share it. The verifier gives no private stack to a
//! program with a tail call.

use anyhow::{Result, bail};

use super::DECIDES;
use super::instruction::{Effect, Instruction};
use super::program::{Function, Program};

/// Maximum size of all frames of a chain of calls (`MAX_BPF_STACK` in `include/linux/filter.h`).
const MAX_STACK_BYTES: u32 = 512;
/// Unit to which a frame's size is rounded up (`check_max_stack_depth_subprog` in
/// `kernel/bpf/verifier.c`).
const STACK_UNIT_BYTES: u32 = 32;
/// The unit on kernels that load the session's program (since Linux 6.8, with a JIT).
const SESSION_UNIT_BYTES: u32 = 16;
/// Least size of a frame in a private stack (`BPF_PRIV_STACK_MIN_SIZE` in
/// `kernel/bpf/verifier.c`).
const MIN_PRIVATE_BYTES: u32 = 64;
/// The helper `bpf_tail_call`.
const TAIL_CALL: i32 = 12;
/// The frame pointer.
const FRAME: u8 = 10;
/// `destination += immediate`, all 64 bits.
const ADD: u8 = 0x07;

/// Checks the deepest chain of calls of every program. Returns the size of the deepest chain, in
/// bytes.
///
/// # Errors
/// If a chain is too deep, or a program on a uprobe would have a private stack; the text names the
/// functions with their frames.
pub(crate) fn check(program: &Program) -> Result<u32> {
    let mut deepest = 0;
    for (index, function) in program.functions.iter().enumerate() {
        // Functions in `.text` are only called.
        if function.section == ".text" {
            continue;
        }
        let is_session = function.name.starts_with(DECIDES);
        let unit = if is_session { SESSION_UNIT_BYTES } else { STACK_UNIT_BYTES };
        let chain = chain(program, index, unit, &mut vec![false; program.functions.len()])?;
        let bytes: u32 = chain.iter().map(|(_, frame)| frame).sum();
        let frames: Vec<String> = chain
            .iter()
            .map(|(index, frame)| format!("{} ({frame})", program.functions[*index].name))
            .collect();
        let frames = frames.join(" → ");
        if bytes > MAX_STACK_BYTES {
            bail!("{bytes} bytes of stack, more than {MAX_STACK_BYTES}: {frames}");
        }
        if is_on_uprobe(function)
            && bytes >= MIN_PRIVATE_BYTES
            && !function.instructions.iter().any(is_tail_call)
        {
            bail!("{frames}: may get a private stack; make its Call by Call::in_main");
        }
        deepest = deepest.max(bytes);
    }
    Ok(deepest)
}

fn is_on_uprobe(function: &Function) -> bool {
    matches!(function.section.split('/').next(), Some("uprobe" | "uretprobe"))
}

fn is_tail_call(instruction: &Instruction) -> bool {
    let Instruction { source, immediate, .. } = *instruction;
    instruction.effect() == Effect::Call && source == 0 && immediate == TAIL_CALL
}

/// The deepest chain of calls that begins at a function: indexes and frame sizes.
fn chain(
    program: &Program,
    index: usize,
    unit: u32,
    above: &mut [bool],
) -> Result<Vec<(usize, u32)>> {
    let function = &program.functions[index];
    if above[index] {
        bail!("{} calls itself", function.name);
    }
    above[index] = true;
    let mut deepest: Vec<(usize, u32)> = Vec::new();
    for callee in function.calls.values() {
        let below = chain(program, *callee, unit, above)?;
        let sum = |chain: &[(usize, u32)]| chain.iter().map(|(_, frame)| frame).sum::<u32>();
        if sum(&below) > sum(&deepest) {
            deepest = below;
        }
    }
    above[index] = false;
    deepest.insert(0, (index, frame(&function.instructions).max(1).next_multiple_of(unit)));
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
            section: if index == 0 { "perf_event" } else { ".text" }.into(),
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
    fn a_program_on_a_uprobe_has_no_private_stack() {
        let on_uprobe = |frames: &[i16], tail_call: bool| {
            let mut program = program(frames, &[(0, 1)]);
            program.functions[0].section = "uretprobe".into();
            if tail_call {
                let call = Instruction::decode([0x85, 0, 0, 0, 12, 0, 0, 0]);
                program.functions[0].instructions.insert(0, call);
            }
            check(&program)
        };
        assert_eq!(on_uprobe(&[8, 100], true).ok(), Some(32 + 128));
        let refused = on_uprobe(&[8, 100], false).expect_err("a large frame");
        assert!(refused.to_string().contains("f0 (32) → f1 (128)"), "{refused}");
    }

    #[test]
    fn the_sessions_program_has_smaller_units() {
        let mut program = program(&[24, 300], &[(0, 1)]);
        assert_eq!(check(&program).ok(), Some(32 + 320));
        program.functions[0].name = DECIDES.into();
        assert_eq!(check(&program).ok(), Some(32 + 304));
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
