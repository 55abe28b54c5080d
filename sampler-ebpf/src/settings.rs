//! Constants that the daemon sets before the program is loaded.

use core::ptr::read_volatile;

macro_rules! settings {
    ($($(#[$doc:meta])* $getter:ident: $name:ident = $default:expr;)*) => {$(
        #[unsafe(no_mangle)]
        static $name: u64 = $default;

        $(#[$doc])*
        #[inline(always)]
        pub fn $getter() -> u64 {
            // SAFETY: a static; volatile, because the loader replaces the value after compilation.
            unsafe { read_volatile(&raw const $name) }
        }
    )*};
}

settings! {
    /// 1: stacks are walked by frame pointers in the kernel; 0: stack snapshots.
    frame_pointers: FRAME_POINTERS = 0;
    /// Index of the largest tier in `SNAPSHOT_TIERS`.
    largest_tier: LARGEST_TIER = 3;
    /// 1: stacks are looked up in the stack cache.
    stack_cache: STACK_CACHE = 0;
    /// 1: frees are probed and the live set is kept.
    track_live: TRACK_LIVE = 1;
    /// 64 − log2 of the number of filter counters.
    filter_shift: FILTER_SHIFT = 48;
    /// 1: every process is profiled, and takes a slot at its first allocation.
    everyone: EVERYONE = 0;
    /// Live samples at which the daemon is asked to thin the live set.
    live_high: LIVE_HIGH = 1 << 20;
    /// Live samples beyond `LIVE_HIGH` for each further halving of the chance of admission.
    live_step: LIVE_STEP = 1 << 16;
    /// Size of the ring if processes share it; 0: one process has the whole ring.
    shared_ring_bytes: SHARED_RING_BYTES = 0;
    /// Bytes waiting in the ring at which the daemon is woken. Below this number the daemon polls.
    wake_bytes: WAKE_BYTES = 1 << 20;
    /// Inode of the daemon's pid namespace; 0: the initial namespace, in which [`crate::pid`] needs
    /// no offsets.
    pid_namespace: PID_NAMESPACE = 0;
    /// Offset of `group_leader` in `struct task_struct`.
    task_leader: TASK_LEADER = 0;
    /// Offset of `thread_pid` in `struct task_struct`.
    task_thread_pid: TASK_THREAD_PID = 0;
    /// Offset of `level` in `struct pid`.
    pid_level: PID_LEVEL = 0;
    /// Offset of `numbers` in `struct pid`.
    pid_numbers: PID_NUMBERS = 0;
    /// Offset of `ns.inum` in `struct pid_namespace`.
    namespace_inode: NAMESPACE_INODE = 0;
    /// Offset of `pid` in `struct task_struct`; only [`crate::fork`] uses it.
    task_pid: TASK_PID = 0;
    /// Offset of `tgid` in `struct task_struct`.
    task_tgid: TASK_TGID = 0;
    /// Offset of `signal` in `struct task_struct`; 0: not known.
    task_signal: TASK_SIGNAL = 0;
    /// Offset of `live` in `struct signal_struct`.
    signal_live: SIGNAL_LIVE = 0;
    /// Offset of `thread_info.syscall_work` in `struct task_struct`.
    syscall_work: SYSCALL_WORK = 0;
    /// Flags in `syscall_work` under which system calls do not reach the kernel.
    diverting_work: DIVERTING_WORK = 0;
    /// Offset of `mm` in `struct task_struct`; 0: not known.
    task_mm: TASK_MM = 0;
    /// Offset of `start_stack` in `struct mm_struct`.
    start_stack: START_STACK = 0;
    /// Offset of `thread.fsbase` in `struct task_struct`; 0: not known.
    task_fs_base: TASK_FS_BASE = 0;
    /// 1: allocations are recorded in windows only.
    windows: WINDOW_GATES = 0;
    /// Always 0 ([`crate::registers::Call::in_main`]).
    tail_call: TAIL_CALL = 0;
    /// Size of the ring for back-pressure; 0: no back-pressure.
    pressure_ring_bytes: PRESSURE_RING_BYTES = 0;
}
