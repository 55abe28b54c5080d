//! Where in a function to put a probe so that the kernel emulates the probed instruction.
//!
//! The probed instruction must see what the first instruction sees: the role's argument registers
//! and rsp unchanged, once per call and on every call. So the search walks the straight line from
//! the entry to the first emulated instruction. It takes that instruction unless a branch of the
//! function leads back to it or to the way there. Otherwise the probe stays at the entry, where it
//! is right but slower.
//!
//! `free(NULL)` often leaves by that very instruction, a branch. Then the next emulated instruction
//! behind it is better, because such calls free no block. In some programs nine calls in ten are
//! such calls (OpenSSL's clean-up).
//!
//! `emulated` lists the emulated instructions. The caller finds the code.

pub mod probe_addresses;
pub(super) mod probes;

use super::code::emulated::{is_emulated, is_harmful, is_refused};
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Formatter, Instruction, InstructionInfoFactory,
    IntelFormatter, OpAccess, OpKind, Register,
};
use sampler_common::wire::{MAX_ARGUMENTS, Role, Shape};

/// Most instructions that are walked. A probe further from the entry would not be trusted.
const WALK_INSTRUCTIONS: usize = 16;

/// Where a probe goes, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Bytes from the function's entry to the probed instruction.
    pub displacement: u32,
    /// The probed instruction, disassembled (Intel syntax, or its bytes in hex if it does not
    /// decode).
    pub instruction: String,
    /// Whether the kernel emulates the instruction. Otherwise the kernel single-steps it, which
    /// costs many times more.
    pub emulated: bool,
    /// Why the probe is there, in a few words for `status`.
    pub reason: String,
}

/// Places the probe of a function with this `role`.
///
/// `code` is the whole function, since a branch anywhere in the function may lead back to an
/// instruction near the entry. `address` is the address of the first byte, and serves only to print
/// branch targets. Jumps through tables, and jumps from other functions into the middle of this
/// one, cannot be seen.
pub fn place(code: &[u8], address: u64, role: Role, shape: Shape) -> Placement {
    let kept = kept_registers(role, shape);
    let walk = Walk::along(code, address, 0, &kept, is_emulated);
    let first = walk.check(code, address);
    if role == Role::Free
        && !shape.is_own()
        && let Ok(branch) = first
        && let Some(spot) = behind_null(code, address, &kept, branch)
    {
        return at(code, address, spot, true, "first emulated instruction but for NULL".into());
    }
    match first {
        Ok(0) => at(code, address, 0, true, "the entry is emulated".into()),
        Ok(spot) => at(code, address, spot, true, "first emulated instruction".into()),
        // An entry that the kernel refuses to probe is worse than any later place.
        Err(reason) => match walk.probeable {
            Some(spot) if !is_reentered(code, address, spot) => {
                at(code, address, spot, false, reason)
            }
            _ => at(code, address, 0, false, reason),
        },
    }
}

/// Whether a probe at the placement could kill the process, if nothing better was found: at a
/// five-byte nop, or at a call.
pub fn would_harm(code: &[u8], placement: &Placement) -> bool {
    let from = code.get(placement.displacement as usize..).unwrap_or_default();
    let length = Decoder::new(64, from, DecoderOptions::NONE).decode().len();
    from.get(..length).is_some_and(is_harmful)
}

fn at(code: &[u8], address: u64, spot: usize, emulated: bool, reason: String) -> Placement {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let decoded = decoder.set_position(spot).ok().map(|()| {
        decoder.set_ip(address.wrapping_add(spot as u64));
        decoder.decode()
    });
    let instruction = match decoded {
        Some(instruction) if !instruction.is_invalid() => disassemble(&instruction),
        _ => hex(code.get(spot..).unwrap_or_default()),
    };
    Placement { displacement: spot as u32, instruction, emulated, reason }
}

/// The straight line from the entry to the first emulated instruction, or to the instruction that
/// ends the walk.
struct Walk {
    /// Position of the first emulated instruction, or why there is none.
    found: Result<usize, String>,
    /// Position of the first instruction on the way that the kernel does not refuse to probe.
    probeable: Option<usize>,
}

