//! The clock that the limit of samples reads at each sampled call: the coarse monotonic clock, from
//! the kernel's vDSO without libc.
//!
//! The kernel's timer interrupt writes this clock to a word in memory, every 1 to 10 ms. Reading
//! the word makes no system call and reads no time-stamp counter. A system call other than the
//! permitted ones kills a process in strict seccomp mode. Reading the time-stamp counter kills such
//! a process too, and one that has forbidden it by `PR_SET_TSC`.
//!
//! Reference: vdso(7); Linux lib/vdso/gettimeofday.c, `do_coarse`.

use crate::next::in_any_file;
use crate::settings::SETTINGS;
use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::Ordering::Relaxed;

const CLOCK_MONOTONIC_COARSE: c_int = 6;

/// `struct timespec`
#[repr(C)]
struct Time {
    seconds: i64,
    nanoseconds: i64,
}

type GetTime = unsafe extern "C" fn(c_int, *mut Time) -> c_int;

/// Finds the clock function. Without a vDSO the pointer stays null, and there is no time.
pub(crate) fn take() {
    SETTINGS.clock.store(in_any_file(c"__vdso_clock_gettime"), Relaxed);
}

/// Nanoseconds since an unspecified time. They may go back if a process was frozen and thawed
/// elsewhere.
pub(crate) fn now_ns() -> Option<u64> {
    let clock: *mut c_void = SETTINGS.clock.load(Relaxed);
    if clock.is_null() {
        return None;
    }
    // SAFETY: the function of that name is of this type.
    let clock = unsafe { transmute::<*mut c_void, GetTime>(clock) };
    let mut time = Time { seconds: 0, nanoseconds: 0 };
    // SAFETY: it writes to the structure that it is given.
    let error = unsafe { clock(CLOCK_MONOTONIC_COARSE, &raw mut time) };
    let seconds = (time.seconds as u64).wrapping_mul(1_000_000_000);
    (error == 0).then_some(seconds.wrapping_add(time.nanoseconds as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn the_vdso_clock_advances() {
        take();
        let (start, first) = (Instant::now(), now_ns().expect("this kernel has a vDSO"));
        while now_ns().is_some_and(|now| now < first + 50_000_000) {
            assert!(start.elapsed() < Duration::from_secs(10), "it stands still");
        }
        assert!(start.elapsed() > Duration::from_millis(30), "{:?}", start.elapsed());
    }
}
