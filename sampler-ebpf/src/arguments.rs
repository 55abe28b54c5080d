//! The requested size and the pointer argument of a call, found where the function has its
//! arguments.

use crate::registers::Call;
use aya_ebpf::cty::c_void;
use sampler_common::limits::FOLLOW_BYTES;
use sampler_common::sampling;
use sampler_common::wire::{Cookie, NONE, Role, Shape};

/// The call is charged.
pub const CHARGED: u32 = 0;
/// The call asks for more bytes than a number can hold.
pub const REFUSED: u32 = 1;
/// The call is left to the function that it calls.
pub const NESTED: u32 = 2;

/// The arguments of a call.
#[repr(C)]
pub struct ParsedArguments {
    /// Requested bytes.
    pub size: u64,
    /// The pointer argument, 0 if the function has none.
    pub argument: u64,
    /// Not 0: the call is followed to its return even if it is not sampled.
    pub follow: u64,
}

/// Parses the arguments of a call into `parsed`. Returns [`CHARGED`], [`REFUSED`] or [`NESTED`].
///
/// A function of its own whose results are unknown to the verifier. So the verifier checks the
/// following code once, and not once for each role.
#[inline(never)]
pub fn parse(context: *mut c_void, cookie: u64, parsed: *mut ParsedArguments) -> u32 {
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
        // realloc(NULL, n) calls malloc, and realloc(p, 0) calls free: their probes see these
        // calls.
        && (is(Role::Realloc) && (pointer == 0 || size == 0)
            // An alignment that malloc has anyway is left to malloc.
            || is(Role::AlignedAlloc) && call.argument0() <= 16
            || is(Role::PosixMemalign) && call.argument1() <= 16);
    if is_left {
        return NESTED;
    }
    // The function may refuse an alignment, and the allocator chooses what realloc(p, 0) does.
    let can_fail = is(Role::AlignedAlloc)
        || is(Role::PosixMemalign)
        || is(Role::Realloc) && size == 0
        || size >= FOLLOW_BYTES;
    // Always 0: code has no such addresses. The verifier does not know that.
    let unknown = call.ip() >> 63;
    let all = ParsedArguments { size, argument: pointer | unknown, follow: u64::from(can_fail) | unknown };
    // SAFETY: the caller's variable.
    unsafe { parsed.write(all) };
    CHARGED
}

/// Requested bytes of a function that is probed at its entry only; `None`: more than a number can
/// hold.
#[inline(always)]
pub fn size(call: &Call, shape: Shape) -> Option<u64> {
    let size = call.argument(shape.size());
    match shape.count() {
        NONE => Some(size),
        count => sampling::product(call.argument(count), size),
    }
}
