//! The signal handler that answers the parser's forbidden system calls.
//!
//! blazesym opens files by their paths, which the parser may not do. The kernel sends SIGSYS
//! instead, and the handler asks samplerd for the file.

#![allow(unsafe_code, reason = "a signal handler reads and writes the registers of a system call")]

use super::wire;
use rustix::io::Errno;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, IntoRawFd as _, OwnedFd};

/// Installs the handler for this process's forbidden system calls.
pub(super) fn install() -> io::Result<()> {
    // The handle is created here, because a signal handler must not allocate.
    let _ = io::stdin();
    // SAFETY: all zero is a `sigaction` without a handler, flags and mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = answer as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler has the signature that SA_SIGINFO asks for; the old action is not
    // requested.
    let result = unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes descriptors that whoever started samplerd has left open.
pub(super) fn close_others() {
    let first: libc::c_uint = 3;
    // SAFETY: this process owns no descriptors except the three standard streams.
    unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
}

/// Puts the result into the register in which the system call would have returned it.
extern "C" fn answer(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the interrupted context, and restores it when the handler returns.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let registers = &mut context.uc_mcontext.gregs;
    let register = |name: c_int| registers[name as usize];
    let path = |name: c_int| register(name) as *const c_char;
    let result = match register(libc::REG_RAX) {
        libc::SYS_open => opened(path(libc::REG_RDI)).map(|file| file.into_raw_fd().into()),
        libc::SYS_openat => opened(path(libc::REG_RSI)).map(|file| file.into_raw_fd().into()),
        libc::SYS_stat => status(path(libc::REG_RDI), register(libc::REG_RSI)),
        libc::SYS_newfstatat => status(path(libc::REG_RSI), register(libc::REG_RDX)),
        libc::SYS_statx => {
            let (mask, buffer) = (register(libc::REG_R10), register(libc::REG_R8));
            extended_status(path(libc::REG_RSI), mask, buffer)
        }
        // There is no directory and no link.
        _ => Err(Errno::NOENT),
    };
    let result = result.unwrap_or_else(|error| -i64::from(error.raw_os_error()));
    registers[libc::REG_RAX as usize] = result;
}

fn opened(path: *const c_char) -> Result<OwnedFd, Errno> {
    // SAFETY: system calls with a path are given a string that ends with a zero byte.
    let path = unsafe { CStr::from_ptr(path) };
    wire::ask_for_file(io::stdin().as_fd(), path.to_bytes())
}

/// fstat(2) of the file at a path.
fn status(path: *const c_char, buffer: i64) -> Result<i64, Errno> {
    let file = opened(path)?;
    // SAFETY: the caller has passed this buffer for the same struct.
    let result = unsafe { libc::syscall(libc::SYS_fstat, file.as_raw_fd(), buffer) };
    if result == 0 { Ok(0) } else { Err(Errno::IO) }
}

/// statx(2) of the file at a path.
fn extended_status(path: *const c_char, mask: i64, buffer: i64) -> Result<i64, Errno> {
    let file = opened(path)?;
    let (number, of_itself) = (file.as_raw_fd(), libc::AT_EMPTY_PATH);
    let empty = c"".as_ptr();
    // SAFETY: the caller has passed this buffer for the same struct, and this mask.
    let result = unsafe { libc::syscall(libc::SYS_statx, number, empty, of_itself, mask, buffer) };
    if result == 0 { Ok(0) } else { Err(Errno::IO) }
}
