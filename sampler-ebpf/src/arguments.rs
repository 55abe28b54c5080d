//! What a call asks for, by where its function has its arguments.

use crate::registers::Call;
use aya_ebpf::cty::c_void;
use sampler_common::limits::FOLLOW_BYTES;
use sampler_common::sampling;
use sampler_common::wire::{Cookie, NONE, Role, Shape};

/// The call is charged.
pub const CHARGED: u32 = 0;
/// It asks for more bytes than there are.
pub const REFUSED: u32 = 1;
/// It is left to the function that it calls.
pub const NESTED: u32 = 2;

/// What a call asks for.
#[repr(C)]
pub struct ParsedArguments {
    /// Requested bytes.
    pub size: u64,
    /// Its pointer argument, 0 if it has none.
    pub argument: u64,
    /// Not 0: followed to its return even when not sampled.
    pub follow: u64,
}

/// What a call asks for; one of the constants above.
///
/// A function of its own, and nothing that it answers is known to the verifier: what follows is then looked at once, and not once for
/// each role.
#[inline(never)]
pub fn ask(context: *mut c_void, cookie: u64, asked: *mut ParsedArguments) -> u32 {
    let call = Call::new(context);
    let cookie = Cookie(cookie);
    let (shape, role) = (cookie.shape(), cookie.role());
    let arguments = call.arguments();
    let argument = |number: u8| {
        // SAFETY: reads a local variable; volatile, so that the mask stays.
        let number = unsafe { core::ptr::read_volatile(&raw const number) } as usize & 7;
        // SAFETY: the index is less than 8.
        unsafe { core::ptr::read_volatile((&raw const arguments).cast::<u64>().add(number)) }
    };
    let mut size = argument(shape.size());
    if shape.count() != NONE {
        let Some(product) = sampling::product(argument(shape.count()), size) else {
            return REFUSED;
        };
        size = product;
    }
    let pointer = argument(shape.pointer());
    let is = |of: Role| role == of as u8;
    let is_left = !shape.is_own()
        // realloc(NULL, n) calls malloc, realloc(p, 0) calls free: those probes see it.
        && (is(Role::Realloc) && (pointer == 0 || size == 0)
            // Alignments that malloc has anyway are left to it.
            || is(Role::AlignedAlloc) && call.argument0() <= 16
            || is(Role::PosixMemalign) && call.argument1() <= 16);
    if is_left {
        return NESTED;
    }
    // An alignment can be refused, and what becomes of realloc(p, 0) is the allocator's choice.
    let can_fail = is(Role::AlignedAlloc)
        || is(Role::PosixMemalign)
        || is(Role::Realloc) && size == 0
        || size >= FOLLOW_BYTES;
    // 0, as code has no such addresses; the verifier does not know that.
    let unknown = call.ip() >> 63;
    let all = ParsedArguments { size, argument: pointer | unknown, follow: u64::from(can_fail) | unknown };
    // SAFETY: the caller's variable.
    unsafe { asked.write(all) };
    CHARGED
}

/// Requested bytes of a function that is seen at its entry only; `None`: more than there are.
#[inline(always)]
pub fn size(call: &Call, shape: Shape) -> Option<u64> {
    let size = call.argument(shape.size());
    match shape.count() {
        NONE => Some(size),
        count => sampling::product(call.argument(count), size),
    }
}
