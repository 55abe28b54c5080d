//! Whether a return probe ends processes with a system call filter (seccomp).
//!
//! Since Linux 6.11 a return probe replaces the return address by code that makes a system call,
//! `uretprobe`. Older filters do not know this call, and most filters end a process for an unknown
//! call.
//! Linux 6.14 lets the call pass filters (commit cf6cb56ef244, "seccomp: passthrough uretprobe
//! systemcall without filtering"). Stable updates of the kernels in between do so too: the version
//! does not decide.

use super::sys;
use std::sync::OnceLock;

/// `__NR_uretprobe` of x86-64.
const URETPROBE: u32 = 335;

/// Whether return probes pass filters on this machine. The test runs once: a child makes the call
/// under a filter against it.
///
/// The filter's signal is SIGSYS. If the call passes, the kernel sends SIGILL, since the call does
/// not come from a return probe's code. Any other result counts as "does not pass".
pub fn returns_pass() -> bool {
    static PASS: OnceLock<bool> = OnceLock::new();
    *PASS.get_or_init(|| {
        let ended = sys::filtered::ended_by(URETPROBE);
        tracing::debug!(?ended, "asked whether return probes pass filters for system calls");
        matches!(ended, Ok(Some(libc::SIGILL)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seccomp_pass_for_returns_is_detected() {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let mut numbers = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let pass = returns_pass();
        // Between these versions, stable updates decide.
        assert!(pass || version < (6, 14), "{release}");
        assert!(!pass || version >= (6, 11), "{release} has no such call");
    }
}
