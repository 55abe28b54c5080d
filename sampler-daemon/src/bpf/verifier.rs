//! What the kernel's verifier has paid for a program: it gives up at a million instructions looked at (`BPF_COMPLEXITY_LIMIT_INSNS`), and
//! how many it looks at differs between kernels.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Notes (`RUST_LOG=verifier=debug`) how many instructions the verifier has looked at in a loaded program; Linux 5.16 and later say it.
pub(super) fn note(name: &str, program: BorrowedFd<'_>) {
    if let Some(count) = verified(program) {
        tracing::debug!(target: "verifier", "{name}: {count} instructions looked at");
    }
}

fn verified(program: BorrowedFd<'_>) -> Option<u64> {
    let about = format!("/proc/self/fdinfo/{}", program.as_raw_fd());
    let about = std::fs::read_to_string(about).ok()?;
    about.lines().find_map(|line| line.strip_prefix("verified_insns:")?.trim().parse().ok())
}
