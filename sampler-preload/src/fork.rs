//! What a fork changes: the child begins its countdown anew, with random numbers of its own.
//! Otherwise all children of a parent would sample the same calls.
//!
//! The table and the filter stay as they are. The child has the parent's blocks, and reports their
//! ends like those of its own blocks. Nothing needs repair, since this library has no locks.
//!
//! libc calls the handlers of this file at a fork. No handler runs in a child that is made past
//! libc's `fork` (by the system call, or `_Fork`), or in a process that was injected while it ran.
//! So there is a page that the kernel clears in every child. The library checks this page whenever
//! a request may be sampled. Such a child has the parent's countdown up to its first sample, and
//! numbers of its own from then on.

use crate::next::weak;
use crate::thread::{self, Countdown, ThreadRandom, mixed};
use crate::{clock, pages};
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use sampler_common::sampling::Cell as _;

/// Bit of [`DETECTION`]: the kernel clears [`MARK`] in children.
const IS_CLEARED: u64 = 1;
/// Bit of [`DETECTION`]: the processor has `rdrand`.
const HAS_RDRAND: u64 = 2;
/// Bit of ECX of CPUID's leaf 1: `rdrand` (Intel 64 and IA-32 Architectures Software Developer's
/// Manual, volume 2, CPUID).
const CPUID_RDRAND: u32 = 1 << 30;
/// Maximum number of `rdrand` attempts. A processor that has no random number ready after so many
/// attempts is broken (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1,
/// 7.3.17).
const RDRAND_TRIES: u32 = 10;

/// How children are recognized: [`IS_CLEARED`], [`HAS_RDRAND`]. The loader of an injected library
/// ([`crate::inject`]) or [`register`] writes it.
pub(crate) static DETECTION: AtomicU64 = AtomicU64::new(0);

/// A word on a page of its own: 1 in a process that is prepared, 0 in a new child.
#[repr(C, align(4096))]
pub(crate) struct Mark {
    pub(crate) word: AtomicU64,
}

/// The one mark.
pub(crate) static MARK: Mark = Mark { word: AtomicU64::new(0) };

type Hook = unsafe extern "C" fn();
type Register =
    unsafe extern "C" fn(Option<Hook>, Option<Hook>, Option<Hook>, *mut c_void) -> c_int;

type RegisterAll = unsafe extern "C" fn(Option<Hook>, Option<Hook>, Option<Hook>) -> c_int;

/// Registers the fork handlers with libc, and has the kernel clear [`MARK`] in children.
pub(crate) fn register() {
    if pages::clear_in_children(&raw const MARK as usize, size_of::<Mark>()) {
        let has_rdrand = __cpuid(1).ecx & CPUID_RDRAND != 0;
        MARK.word.store(1, Relaxed);
        DETECTION.store(IS_CLEARED | if has_rdrand { HAS_RDRAND } else { 0 }, Relaxed);
    }
    // The function that `pthread_atfork` calls. Older glibcs have `pthread_atfork` in no shared
    // library.
    let register = weak!("__register_atfork");
    let register_by_musl = weak!("pthread_atfork");
    if register != 0 {
        // SAFETY: the function of that name is of this type (glibc, nptl/register-atfork.c).
        let register = unsafe { core::mem::transmute::<usize, Register>(register) };
        // SAFETY: both hooks stay loaded; a failure leaves children with the parent's numbers.
        unsafe { register(Some(before), None, Some(child), core::ptr::null_mut()) };
    } else if register_by_musl != 0 {
        // SAFETY: the function of that name is of this type (POSIX).
        let register = unsafe { core::mem::transmute::<usize, RegisterAll>(register_by_musl) };
        // SAFETY: as above.
        unsafe { register(Some(before), None, Some(child)) };
    }
}

unsafe extern "C" fn before() {
    crate::boot::note_fork();
}

unsafe extern "C" fn child() {
    // Two threads that fork at the same time may have one number of [`before`], but have two stacks.
    prepare_child(thread::Mark::here());
    Countdown.swap(0);
}

/// Checks whether this process is a new child whose fork nobody has reported, and prepares it.
#[inline(always)]
pub(crate) fn prepare_new_child() {
    if DETECTION.load(Relaxed) != 0 && MARK.word.load(Relaxed) == 0 {
        prepare_unreported_child();
    }
}

#[cold]
#[inline(never)]
fn prepare_unreported_child() {
    prepare_child(random());
}

/// Several threads may call this function. Each draws numbers that no other thread has.
fn prepare_child(random: u64) {
    crate::boot::note_child(random);
    crate::settings::SETTINGS.note_forked();
    ThreadRandom::reseed();
    MARK.word.store(1, Relaxed);
}

/// A number that siblings do not share. The time-stamp counter is not read, since a process may
/// have forbidden that to itself.
fn random() -> u64 {
    let time = mixed(clock::now_ns().unwrap_or(0));
    if DETECTION.load(Relaxed) & HAS_RDRAND == 0 {
        return time;
    }
    (0..RDRAND_TRIES).find_map(|_| rdrand()).unwrap_or(time)
}

fn rdrand() -> Option<u64> {
    let number: u64;
    let is_valid: u8;
    // SAFETY: writes two registers; the loader or `register` has checked that this processor has it.
    unsafe {
        asm!("rdrand {}", "setc {}", out(reg) number, out(reg_byte) is_valid, options(nomem, nostack));
    }
    (is_valid != 0).then_some(number)
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::ThreadRandom;
    use sampler_common::sampling::Random as _;

    /// Two children of one parent, as the kernel leaves them: the same words, but a cleared mark.
    #[test]
    fn unreported_children_draw_numbers_of_their_own() {
        let has_rdrand = std::arch::is_x86_feature_detected!("rdrand");
        DETECTION.store(IS_CLEARED | if has_rdrand { HAS_RDRAND } else { 0 }, Relaxed);
        let draws = [(), ()].map(|()| {
            MARK.word.store(0, Relaxed);
            // The state that both children have from the parent.
            crate::boot::SEED.store(7, Relaxed);
            prepare_new_child();
            assert_eq!(MARK.word.load(Relaxed), 1);
            let seed = crate::boot::SEED.load(Relaxed);
            prepare_new_child();
            assert_eq!(crate::boot::SEED.load(Relaxed), seed, "it is a child only once");
            (seed, ThreadRandom.next())
        });
        DETECTION.store(0, Relaxed);
        assert_ne!(draws[0].0, draws[1].0);
        assert_ne!(draws[0].1, draws[1].1);
    }
}
