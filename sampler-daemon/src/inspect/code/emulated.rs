//! Which x86-64 instructions the kernel's uprobes emulate, and which they refuse.
//!
//! An emulated instruction costs one trap. Every other instruction is executed out of line under
//! single-step. That costs a second trap: 3 times as much on bare metal, 18 times in a VM. The
//! kernel decides in `branch_setup_xol_ops`, `push_setup_xol_ops` and `is_prefix_bad` of
//! `arch/x86/kernel/uprobes.c`. This list is the part of the kernel's list that was measured on
//! 6.18. Before 6.18 the long nops (`0f 1f`) are single-stepped, which is slower but never wrong.

/// Whether the kernel emulates the one instruction with exactly these bytes.
///
/// ```text
/// push r64            50-57, 41 50-57
/// nop, pause          90, 66 90, 48 90, f3 90, [66] 0f 1f /0
/// jmp rel8/rel32      [f2] eb, [f2] e9
/// jcc rel8/rel32      70-7f, 0f 80-8f
/// ```
/// Harmful instructions are left out ([`is_harmful`]). `41 90` (`xchg r8, rax`) is left out because
/// the kernel takes its opcode for a nop.
pub(in crate::inspect) fn is_emulated(instruction: &[u8]) -> bool {
    match instruction {
        of if is_harmful(of) => false,
        [0x50..=0x57] | [0x41, 0x50..=0x57] => true,
        [0x90] | [0x66 | 0x48 | 0xf3, 0x90] => true,
        [0x0f, 0x1f, modrm, ..] | [0x66, 0x0f, 0x1f, modrm, ..] => modrm & 0x38 == 0,
        [0xeb, _] | [0xf2, 0xeb, _] => true,
        [0xe9, _, _, _, _] | [0xf2, 0xe9, _, _, _, _] => true,
        [0x70..=0x7f, _] => true,
        [0x0f, 0x80..=0x8f, _, _, _, _] => true,
        _ => false,
    }
}

/// The five-byte nop that compilers and probe headers write.
pub(in crate::inspect) const FIVE_BYTE_NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// Whether a probe on this instruction can kill the process.
///
/// - Linux 6.18 turns a probe on [`FIVE_BYTE_NOP`] into a call of a page that a forked child does
///   not have, which kills the child. Later kernels may do so with other nops of five bytes too.
/// - A call that is emulated or single-stepped leaves a return address on the stack that a shadow
///   stack does not have. The return then kills the process.
pub(in crate::inspect) fn is_harmful(instruction: &[u8]) -> bool {
    let rest = match instruction.iter().position(|byte| *byte != 0x66) {
        Some(opcode) => &instruction[opcode..],
        None => &[],
    };
    let is_nop = matches!(rest, [0x0f, 0x1f, ..] | [0x90]);
    instruction.len() == 5 && is_nop || is_call(instruction)
}

/// Whether the instruction is `call rel32`, which the kernel emulates. A probe on it is
/// [harmless](is_harmful) without a shadow stack.
pub(super) fn is_call(instruction: &[u8]) -> bool {
    matches!(instruction, [0xe8, _, _, _, _])
}

/// Whether this instruction must not have a probe: attaching fails, or the probe [would do
/// harm](is_harmful). Attaching fails for es, cs, ss and ds overrides, `lock`, and relative
/// branches with an operand-size prefix.
pub(in crate::inspect) fn is_refused(instruction: &[u8]) -> bool {
    let opcode = instruction.iter().position(|&byte| !is_legacy_prefix(byte));
    let (prefixes, rest) = instruction.split_at(opcode.unwrap_or(instruction.len()));
    let bad = prefixes.iter().any(|byte| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0xf0));
    let branch = matches!(rest, [0x70..=0x7f | 0xe8 | 0xe9 | 0xeb, ..] | [0x0f, 0x80..=0x8f, ..]);
    bad || branch && prefixes.contains(&0x66) || is_harmful(instruction)
}

fn is_legacy_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_set_is_emulated() {
        let emulated: &[&[u8]] = &[
            &[0x50],
            &[0x57],
            &[0x41, 0x54],
            &[0x90],
            &[0x66, 0x90],
            &[0x48, 0x90],
            &[0xf3, 0x90],
            &[0x0f, 0x1f, 0x00],
            &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0],
            &[0xeb, 0x10],
            &[0xe9, 0, 0, 0, 0],
            &[0xf2, 0xe9, 0, 0, 0, 0],
            &[0x74, 0x10],
            &[0x0f, 0x84, 0, 0, 0, 0],
        ];
        for bytes in emulated {
            assert!(is_emulated(bytes) && !is_refused(bytes), "{bytes:02x?}");
        }
    }

    #[test]
    fn instructions_measured_as_single_stepped_are_not_emulated() {
        let stepped: &[&[u8]] = &[
            &[0xf3, 0x0f, 0x1e, 0xfa],       // endbr64
            &[0xc3],                         // ret
            &[0xf3, 0xc3],                   // rep ret
            &[0x6a, 0x01],                   // push 1
            &[0x68, 1, 0, 0, 0],             // push 1
            &[0xff, 0x30],                   // push [rax]
            &[0x48, 0x89, 0xc0],             // mov rax, rax
            &[0x48, 0x8d, 0x00],             // lea rax, [rax]
            &[0x48, 0x85, 0xff],             // test rdi, rdi
            &[0x31, 0xc0],                   // xor eax, eax
            &[0x48, 0x83, 0xec, 0x08],       // sub rsp, 8
            &[0xe3, 0x10],                   // jrcxz
            &[0xe2, 0x10],                   // loop
            &[0x41, 0x90],                   // xchg r8, rax
            &[0xff, 0x25, 0, 0, 0, 0],       // jmp [rip]
            &[0x0f, 0x1f],                   // cut short
            &[0x3e, 0xff, 0xe0],             // notrack jmp rax
            &[0x2e, 0x0f, 0x1f, 0x40, 0x00], // cs nop
        ];
        for bytes in stepped {
            assert!(!is_emulated(bytes), "{bytes:02x?}");
        }
    }

    #[test]
    fn bad_prefixes_are_refused() {
        assert!(is_refused(&[0x2e, 0x0f, 0x1f, 0x40, 0x00]));
        assert!(is_refused(&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]));
        assert!(is_refused(&[0xf0, 0x48, 0x0f, 0xb1, 0x0f]));
        assert!(is_refused(&[0x2e, 0x74, 0x10]));
        assert!(is_refused(&[0x66, 0xe8, 0, 0]));
        let harmful: [&[u8]; 4] = [
            &[0x0f, 0x1f, 0x44, 0, 0],
            &[0x66, 0x0f, 0x1f, 0x40, 0],
            &[0x66, 0x66, 0x66, 0x66, 0x90],
            &[0xe8, 0, 0, 0, 0],
        ];
        assert!(harmful.iter().all(|of| is_refused(of) && !is_emulated(of)));
        assert!(!is_refused(&[0x66, 0x0f, 0x1f, 0x44, 0, 0]));
        assert!(!is_refused(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0]));
    }
}
