//! What a fork changes: the child begins its countdown anew, with random numbers of its own. Without that a parent's children would all
//! sample the same calls.
//!
//! The table and the filter stay as they are: the child has the parent's blocks, and tells their ends as any other. Nothing needs to be
//! repaired, since nobody holds a lock.

use crate::next::weak;
use crate::thread::{Countdown, Dice};
use core::ffi::{c_int, c_void};
use sampler_common::sampling::Cell as _;

type Hook = unsafe extern "C" fn();
type Register =
    unsafe extern "C" fn(Option<Hook>, Option<Hook>, Option<Hook>, *mut c_void) -> c_int;

type RegisterAll = unsafe extern "C" fn(Option<Hook>, Option<Hook>, Option<Hook>) -> c_int;

/// Has libc say when there is one.
pub(crate) fn register() {
    // What `pthread_atfork` calls, which older glibcs have in no shared library.
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
    crate::boot::note_forked();
    crate::settings::SETTINGS.note_forked();
    Dice::reseed();
    Countdown.swap(0);
}
