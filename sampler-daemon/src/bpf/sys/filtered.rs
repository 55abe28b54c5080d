//! A child under a filter for system calls ([seccomp]), which is there for one call.
//!
//! [seccomp]: https://man7.org/linux/man-pages/man2/seccomp.2.html

use std::io;

/// Offset of the system call's number in `struct seccomp_data`.
const NUMBER: u32 = 0;

/// A child makes the system call `number`, without arguments, under a filter that ends processes for it and for nothing else. The signal that
/// ended the child; `None`: it was not ended by one, or could not have the filter.
pub(in crate::bpf) fn ended_by(number: u32) -> io::Result<Option<i32>> {
    // SAFETY: the child runs `call_and_exit` alone, which does not return and uses nothing that another thread may have locked.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => call_and_exit(number),
        child => wait(child),
    }
}

/// Nothing but system calls: no memory is asked for, and no lock.
fn call_and_exit(number: u32) -> ! {
    let filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NUMBER, 0),
        // To the last one unless it is the number.
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    let program: *const libc::sock_fprog = &program;
    // SAFETY: of this child alone: it leaves no core file.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
    // SAFETY: of this child alone: without it a filter takes more rights than samplerd may have.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the program and its instructions are on this stack, and only read.
    if unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, program) } == 0 {
        // SAFETY: it ends this child, or comes back as a number.
        unsafe { libc::syscall(number.into()) };
    }
    // SAFETY: ends this child without what the parent has registered for its own end.
    unsafe { libc::_exit(0) }
}

/// An instruction; a comparison that fails jumps over `otherwise` others.
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
