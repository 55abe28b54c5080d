//! The targets of a place's jump, with and without another tool's `int3` in its distance.

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use sampler_common::injected::BREAKPOINT;

/// Length of `jmp rel32` from its opcode on.
const JUMP_LENGTH: u64 = 5;
/// The kernel maps nothing below this address (`vm.mmap_min_addr` of every distribution).
const MIN_MAPPED_ADDRESS: u64 = 0x1_0000;
/// Nothing can be mapped from this address on: 47 bits less the guard page.
const HIGHEST: u64 = 0x7fff_ffff_f000;

/// A five-byte nop. Linux (6.18) turns this instruction into a call when a uprobe is put on it: it
/// writes all five bytes.
const WRITTEN_WHOLE: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// Which of the four bytes from `window` on begin an instruction. Bit 0 stands for the first byte.
/// `start` is the beginning of the hooked instruction. `None`: another tool may change these bytes
/// in other ways than by an `int3`.
///
/// Behind an instruction that ends the straight line, every byte counts: data, padding or another
/// function may follow.
pub(super) fn boundaries(bytes: &[u8], start: usize, window: usize) -> Option<u8> {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let mut found = 0;
    let mut next = start;
    let mut is_straight = true;
    for position in start..window + 4 {
        if position < next {
            continue;
        }
        if position >= window {
            found |= 1 << (position - window);
            if bytes.get(position..).is_some_and(|bytes| bytes.starts_with(&WRITTEN_WHOLE)) {
                return None;
            }
        }
        if is_straight && decoder.set_position(position).is_ok() {
            let instruction = decoder.decode();
            is_straight = !instruction.is_invalid() && goes_on(instruction.flow_control());
            next = position + instruction.len().max(1);
        }
    }
    Some(found)
}

fn goes_on(flow: FlowControl) -> bool {
    matches!(
        flow,
        FlowControl::Next
            | FlowControl::ConditionalBranch
            | FlowControl::Call
            | FlowControl::IndirectCall
    )
}

/// The targets of a jump with its opcode at `patch`: first for the unchanged bytes, then for every
/// combination of `int3` at the boundaries.
/// `None`: a target lies where nothing can be mapped, or two trampolines of `length` bytes would
/// overlap.
pub(super) fn landings(
    patch: u64,
    following: [u8; 4],
    boundaries: u8,
    length: u64,
) -> Option<Vec<u64>> {
    let mut found = Vec::new();
    for subset in subsets(boundaries) {
        let landing = landing(patch, with_breakpoints(following, subset));
        // A byte that is already CC in the file gives the same target again.
        if !found.contains(&landing) {
            found.push(landing);
        }
    }
    let fits = |landing: &u64| (MIN_MAPPED_ADDRESS..HIGHEST - length).contains(landing);
    let mut sorted = found.clone();
    sorted.sort_unstable();
    let is_apart = sorted.windows(2).all(|pair| pair[1] - pair[0] >= length);
    (found.iter().all(fits) && is_apart).then_some(found)
}

/// Every subset of the bits of `of`, the empty one first.
fn subsets(of: u8) -> impl Iterator<Item = u8> {
    (0..16_u8).filter(move |subset| subset & !of == 0)
}

fn with_breakpoints(mut following: [u8; 4], subset: u8) -> [u8; 4] {
    for (bit, byte) in following.iter_mut().enumerate() {
        if subset & 1 << bit != 0 {
            *byte = BREAKPOINT;
        }
    }
    following
}

fn landing(patch: u64, distance: [u8; 4]) -> u64 {
    let distance = i64::from(i32::from_le_bytes(distance));
    patch.wrapping_add(JUMP_LENGTH).wrapping_add_signed(distance)
}
