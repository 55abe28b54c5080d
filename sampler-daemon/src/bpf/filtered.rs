//! Whether a return probe ends processes that are under a filter for system calls.
//!
//! Since Linux 6.11 what a return probe puts in place of the return address makes a system call, `uretprobe`. Filters made before know nothing of
//! it, and most end a process for what they do not know. Linux 6.14 lets it pass them (commit cf6cb56ef244, "seccomp: passthrough
//! uretprobe systemcall without filtering"), and so do stable updates of the kernels in between: the version does not tell.

use super::sys;
use std::sync::OnceLock;

/// `__NR_uretprobe` of x86-64.
const URETPROBE: u32 = 335;

/// Whether return probes pass filters here: asked once, by a child that makes the call under a filter against it. The filter's signal is
/// SIGSYS. Where the call passes, the kernel answers with SIGILL, since it does not come from where a return probe makes it. Whatever
/// else happens is no good sign.
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
        // In between stable updates decide.
        assert!(pass || version < (6, 14), "{release}");
        assert!(!pass || version >= (6, 11), "{release} has no such call");
    }
}
