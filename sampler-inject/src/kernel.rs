//! System calls without a safe interface: ptrace(2), waitpid(2) with `__WALL`, and the scheduler.
//!
//! This file alone has `unsafe`. Each request that changes a thread counts as a step
//! ([`crate::steps`]).
//!
//! Reference: ptrace(2); Linux kernel/ptrace.c, include/uapi/linux/ptrace.h.
#![allow(unsafe_code, reason = "ptrace(2) and waitpid(2) take pointers")]

use crate::steps;
use libc::{c_void, pid_t, sock_filter, user_regs_struct};
use std::io;
use std::ptr::null_mut;

/// Number of a thread.
pub type Tid = pid_t;

/// `ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND`, `ERESTART_RESTARTBLOCK` of
/// include/linux/errno.h: results that only a tracer sees.
pub const RESTARTS: [i64; 4] = [-512, -513, RESTART_UNLESS_HANDLED, RESTART_BY_BLOCK];
/// `ERESTARTNOHAND`: the kernel makes the call again, unless a handler runs. Then the call returns
/// `EINTR`.
pub const RESTART_UNLESS_HANDLED: i64 = -514;
/// `ERESTART_RESTARTBLOCK`: `restart_syscall` goes on with the rest of a timeout.
pub const RESTART_BY_BLOCK: i64 = -516;

/// Bit in a stop's signal that marks a stop at a system call (`PTRACE_O_TRACESYSGOOD`).
const SYSCALL_BIT: i32 = 0x80;
/// `PTRACE_EVENT_STOP`
const EVENT_STOP: i32 = 128;

/// `PTRACE_SECCOMP_GET_FILTER` (Linux 4.4)
const GET_SECCOMP_FILTER: libc::c_uint = 0x420c;
/// `PTRACE_O_SUSPEND_SECCOMP` (Linux 4.3)
const SUSPEND_SECCOMP: i32 = 1 << 21;

/// `struct ptrace_rseq_configuration`
#[repr(C)]
#[derive(Default)]
struct RseqConfiguration {
    address: u64,
    bytes: u32,
    signature: u32,
    flags: u32,
    padding: u32,
}
/// `PTRACE_GET_RSEQ_CONFIGURATION` (Linux 5.13)
const GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;

/// `struct ptrace_sud_config`
#[repr(C)]
#[derive(Default)]
struct DispatchConfig {
    mode: u64,
    selector: u64,
    offset: u64,
    length: u64,
}
/// `PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG` (Linux 6.4)
const GET_DISPATCH_CONFIG: libc::c_uint = 0x4211;

/// Change of state of a traced thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The thread stopped where it was interrupted, or with its whole process.
    Interrupted,
    /// The thread stopped at the entry or the exit of a system call.
    Syscall,
    /// The thread is about to get this signal.
    Signal(i32),
    /// The thread has ended.
    Gone,
}

fn request(
    request: libc::c_uint,
    tid: Tid,
    address: usize,
    data: *mut c_void,
) -> io::Result<libc::c_long> {
    // SAFETY: callers pass what the request takes. `data` is null, a number, or memory of the size
    // that `address` or the request says.
    let result = unsafe { libc::ptrace(request, tid, address as *mut c_void, data) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn act(what: libc::c_uint, tid: Tid, data: usize) -> io::Result<()> {
    let done = request(what, tid, 0, data as *mut c_void).map(drop);
    steps::step();
    done
}

/// Attaches to a thread without stopping it.
///
/// Succeeds for a thread that this process already traces. An earlier attempt that gave up may have
/// left such threads.
///
/// # Errors
/// If the kernel refuses.
pub fn seize(tid: Tid) -> io::Result<()> {
    match act(libc::PTRACE_SEIZE, tid, libc::PTRACE_O_TRACESYSGOOD as usize) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) && is_traced_by_us(tid) => Ok(()),
        seized => seized,
    }
}

/// Whether the calling thread traces another one. The kernel names the tracer's thread (proc(5),
/// `TracerPid`).
fn is_traced_by_us(tid: Tid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.and_then(|pid| pid.trim().parse().ok())
        == Some(rustix::thread::gettid().as_raw_nonzero().get())
}

