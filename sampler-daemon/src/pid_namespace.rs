//! The pid namespace of the daemon (pid_namespaces(7)): process ids mean something in one namespace only, and `/proc` shows those of the
//! namespace that it was mounted in.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// `PROC_PID_INIT_INO` of `include/linux/proc_ns.h`.
const INITIAL: u64 = 0xefff_fffc;

/// Where the daemon runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PidNamespace {
    /// In the kernel's first one: helpers and tracepoints speak of the same processes as `/proc`.
    Initial,
    /// In another one, with this inode.
    Inner(u64),
}

/// `/proc` is of another namespace.
#[derive(Debug, thiserror::Error)]
#[error(
    "/proc shows the processes of another pid namespace than samplerd's, so that a pid would mean another process (mount samplerd's own: unshare --mount-proc; or run it in the host's pid namespace: docker run --pid=host)"
)]
pub struct ForeignProc;

impl PidNamespace {
    /// The daemon's.
    ///
    /// # Errors
    /// If `/proc` shows the processes of another one.
    pub fn of_daemon() -> Result<PidNamespace, ForeignProc> {
        // There is no `/proc/self` in the `/proc` of a namespace that does not have us.
        let status = fs::read_to_string("/proc/self/status").map_err(|_| ForeignProc)?;
        if is_foreign(&status) {
            return Err(ForeignProc);
        }
        // A kernel without namespaces has one.
        let inode = fs::metadata("/proc/self/ns/pid").map_or(INITIAL, |of| of.ino());
        Ok(if inode == INITIAL { PidNamespace::Initial } else { PidNamespace::Inner(inode) })
    }
}

/// `NSpid` has our number in the namespace of `/proc`, and in each one further down to our own.
fn is_foreign(status: &str) -> bool {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| numbers.split_ascii_whitespace().count() != 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_for_each_namespace() {
        assert!(!is_foreign("Name:\ta\nNSpid:\t4121\nNSpgid:\t1\n"));
        assert!(is_foreign("Name:\ta\nNSpid:\t4121\t7\nNSpgid:\t1\n"));
        assert!(!is_foreign("Name:\ta\n"), "a kernel without namespaces");
        assert!(PidNamespace::of_daemon().is_ok(), "the tests' own");
    }
}
