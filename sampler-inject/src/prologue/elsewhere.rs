//! Finds jumps into the beginning of a function. A hook at or behind the target of such a jump
//! would run in the wrong state.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use super::{Code, Function};

/// Bytes from the entry on in which a place can lie: 16 instructions of at most 15 bytes.
const REACH_BYTES: u64 = 16 * 15;
/// Bytes of a conditional jump with a four-byte distance.
const JUMP_BYTES: usize = 6;

/// The lowest address of the function's beginning that is the target of a jump; `u64::MAX`: no jump
/// leads there.
///
/// The function's own jumps to its entry count: registers that carry no argument may be in use
/// there.
/// Another function's jump to the entry is an ordinary call.
pub(super) fn lowest_jump_target(function: &Function, elsewhere: &[Code]) -> u64 {
    let (bytes, _) = function.own();
    let own = Code { address: function.entry, bytes };
    let anywhere = distances(own).chain(elsewhere.iter().flat_map(|code| distances(*code)));
    // Another function's jump to the entry is an ordinary call, and data may look like such a jump.
    let behind_entry = anywhere.filter(|target| *target != function.entry);
    let targets = decoded_targets(own).chain(behind_entry);
    targets.filter(|target| is_in_beginning(function.entry, *target)).min().unwrap_or(u64::MAX)
}

/// The jumps in `code` that lead to the beginnings of the functions at `entries`, each as a piece of
/// code.
///
/// A program may have hundreds of megabytes of code, and dozens of functions are searched in it. So
/// the code is read once for all functions.
pub fn jumps_to<'c>(entries: &[u64], code: Code<'c>) -> Vec<Code<'c>> {
    let (Some(lowest), Some(highest)) = (entries.iter().min(), entries.iter().max()) else {
        return Vec::new();
    };
    let span = highest - lowest + REACH_BYTES;
    let is_beginning = |at: u64| entries.iter().any(|entry| is_in_beginning(*entry, at));
    let mut found = Vec::new();
    for (at, bytes) in code.bytes.windows(JUMP_BYTES).enumerate() {
        let to = distance_target(code, at, bytes);
        // Hardly any four bytes are a distance to these functions: this test comes first.
        if to.wrapping_sub(*lowest) < span && is_jump(bytes) && is_beginning(to) {
            found.push(Code { address: code.address + at as u64, bytes });
        }
    }
    found
}

/// Whether an address lies in the beginning of the function at `entry`.
fn is_in_beginning(entry: u64, target: u64) -> bool {
    target.checked_sub(entry).is_some_and(|offset| offset < REACH_BYTES)
}

/// Targets of the jumps that are found by decoding from the entry on.
fn decoded_targets<'c>(code: Code<'c>) -> impl Iterator<Item = u64> + 'c {
    let mut decoder = Decoder::with_ip(64, code.bytes, code.address, DecoderOptions::NONE);
    std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode())).filter_map(target)
}

fn target(instruction: Instruction) -> Option<u64> {
    let is_jump = matches!(
        instruction.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    );
    let is_near = instruction.op0_kind() == OpKind::NearBranch64;
    (is_jump && is_near).then(|| instruction.near_branch_target())
}

/// Targets of all byte sequences that look like a jump with a four-byte distance: opcode `E9`, or
/// `0F 80` to `0F 8F`.
/// This search need not distinguish instructions from data. A jump with a distance of one byte does
/// not leave its function.
fn distances(code: Code) -> impl Iterator<Item = u64> {
    let windows = code.bytes.windows(JUMP_BYTES).enumerate();
    let jumps = windows.filter(|(_, window)| is_jump(window));
    jumps.map(move |(at, window)| distance_target(code, at, window))
}

/// Whether six bytes end like a jump with a four-byte distance.
fn is_jump(window: &[u8]) -> bool {
    window[1] == 0xe9 || window[0] == 0x0f && window[1] & 0xf0 == 0x80
}

/// The target of such a jump, whose bytes begin `at` bytes behind the beginning of the code.
fn distance_target(code: Code, at: usize, window: &[u8]) -> u64 {
    let distance = i32::from_le_bytes([window[2], window[3], window[4], window[5]]);
    let next = code.address.wrapping_add((at + JUMP_BYTES) as u64);
    next.wrapping_add_signed(i64::from(distance))
}
