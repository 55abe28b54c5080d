//! Signals that a process ignores.

/// Makes this process ignore, from now on, the signals by which a terminal, a service manager or
/// `kill` ends processes.
pub(in crate::bpf) fn ignore_termination() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: `SIG_IGN` is not a handler, so no code of ours runs in a handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
