//! The stack of a sampled call: copied for the daemon to unwind, or walked by frame pointers.

use crate::registers::{Call, Frame};
use crate::settings;
use aya_ebpf::bindings::BPF_F_USER_STACK;
use aya_ebpf::helpers::{
    bpf_get_stack, bpf_probe_read_user, generated::bpf_probe_read_user as read_user,
};
use sampler_common::limits::{MAX_KERNEL_FRAMES, SNAPSHOT_TIERS};

/// Bytes of a stack walked by frame pointers.
pub const FRAME_BYTES: usize = MAX_KERNEL_FRAMES * 8;

const PAGE: usize = 4096;

/// Returns the index of the smallest size in [`SNAPSHOT_TIERS`] that holds the stack above `sp`, or
/// of the largest size allowed. `bytes` is the size of that stack if it is
/// [known](crate::stack_bounds::known), else 0.
#[inline(always)]
pub fn tier(sp: u64, bytes: u64) -> u64 {
    let largest = settings::largest_tier();
    let mut tier = 0;
    while tier < 4 {
        if tier >= largest {
            return largest;
        }
        let size = SNAPSHOT_TIERS[tier as usize & 3];
        let is_held = match bytes {
            0 => !fills(sp, size),
            bytes => bytes <= size as u64,
        };
        if is_held {
            return tier;
        }
        tier += 1;
    }
    tier
}

/// The largest size allowed, in bytes.
#[inline(always)]
pub fn largest() -> usize {
    SNAPSHOT_TIERS[0] << (settings::largest_tier() & 7)
}

/// Whether the stack above `sp` has at least `bytes` bytes.
#[inline(always)]
pub fn fills(sp: u64, bytes: usize) -> bool {
    let last = sp.wrapping_add(bytes as u64 - 8);
    // SAFETY: reads user memory, and may fail: the stack then ends before `last`.
    unsafe { bpf_probe_read_user(last as *const u64) }.is_ok()
}

/// Copies up to `N` bytes of stack from `sp`, up to the first page that cannot be read. Returns the
/// number of bytes copied.
///
/// `bytes` is the size of the stack if that is known, else 0. If it is 0, `fills` says whether the
/// last of `N` bytes can be read. A failed read is expensive: the kernel takes a fault and clears
/// the whole target. So a stack that does not fill `N` bytes is read page by page, and only the
/// last read fails.
#[inline(always)]
pub fn copy<const N: usize>(sp: u64, stack: *mut u8, bytes: u64, fills: bool) -> u32 {
    if bytes != 0 {
        // SAFETY: reads a local variable. The read is volatile, so that the compiler keeps the
        // mask, from which the verifier knows that `bytes` is at most N.
        let last = unsafe { core::ptr::read_volatile(&raw const bytes) }.wrapping_sub(1);
        let bytes = (last as u32 & (N as u32 - 1)) + 1;
        // SAFETY: `stack` has N bytes of reserved ring space; the helper may fail on the source.
        if unsafe { read_user(stack.cast(), bytes, sp as *const _) } == 0 {
            return bytes;
        }
    }
    // SAFETY: as above.
    if fills && unsafe { read_user(stack.cast(), N as u32, sp as *const _) } == 0 {
        return N as u32;
    }
    // The bytes to the end of the page that contains `sp`.
    let first = sp.wrapping_neg() as usize & (PAGE - 1);
    // SAFETY: `first` is less than a page, and N is at least a page.
    if unsafe { read_user(stack.cast(), first as u32, sp as *const _) } != 0 {
        return 0;
    }
    let mut done = first;
    for _ in 1..N / PAGE {
        // SAFETY: `done + PAGE` is less than N.
        let target = unsafe { stack.add(done) };
        let source = sp.wrapping_add(done as u64) as *const _;
        // SAFETY: as above.
        if unsafe { read_user(target.cast(), PAGE as u32, source) } != 0 {
            break;
        }
        done += PAGE;
    }
    done as u32
}

/// Writes return addresses found by frame pointers, leaf first, beginning with the call's own.
/// Returns the number of bytes written.
#[inline(always)]
pub fn walk<const N: usize>(call: &Call, frame: &Frame, frames: *mut u8) -> u32 {
    if frame.at_entry {
        return walk_from_entry::<N>(call, frame, frames);
    }
    // SAFETY: `frames` has N bytes of reserved ring space.
    let bytes =
        unsafe { bpf_get_stack(call.raw(), frames.cast(), N as u32, BPF_F_USER_STACK as u64) };
    if bytes < 0 { 0 } else { bytes as u32 }
}

/// At the entry, the kernel's walk begins with the function itself and misses the caller: no frame
/// pointer leads to the call's return address yet. Some kernels insert that address.
#[inline(always)]
fn walk_from_entry<const N: usize>(call: &Call, frame: &Frame, frames: *mut u8) -> u32 {
    let mut first = [0u64; 2];
    // SAFETY: the array has 16 bytes.
    let bytes =
        unsafe { bpf_get_stack(call.raw(), (&raw mut first).cast(), 16, BPF_F_USER_STACK as u64) };
    let skipped = if bytes == 16 && first[1] == frame.ip { 2 } else { 1 };
    // SAFETY: `frames` has N bytes of reserved ring space.
    unsafe { frames.cast::<u64>().write(frame.ip) };
    // SAFETY: N is more than 8.
    let rest = unsafe { frames.add(8) };
    let flags = BPF_F_USER_STACK as u64 | skipped;
    // SAFETY: `rest` has N - 8 bytes of reserved ring space.
    let bytes = unsafe { bpf_get_stack(call.raw(), rest.cast(), N as u32 - 8, flags) };
    if bytes < 0 { 8 } else { bytes as u32 + 8 }
}
