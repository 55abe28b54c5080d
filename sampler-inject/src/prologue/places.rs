//! Where a function can be hooked, best place first: its entry, or a later instruction if a
//! trampoline can undo the instructions before it.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use super::elsewhere::lowest_jump_target;
use super::landings::{boundaries, landings};
use super::walk::Walk;
use super::{Code, Function, HookPlace};

/// Maximum number of instructions from the entry on at which a place may lie.
const MAX_INSTRUCTIONS: usize = 16;
/// Size of a jump's distance.
const DISTANCE_BYTES: usize = 4;
/// `jmp rel32`.
const JUMP: u8 = 0xe9;

/// Places of a function, without a search for jumps from outside. [`places_with`] also searches
/// other code.
pub fn places(function: &Function) -> Vec<HookPlace> {
    places_with(function, &[])
}

/// Places of a function, the best one first. A jump in the function or in `elsewhere` excludes its
/// target and all places behind it.
///
/// `elsewhere` should be the whole executable segment around the function, or the jumps that
/// [`jumps_to`](super::jumps_to) finds in it: compilers move unlikely parts of a function far away
/// from it.
pub fn places_with(function: &Function, elsewhere: &[Code]) -> Vec<HookPlace> {
    let entered = lowest_jump_target(function, elsewhere);
    let (_, is_whole) = function.own();
    let mut decoder = Decoder::with_ip(64, function.bytes, function.entry, DecoderOptions::NONE);
    let mut walk = Walk::new(function);
    let mut found = Vec::new();
    for depth in 0..MAX_INSTRUCTIONS {
        let start = decoder.position();
        let instruction = decoder.decode();
        let is_known = depth == 0 || is_whole;
        if instruction.is_invalid() || !is_known || instruction.ip() >= entered {
            break;
        }
        if can_be_copied(&instruction) {
            let at = |has_prefix| place(function, &walk, &instruction, start, depth, has_prefix);
            found.extend(at(false));
            found.extend(at(true));
        }
        if !walk.pass(&instruction) {
            break;
        }
    }
    found
}

/// Whether a copy of the instruction at another address has the same effect. A call would push
/// another return address.
fn can_be_copied(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Next
            | FlowControl::ConditionalBranch
            | FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
    )
}

/// The place at one instruction, or behind its REX prefix, if the byte there can become a jump.
fn place(
    function: &Function,
    walk: &Walk,
    instruction: &Instruction,
    start: usize,
    depth: usize,
    has_prefix: bool,
) -> Option<HookPlace> {
    let bytes = function.bytes;
    if has_prefix && !matches!(bytes.get(start)?, 0x40..=0x4f) {
        return None;
    }
    let at = start + usize::from(has_prefix);
    let original = *bytes.get(at)?;
    let following: [u8; DISTANCE_BYTES] =
        bytes.get(at + 1..at + 1 + DISTANCE_BYTES)?.try_into().ok()?;
    // The byte is already the opcode of a jump: writing it would change nothing.
    if original == JUMP {
        return None;
    }
    let patch = function.entry.checked_add(at as u64)?;
    let boundaries = boundaries(bytes, start, at + 1)?;
    let undo = walk.undo().to_vec();
    let landings = landings(patch, following, boundaries, super::code::length(&undo))?;
    let resume = resume(function, instruction, patch + 1 + DISTANCE_BYTES as u64);
    Some(HookPlace {
        patch,
        original,
        following,
        boundaries,
        landings,
        resume,
        prefix: has_prefix.then(|| bytes[start]),
        depth,
        undo,
    })
}

/// The address at which execution in place resumes. It is behind the hooked instruction, and behind
/// the following ones that begin before `end` (the end of the jump) and can be copied.
///
/// The processor finds a jump by the address of its last byte. It predicts code that runs across
/// that byte in place as the jump, at each call.
/// Such a misprediction costs far more than the copy.
fn resume(function: &Function, instruction: &Instruction, end: u64) -> u64 {
    let next_ip = instruction.next_ip();
    let behind = function.bytes.get((next_ip - function.entry) as usize..).unwrap_or_default();
    let mut decoder = Decoder::with_ip(64, behind, next_ip, DecoderOptions::NONE);
    let mut last = *instruction;
    let goes_on = |last: &Instruction| {
        matches!(last.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch)
    };
    while last.next_ip() < end && goes_on(&last) {
        let next = decoder.decode();
        if next.is_invalid() || !can_be_copied(&next) {
            break;
        }
        last = next;
    }
    last.next_ip()
}
