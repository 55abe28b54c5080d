//! The kernel's verdict: a child installs the program and makes the call.

use std::io;
use std::mem::MaybeUninit;

use libc::sock_filter;
use sampler_inject::filter::Call;

/// What became of the child's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The kernel did not take the program.
    NotInstalled,
    /// The call returned this.
    Returned(i64),
    /// The child was killed by this signal.
    Killed(i32),
}

/// One child's answer to one call.
pub(crate) fn ask(program: &[sock_filter], call: &Call) -> Answer {
    let mut pipe = [0; 2];
    // SAFETY: the array has room for two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let [reader, writer] = pipe;
    // SAFETY: the child makes system calls only, and ends by one.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", io::Error::last_os_error());
    if child == 0 {
        answer_as_child(program, call, writer);
    }
    close(writer);
    let result = read(reader);
    close(reader);
    let mut status = 0;
    // SAFETY: waits for the child of above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    match (libc::WIFSIGNALED(status), result) {
        (true, _) => Answer::Killed(libc::WTERMSIG(status)),
        (false, Some(result)) => Answer::Returned(result),
        (false, None) => Answer::NotInstalled,
    }
}

/// The address behind the `syscall` instruction that [`make`] uses.
pub(crate) fn address_of_call() -> u64 {
    let call = Call { nr: libc::SYS_getpid as u64, args: [0; 6], ip: 0 };
    make(&call).1
}

fn answer_as_child(program: &[sock_filter], call: &Call, writer: i32) -> ! {
    if install(program) {
        let result = make(call).0.to_ne_bytes();
        // SAFETY: the bytes are readable.
        unsafe { libc::write(writer, result.as_ptr().cast(), result.len()) };
    }
    // SAFETY: ends the child without running anything of the parent.
    unsafe { libc::_exit(0) }
}

fn install(program: &[sock_filter]) -> bool {
    let program =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: no core file is left of a child that is killed.
    let is_quiet = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) } == 0;
    // SAFETY: concerns this child only.
    let is_humble = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0;
    // SAFETY: the program is readable, and the kernel checks it.
    let installed =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &program) };
    is_quiet && is_humble && installed == 0
}

/// Makes a call. Returns its result, and the address behind its instruction.
#[inline(never)]
fn make(call: &Call) -> (i64, u64) {
    let [rdi, rsi, rdx, r10, r8, r9] = call.args;
    let (result, address): (i64, u64);
    // SAFETY: the call is `getpid`, which touches no memory.
    unsafe {
        std::arch::asm!(
            "lea {address}, [rip + 2f]",
            "syscall",
            "2:",
            address = out(reg) address,
            inout("rax") call.nr as i64 => result,
            in("rdi") rdi, in("rsi") rsi, in("rdx") rdx, in("r10") r10, in("r8") r8, in("r9") r9,
            out("rcx") _, out("r11") _,
        );
    }
    (result, address)
}

fn read(reader: i32) -> Option<i64> {
    let mut result = MaybeUninit::<i64>::uninit();
    // SAFETY: there is room for eight bytes.
    let length = unsafe { libc::read(reader, result.as_mut_ptr().cast(), 8) };
    // SAFETY: the child has written all eight.
    (length == 8).then(|| unsafe { result.assume_init() })
}

fn close(descriptor: i32) {
    // SAFETY: the descriptor is ours and is not used again.
    unsafe { libc::close(descriptor) };
}
