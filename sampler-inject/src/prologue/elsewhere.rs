//! Jumps that lead into the beginning of a function. A hook behind such a jump would run in the wrong state.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use super::{Code, Function};

/// Bytes from the entry on in which a place can lie: 16 instructions of 15 bytes.
const REACH_BYTES: u64 = 16 * 15;

/// The lowest address of the function's beginning that a jump leads to; `u64::MAX`: there is none.
///
/// The function's own jumps to its entry count: registers that carry no argument may be in use there.
/// Another function's jump to the entry is a call like any other.
pub(super) fn first_entered(function: &Function, elsewhere: &[Code]) -> u64 {
    let own = Code { address: function.entry, bytes: function.bytes };
    let own_targets = decoded_targets(function).chain(distances(own));
    let other_targets = elsewhere.iter().flat_map(|code| distances(*code));
    let inside = |target: &u64| is_inside(function, *target);
    let from_outside = other_targets.filter(|target| inside(target) && *target != function.entry);
    own_targets.filter(inside).chain(from_outside).min().unwrap_or(u64::MAX)
}

fn is_inside(function: &Function, target: u64) -> bool {
    target.checked_sub(function.entry).is_some_and(|offset| offset < REACH_BYTES)
}

/// Targets of the branches that are found by decoding from the entry on.
fn decoded_targets<'f>(function: &Function<'f>) -> impl Iterator<Item = u64> + 'f {
    let mut decoder = Decoder::with_ip(64, function.bytes, function.entry, DecoderOptions::NONE);
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

/// Where each four bytes of the code lead if they are the distance of a jump. Code and data need not be told apart for that.
fn distances(code: Code) -> impl Iterator<Item = u64> {
    code.bytes.windows(4).enumerate().map(move |(at, window)| {
        let mut distance = [0; 4];
        distance.copy_from_slice(window);
        let next = code.address.wrapping_add(at as u64 + 4);
        next.wrapping_add_signed(i64::from(i32::from_le_bytes(distance)))
    })
}
