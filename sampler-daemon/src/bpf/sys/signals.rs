//! Signals that a process does not hear.

/// From now on this process ignores what asks processes to end: a terminal, a service manager, `kill`.
pub(in crate::bpf) fn ignore_termination() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: `SIG_IGN` is no handler, so that nothing of ours runs in one.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
