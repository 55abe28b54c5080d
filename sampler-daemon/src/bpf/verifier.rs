//! The verifier's effort for a program. The verifier gives up after processing a million
//! instructions (`BPF_COMPLEXITY_LIMIT_INSNS`). The number of instructions processed for a program
//! differs between kernels.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Logs (`RUST_LOG=verifier=debug`) how many instructions the verifier has processed for a loaded
/// program. Linux 5.16 and later report the number.
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