impl Walk {
    /// Walks from a position in the code. `takes`: whether the walk ends at this instruction.
    fn along(
        code: &[u8],
        address: u64,
        from: usize,
        kept: &[Register],
        takes: impl Fn(&[u8]) -> bool,
    ) -> Walk {
        let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
        if decoder.set_position(from).is_err() {
            return Walk { found: Err("the code ends".into()), probeable: None };
        }
        decoder.set_ip(address.wrapping_add(from as u64));
        let mut facts = InstructionInfoFactory::new();
        let mut probeable = None;
        for _ in 0..WALK_INSTRUCTIONS {
            let start = decoder.position();
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                return Walk { found: Err("the code does not decode".into()), probeable };
            }
            let bytes = code.get(start..decoder.position()).unwrap_or_default();
            if takes(bytes) {
                return Walk { found: Ok(start), probeable: probeable.or(Some(start)) };
            }
            if probeable.is_none() && !is_refused(bytes) {
                probeable = Some(start);
            }
            if let Some(why) = end(&instruction, kept, &mut facts) {
                let found = Err(format!("`{}` {why}", disassemble(&instruction)));
                return Walk { found, probeable };
            }
        }
        Walk { found: Err("nothing emulated near the entry".into()), probeable }
    }

    fn check(&self, code: &[u8], address: u64) -> Result<usize, String> {
        let spot = self.found.clone()?;
        if is_reentered(code, address, spot) {
            return Err(format!("a branch leads back to +{spot} or before it"));
        }
        Ok(spot)
    }
}

/// The next emulated instruction behind the one at `branch`, if calls with a first argument of NULL
/// leave by `branch` (`test rdi, rdi; je`). Every other call reaches that instruction as it reached
/// the entry.
fn behind_null(code: &[u8], address: u64, kept: &[Register], branch: usize) -> Option<usize> {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut before = Instruction::default();
    while decoder.position() < branch {
        before = decoder.decode();
    }
    let leaves = matches!(decoder.decode().code(), Code::Je_rel8_64 | Code::Je_rel32_64);
    let tests = before.code() == Code::Test_rm64_r64
        && before.op0_register() == Register::RDI
        && before.op1_register() == Register::RDI;
    if !(leaves && tests) {
        return None;
    }
    Walk::along(code, address, decoder.position(), kept, is_emulated).check(code, address).ok()
}

/// Why the walk cannot go past this instruction; `None` if it can.
fn end(
    instruction: &Instruction,
    kept: &[Register],
    facts: &mut InstructionInfoFactory,
) -> Option<&'static str> {
    if instruction.flow_control() != FlowControl::Next {
        return Some("leaves the straight line before anything emulated");
    }
    facts
        .info(instruction)
        .used_registers()
        .iter()
        .any(|used| is_write(used.access()) && kept.contains(&used.register().full_register()))
        .then_some("overwrites an argument or rsp before anything emulated")
}

fn is_write(access: OpAccess) -> bool {
    match access {
        OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess => false,
        // Every other access writes or might write.
        _ => true,
    }
}

/// The registers in which arguments arrive (System V calling convention).
const ARGUMENTS: [Register; MAX_ARGUMENTS as usize] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];

/// The registers that the probe must find as they were at the entry: rsp, and the arguments that it
/// reads.
fn kept_registers(role: Role, shape: Shape) -> Vec<Register> {
    let mut kept = argument_registers(role, shape);
    kept.push(Register::RSP);
    kept
}

/// The registers of the arguments that the probe reads.
fn argument_registers(role: Role, shape: Shape) -> Vec<Register> {
    if shape.is_own() {
        let used = [shape.size(), shape.count(), shape.pointer()];
        return used.iter().filter_map(|of| ARGUMENTS.get(usize::from(*of)).copied()).collect();
    }
    let count = match role {
        Role::Malloc | Role::Free | Role::New | Role::MoveBreak => 1,
        Role::Calloc | Role::Realloc | Role::AlignedAlloc | Role::Unmap => 2,
        Role::PosixMemalign => 3,
        Role::Map | Role::Remap => 4,
        // Probes inside functions, which the compiler placed.
        Role::OtelAlloc | Role::OtelFree | Role::LibraryEnded => 0,
    };
    ARGUMENTS.iter().copied().take(count).collect()
}

/// Whether a branch in the function leads to a byte behind the entry, up to and including `spot`. A
/// probe at `spot` would then fire more than once per call, or without the arguments.
fn is_reentered(code: &[u8], address: u64, spot: usize) -> bool {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while spot > 0 && decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let is_branch = matches!(
            instruction.op0_kind(),
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
        );
        let target = instruction.near_branch_target().wrapping_sub(address);
        if !instruction.is_invalid() && is_branch && (1..=spot as u64).contains(&target) {
            return true;
        }
    }
    false
}

fn disassemble(instruction: &Instruction) -> String {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    options.set_show_branch_size(false);
    options.set_space_after_operand_separator(true);
    let mut text = String::new();
    formatter.format(instruction, &mut text);
    text
}

fn hex(code: &[u8]) -> String {
    let bytes: Vec<String> = code.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    bytes.join(" ")
}

#[cfg(test)]
mod tests;
