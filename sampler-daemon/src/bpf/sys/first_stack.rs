//! The start of this process's first stack, as the kernel knows it (`prctl(2)`,
//! `PR_SET_MM_START_STACK`).
//!
//! The eBPF program reads the start to know how many bytes of stack there are. The calibration's
//! stack does not belong to a thread. While samples are calibrated, the kernel has this stack as
//! the first one. So the measured price of samples is that of other programs' stacks.

use rustix::process::{VirtualMemoryMapAddress, set_virtual_memory_map_address};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Another start of the first stack, until it is dropped.
pub(in crate::bpf) struct FirstStack {
    before: NonNull<c_void>,
}

impl FirstStack {
    /// Sets the start of the first stack to `begin`. Returns `None` if the kernel refuses (without
    /// `CAP_SYS_RESOURCE`). The eBPF program then searches for the ends of stacks, and the price of
    /// samples is measured one microsecond too high.
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

/// Field 28 of `/proc/PID/stat`, `startstack` (proc_pid_stat(5)). The process name before it may
/// contain any bytes.
fn start_stack() -> Option<usize> {
    let stat = String::from_utf8_lossy(&std::fs::read("/proc/self/stat").ok()?).into_owned();
    stat.rsplit_once(") ")?.1.split_ascii_whitespace().nth(25)?.parse().ok()
}

/// Sets the start of the first stack. Returns whether the kernel accepted it.
fn set(address: NonNull<c_void>) -> bool {
    // SAFETY: the kernel keeps the address to show it in /proc and to programs like ours. Nothing
    // is read or written at the address.
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
