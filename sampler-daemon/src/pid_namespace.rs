//! The pid namespace of the daemon (pid_namespaces(7)). A process id is valid in one namespace
//! only, and `/proc` shows the ids of the namespace in which it was mounted.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::str::SplitAsciiWhitespace;

/// `PROC_PID_INIT_INO` of `include/linux/proc_ns.h`.
const INITIAL: u64 = 0xefff_fffc;

/// The daemon's pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PidNamespace {
    /// The kernel's first namespace: helpers and tracepoints use the same pids as `/proc`.
    Initial,
    /// Another namespace, with this inode.
    Inner(u64),
}

/// `/proc` belongs to another namespace.
#[derive(Debug, thiserror::Error)]
#[error(
    "/proc shows the processes of another pid namespace than samplerd's, so that a pid would mean another process (mount samplerd's own: unshare --mount-proc; or run it in the host's pid namespace: docker run --pid=host)"
)]
pub struct ForeignProc;

impl PidNamespace {
    /// The daemon's namespace.
    ///
    /// # Errors
    /// If `/proc` shows the processes of another namespace.
    pub fn of_daemon() -> Result<PidNamespace, ForeignProc> {
        // In a `/proc` of a namespace without this process there is no `/proc/self`.
        let status = fs::read_to_string("/proc/self/status").map_err(|_| ForeignProc)?;
        if is_foreign(&status) {
            return Err(ForeignProc);
        }
        // A kernel without namespaces has only one.
        let inode = fs::metadata("/proc/self/ns/pid").map_or(INITIAL, |of| of.ino());
        Ok(if inode == INITIAL { PidNamespace::Initial } else { PidNamespace::Inner(inode) })
    }
}

/// The pids of a process by the text of its `/proc/PID/status`: one for the namespace of `/proc`,
/// and one for each inner namespace down to the process's own. `None` on a kernel without
/// namespaces.
pub fn pids(status: &str) -> Option<SplitAsciiWhitespace<'_>> {
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(pids.split_ascii_whitespace())
}

/// Whether `/proc` is of another namespace.
fn is_foreign(status: &str) -> bool {
    pids(status).is_some_and(|pids| pids.count() != 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_pid_namespaces_have_several_pids() {
        assert!(!is_foreign("Name:\ta\nNSpid:\t4121\nNSpgid:\t1\n"));
        assert!(is_foreign("Name:\ta\nNSpid:\t4121\t7\nNSpgid:\t1\n"));
        assert!(!is_foreign("Name:\ta\n"), "a kernel without namespaces");
        assert!(PidNamespace::of_daemon().is_ok(), "the tests' own");
    }
}
