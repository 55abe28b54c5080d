//! The first call: finds the allocator behind us (the next in link order) and reads the interval.
//!
//! The first call may come from any thread, before any constructor, and more than once at the same
//! time. Every step can be repeated with the same result.

use crate::next::Files;
use crate::next_allocator::NEXT_ALLOCATOR;
use crate::settings::SETTINGS;
use crate::thread::mixed;
use crate::{clock, first, interval, operators, start};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};

/// Seed from the kernel's random bytes for this program image, 0 before the first call.
pub(crate) static SEED: AtomicU64 = AtomicU64::new(0);
/// Whether the allocator behind us has been found.
pub(crate) static IS_DONE: AtomicBool = AtomicBool::new(false);
/// Number of seeds that were given out.
static SEEDS_GIVEN: AtomicU64 = AtomicU64::new(1);

/// Finds the functions behind us and reads the start parameters.
#[cold]
pub fn boot() {
    // Libraries that are loaded later change nothing: a block goes back to the allocator that it
    // came from.
    if !IS_DONE.load(Acquire) {
        let files = Files::here();
        NEXT_ALLOCATOR.take(&files);
        first::take(&files);
        operators::take(&files);
        leave_to_another(&files);
        // The limit of samples holds from the first one on, also in constructors.
        clock::take();
        IS_DONE.store(true, Release);
    }
    let start = start::read();
    if SEED.load(Relaxed) == 0 {
        SEED.store(mixed(start.random) | 1, Relaxed);
    }
    let bytes = start.interval.and_then(interval::parse).unwrap_or(interval::DEFAULT_BYTES);
    SETTINGS.begin(interval::rate(bytes));
}

/// Leaves sampling to another copy of this library behind this one, since only one copy may sample.
/// The copy has another path: `sampler run` loads one, and the environment may have one already.
fn leave_to_another(files: &Files) {
    if !files.behind(c"__sampler_preload_malloc").is_null() {
        SETTINGS.leave();
    }
}

/// A number that was not given out before in this process.
pub fn seed() -> u64 {
    if SEED.load(Relaxed) == 0 {
        // A call may be sampled before any call was forwarded to the allocator: samplerd has set a
        // rate already.
        boot();
    }
    SEED.load(Relaxed)
        .wrapping_add(SEEDS_GIVEN.fetch_add(1, Relaxed).wrapping_mul(0xD6E8_FEB8_6659_FD93))
}

/// Called before a fork: the child gets other numbers than this process and than its other
/// children.
pub(crate) fn note_fork() {
    SEEDS_GIVEN.fetch_add(1, Relaxed);
}

/// Seeds a child that differs from some of its siblings by `random` only.
pub(crate) fn note_child(random: u64) {
    SEED.store(mixed(seed() ^ random) | 1, Relaxed);
}

pub(crate) unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    boot();
    // SAFETY: forwards the call.
    unsafe { NEXT_ALLOCATOR.malloc()(size) }
}

pub(crate) unsafe extern "C" fn free(block: *mut c_void) {
    boot();
    // SAFETY: forwards the call.
    unsafe { NEXT_ALLOCATOR.free()(block) }
}

pub(crate) unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    boot();
    // SAFETY: forwards the call.
    unsafe { NEXT_ALLOCATOR.realloc()(block, size) }
}

pub(crate) unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    boot();
    // SAFETY: forwards the call.
    unsafe { NEXT_ALLOCATOR.calloc()(count, size) }
}

pub(crate) unsafe extern "C" fn posix_memalign(
    place: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> c_int {
    boot();
    // SAFETY: forwards the call.
    unsafe { NEXT_ALLOCATOR.posix_memalign()(place, alignment, size) }
}

pub(crate) unsafe extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    boot();
    // SAFETY: forwards the call.
    unsafe { NEXT_ALLOCATOR.aligned_alloc()(alignment, size) }
}

pub(crate) unsafe extern "C" fn memalign(alignment: usize, size: usize) -> *mut c_void {
    boot();
    // SAFETY: forwards the call.
    unsafe { NEXT_ALLOCATOR.memalign()(alignment, size) }
}

pub(crate) unsafe extern "C" fn valloc(size: usize) -> *mut c_void {
    boot();
    // SAFETY: forwards the call.
    unsafe { NEXT_ALLOCATOR.valloc()(size) }
}

pub(crate) unsafe extern "C" fn pvalloc(size: usize) -> *mut c_void {
    boot();
    // SAFETY: forwards the call.
    unsafe { NEXT_ALLOCATOR.pvalloc()(size) }
}

pub(crate) unsafe extern "C" fn cfree(block: *mut c_void) {
    boot();
    // SAFETY: forwards the call.
    unsafe { NEXT_ALLOCATOR.cfree()(block) }
}

pub(crate) unsafe extern "C" fn free_sized(block: *mut c_void, size: usize) {
    boot();
    // SAFETY: forwards the call.
    unsafe { NEXT_ALLOCATOR.free_sized()(block, size) }
}

pub(crate) unsafe extern "C" fn free_aligned_sized(
    block: *mut c_void,
    alignment: usize,
    size: usize,
) {
    boot();
    // SAFETY: forwards the call.
    unsafe { NEXT_ALLOCATOR.free_aligned_sized()(block, alignment, size) }
}
