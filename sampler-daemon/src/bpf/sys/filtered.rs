//! A child process under a system call filter ([seccomp]) that makes one call.
//!
//! [seccomp]: https://man7.org/linux/man-pages/man2/seccomp.2.html

use std::io;

/// Offset of the system call's number in `struct seccomp_data`.
const NUMBER: u32 = 0;

/// Forks a child that makes the system call `number`, without arguments. The child is under a
/// filter that ends processes for this call and for no other. Returns the signal that ended the
/// child. `None`: no signal ended the child, or it could not have the filter.
pub(in crate::bpf) fn ended_by(number: u32) -> io::Result<Option<i32>> {
    // SAFETY: the child runs only `call_and_exit`, which does not return and uses nothing that
    // another thread may have locked.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => call_and_exit(number),
        child => wait(child),
    }
}

/// Runs in the child. Makes system calls only: it allocates no memory and takes no lock.
fn call_and_exit(number: u32) -> ! {
    let filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NUMBER, 0),
        // Jumps to the last statement unless the number matches.
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    let program: *const libc::sock_fprog = &program;
    // SAFETY: affects only this child, which then leaves no core file.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
    // SAFETY: affects only this child. Without this flag, a filter needs more rights than samplerd
    // may have.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the program and its instructions are on this stack, and are only read.
    if unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, program) } == 0 {
        // SAFETY: the call ends this child or returns a number.
        unsafe { libc::syscall(number.into()) };
    }
    // SAFETY: ends this child without running the parent's exit handlers.
    unsafe { libc::_exit(0) }
}

/// A filter instruction. A comparison that fails skips `otherwise` instructions.
fn statement(code: u32, k: u32, otherwise: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: otherwise, k }
}

fn wait(child: libc::pid_t) -> io::Result<Option<i32>> {
    let mut status = 0;
    loop {
        // SAFETY: our own child, which nobody else waits for; the status is a live integer.
        if unsafe { libc::waitpid(child, &mut status, 0) } == child {
            return Ok(libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seccomp_filter_ends_the_child_only() {
        for number in [libc::SYS_getppid, libc::SYS_getuid] {
            assert_eq!(ended_by(number as u32).unwrap(), Some(libc::SIGSYS));
        }
    }
}