/// Suspends the seccomp filters of a stopped thread until it is detached.
/// Best effort: the option takes a kernel with checkpoint and restore
/// (`CONFIG_CHECKPOINT_RESTORE`).
pub fn suspend_seccomp(tid: Tid) {
    let options = libc::PTRACE_O_TRACESYSGOOD | SUSPEND_SECCOMP;
    let _ = act(libc::PTRACE_SETOPTIONS, tid, options as usize);
}

/// Stops an attached thread where it is.
///
/// # Errors
/// If the kernel refuses.
pub fn interrupt(tid: Tid) -> io::Result<()> {
    act(libc::PTRACE_INTERRUPT, tid, 0)
}

/// Lets a stopped thread run on, and delivers a signal (0: none).
///
/// # Errors
/// If the kernel refuses.
pub fn resume(tid: Tid, signal: i32) -> io::Result<()> {
    act(libc::PTRACE_CONT, tid, signal as usize)
}

/// Detaches from a stopped thread, and delivers a signal (0: none).
///
/// # Errors
/// If the kernel refuses.
pub fn detach(tid: Tid, signal: i32) -> io::Result<()> {
    act(libc::PTRACE_DETACH, tid, signal as usize)
}

/// Returns the registers of a stopped thread.
///
/// # Errors
/// If the kernel refuses.
pub fn registers(tid: Tid) -> io::Result<user_regs_struct> {
    // SAFETY: plain numbers, for which zeros are valid.
    let mut registers: user_regs_struct = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETREGS, tid, 0, (&raw mut registers).cast())?;
    Ok(registers)
}

/// Sets the registers of a stopped thread.
///
/// # Errors
/// If the kernel refuses.
pub fn set_registers(tid: Tid, registers: &user_regs_struct) -> io::Result<()> {
    let data = std::ptr::from_ref(registers).cast_mut().cast();
    let done = request(libc::PTRACE_SETREGS, tid, 0, data).map(drop);
    steps::step();
    done
}

/// Returns the blocked signals of a stopped thread, one bit each.
///
/// # Errors
/// If the kernel refuses.
pub fn blocked_signals(tid: Tid) -> io::Result<u64> {
    let mut mask = 0u64;
    request(libc::PTRACE_GETSIGMASK, tid, size_of::<u64>(), (&raw mut mask).cast())?;
    Ok(mask)
}

/// Sets the blocked signals of a stopped thread.
///
/// # Errors
/// If the kernel refuses.
pub fn set_blocked_signals(tid: Tid, mut mask: u64) -> io::Result<()> {
    let data = (&raw mut mask).cast();
    let done = request(libc::PTRACE_SETSIGMASK, tid, size_of::<u64>(), data).map(drop);
    steps::step();
    done
}

/// Reads eight bytes of memory by ptrace, which also works where /proc/PID/mem does not.
///
/// # Errors
/// If the bytes are not mapped.
pub fn peek(tid: Tid, address: u64) -> io::Result<u64> {
    let mut word = 0u64;
    // SAFETY: the raw system call stores the word through its fourth argument.
    let result = unsafe {
        libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKDATA, tid, address, &raw mut word)
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(word) }
}

/// Writes eight bytes of memory by ptrace.
///
/// # Errors
/// If the bytes are not mapped.
pub fn poke(tid: Tid, address: u64, word: u64) -> io::Result<()> {
    let done = request(libc::PTRACE_POKEDATA, tid, address as usize, word as *mut c_void).map(drop);
    steps::step();
    done
}

/// Returns the seccomp programs of a stopped thread, the latest first.
///
/// # Errors
/// If the kernel does not return them: the request takes a kernel with checkpoint and restore.
pub fn seccomp_programs(tid: Tid) -> io::Result<Vec<Vec<sock_filter>>> {
    let mut programs = Vec::new();
    loop {
        let get = |data| request(GET_SECCOMP_FILTER, tid, programs.len(), data);
        let length = match get(null_mut()) {
            Ok(length) => length as usize,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(programs),
            Err(error) => return Err(error),
        };
        let mut program = vec![sock_filter { code: 0, jt: 0, jf: 0, k: 0 }; length];
        get(program.as_mut_ptr().cast())?;
        programs.push(program);
    }
}

