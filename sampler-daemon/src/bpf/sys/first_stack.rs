//! Where the kernel takes the stack of this process's first thread to begin (`prctl(2)`, `PR_SET_MM_START_STACK`).
//!
//! The eBPF program asks for it to know how much of a stack there is. The calibration's stack is no thread's: while samples are calibrated, it is
//! said to be the first one, so that their price is that of other programs' stacks.

use rustix::process::{VirtualMemoryMapAddress, set_virtual_memory_map_address};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Says so until it is dropped.
pub(in crate::bpf) struct FirstStack {
    before: NonNull<c_void>,
}

impl FirstStack {
    /// The stack that begins at `begin` is the first. `None` where the kernel does not let us say so (without `CAP_SYS_RESOURCE`): the ends of stacks are then
    /// looked for, and samples are taken for a microsecond dearer than they are.
    pub(super) fn beginning_at(begin: NonNull<u8>) -> Option<FirstStack> {
        let before = NonNull::new(std::ptr::without_provenance_mut(start_stack()?))?;
        set(begin.cast()).then_some(FirstStack { before })
    }
}

impl Drop for FirstStack {
    fn drop(&mut self) {
        set(self.before);
    }
}

/// Field 28 of `/proc/PID/stat`, `startstack` (proc_pid_stat(5)). The name before it may contain anything.
fn start_stack() -> Option<usize> {
    let stat = String::from_utf8_lossy(&std::fs::read("/proc/self/stat").ok()?).into_owned();
    stat.rsplit_once(") ")?.1.split_ascii_whitespace().nth(25)?.parse().ok()
}

/// Whether the kernel agreed.
fn set(address: NonNull<c_void>) -> bool {
    // SAFETY: the kernel keeps the address to show it in /proc and for programs like ours; nothing is read or written there.
    unsafe { set_virtual_memory_map_address(VirtualMemoryMapAddress::StackStart, Some(address)) }
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::ground::Ground;
    use procfs::process::Process;

    #[test]
    fn the_start_stack_is_replaced_and_restored() {
        let now = || Process::myself().unwrap().stat().unwrap().startstack;
        let before = now();
        let ground = Ground::new().unwrap();
        match ground.as_first_stack() {
            Some(said) => {
                assert_ne!(now(), before);
                drop(said);
            }
            None => println!("without CAP_SYS_RESOURCE: not tested"),
        }
        assert_eq!(now(), before);
    }
}