/// Returns the address of a stopped thread's `struct rseq`; 0: it has none.
///
/// # Errors
/// If the kernel does not support the request (before Linux 5.13).
pub fn rseq_address(tid: Tid) -> io::Result<u64> {
    let mut of = RseqConfiguration::default();
    let bytes = size_of_val(&of);
    request(GET_RSEQ_CONFIGURATION, tid, bytes, (&raw mut of).cast())?;
    Ok(of.address)
}

/// Whether a stopped thread has its system calls dispatched to itself (Syscall User Dispatch).
/// `None`: the kernel is older than 6.4.
#[must_use]
pub fn dispatches_syscalls(tid: Tid) -> Option<bool> {
    let mut config = DispatchConfig::default();
    let bytes = size_of_val(&config);
    request(GET_DISPATCH_CONFIG, tid, bytes, (&raw mut config).cast()).ok()?;
    Some(config.mode != 0)
}

/// Waits for a change of a thread (−1: of any). `None`: nothing changed for a moment.
///
/// The wait sleeps in the kernel, so that the thread finds a processor. A timer's signal ends the
/// wait.
///
/// # Errors
/// If this process traces no such thread.
pub fn wait(tid: Tid) -> io::Result<Option<(Tid, Change)>> {
    static TICKS: std::sync::Once = std::sync::Once::new();
    TICKS.call_once(start_ticks);
    let mut status = 0;
    // SAFETY: stores a number.
    let found = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL) };
    match found {
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            error => Err(error),
        },
        tid => Ok(Some((tid, change(status)))),
    }
}

/// Returns the change of a thread, without waiting. `None`: nothing changed.
///
/// # Errors
/// If this process does not trace the thread.
pub fn poll(tid: Tid) -> io::Result<Option<Change>> {
    let mut status = 0;
    // SAFETY: stores a number.
    let found = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) };
    match found {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ => Ok(Some(change(status))),
    }
}

/// Microseconds between two ticks, and so between two checks of a deadline.
const TICK_US: i64 = 1000;

/// Starts a timer whose signal interrupts this process again and again.
fn start_ticks() {
    extern "C" fn tick(_: i32) {}
    // SAFETY: plain numbers, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = tick as *const () as usize;
    // SAFETY: reads the structure; the handler does nothing. SA_RESTART is absent, so that waits
    // end.
    unsafe { libc::sigaction(libc::SIGALRM, &raw const action, null_mut()) };
    let every = libc::timeval { tv_sec: 0, tv_usec: TICK_US };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: reads the structure.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, null_mut()) };
}

fn change(status: i32) -> Change {
    if !libc::WIFSTOPPED(status) {
        return Change::Gone;
    }
    let signal = libc::WSTOPSIG(status);
    match (signal, status >> 16) {
        (_, EVENT_STOP) => Change::Interrupted,
        (signal, 0) if signal == libc::SIGTRAP | SYSCALL_BIT => Change::Syscall,
        (signal, _) => Change::Signal(signal),
    }
}

/// Gives this process a real-time priority, or takes it away again. Best effort.
pub fn set_urgent(is_urgent: bool) {
    let policy = if is_urgent { libc::SCHED_RR } else { libc::SCHED_OTHER };
    let parameter = libc::sched_param { sched_priority: i32::from(is_urgent) };
    // SAFETY: reads the structure.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses_are_decoded() {
        let stop = |signal: i32, event: i32| event << 16 | signal << 8 | 0x7f;
        assert_eq!(change(stop(libc::SIGTRAP, EVENT_STOP)), Change::Interrupted);
        assert_eq!(change(stop(libc::SIGSTOP, EVENT_STOP)), Change::Interrupted);
        assert_eq!(change(stop(libc::SIGTRAP | SYSCALL_BIT, 0)), Change::Syscall);
        assert_eq!(change(stop(libc::SIGSEGV, 0)), Change::Signal(libc::SIGSEGV));
        assert_eq!(change(0), Change::Gone);
        assert_eq!(change(libc::SIGKILL), Change::Gone);
    }
}
