//! Process events: exec and exit.

use crate::{atomic, maps, memo, pid, record, settings};
use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_get_current_task, bpf_probe_read_kernel};
use sampler_common::counters::Outcome;
use sampler_common::wire::{EXCLUDED, EXPECTED, RecordKind, Space};

/// `sched_process_exec(struct task_struct *task, pid_t old_pid, struct linux_binprm *program)`: a
/// process has a new program image. Every block of the old image is gone.
#[inline(always)]
pub fn exec(context: *mut c_void) {
    let leader = (bpf_get_current_pid_tgid() >> 32) as u32;
    let Some(pid) = pid::current() else { return };
    // SAFETY: the context of a raw tracepoint is the array of its three arguments.
    let argument = unsafe { context.cast::<u64>().add(1) };
    // SAFETY: as above; the arguments are 64-bit words.
    let thread = unsafe { *argument } as u32;
    // SAFETY: copied at once; a process keeps its slot while it lives.
    let Some(slot) = (unsafe { maps::TARGETS.get(pid) }).copied() else { return };
    let Some(process) = maps::PROCESSES.get_ptr_mut(slot) else {
        // An excluded process is classified again, by its new image.
        if slot == EXCLUDED
            && let Some(entry) = maps::TARGETS.get_ptr_mut(pid)
        {
            atomic::exchange_u32(entry, EXCLUDED, EXPECTED);
            memo::begin_epoch();
        }
        expected_exec();
        return;
    };
    if thread != leader {
        // The thread has taken the first thread's place. Links identify a process by its first
        // thread.
        // SAFETY: a field of a map value.
        atomic::fetch_add_u32(unsafe { &raw mut (*process).leader_changes }, 1);
    }
    // SAFETY: a field of a map value.
    let generation = atomic::fetch_add_u32(unsafe { &raw mut (*process).generation }, 1) + 1;
    let Some(totals) = maps::TOTALS.get_ptr_mut(slot) else { return };
    record::event(RecordKind::Exec, Space { slot, generation }, totals, Outcome::EventRingFull);
}

/// Reports a new image of a process without a slot. Nobody may have called its allocator before.
#[inline(always)]
fn expected_exec() {
    // The first slot always exists. Its totals count events that find no room in the ring.
    let Some(totals) = maps::TOTALS.get_ptr_mut(0) else { return };
    let nowhere = Space { slot: EXPECTED, generation: 0 };
    record::event(RecordKind::ExpectedExec, nowhere, totals, Outcome::EventRingFull);
}

/// Handles the exit of a thread. The target of a process without a slot is removed with the
/// process's last thread. For other processes the daemon is notified when the first thread exits,
/// and then checks whether it was the last.
#[inline(always)]
pub fn exit() {
    let thread = bpf_get_current_pid_tgid();
    let is_first = (thread >> 32) as u32 == thread as u32;
    let Some(pid) = pid::current() else { return };
    // SAFETY: copied at once; the entry of a process does not change while it exits.
    let Some(slot) = (unsafe { maps::TARGETS.get(pid) }).copied() else { return };
    let (Some(process), Some(totals)) =
        (maps::PROCESSES.get_ptr(slot), maps::TOTALS.get_ptr_mut(slot))
    else {
        if is_last(is_first) {
            // If the removal fails, the entry is already gone.
            let _ = maps::TARGETS.remove(pid);
            memo::begin_epoch();
        }
        return;
    };
    if !is_first {
        return;
    }
    // SAFETY: a field of a map value; the kernel side may be raising it, hence volatile.
    let generation = unsafe { core::ptr::read_volatile(&raw const (*process).generation) };
    record::event(RecordKind::Leaving, Space { slot, generation }, totals, Outcome::EventRingFull);
}

/// Whether no other thread of the process runs on. `signal->live` has been decremented before the
/// tracepoint (`do_exit` in `kernel/exit.c`). If the offset of `live` is not known, a process ends
/// with its first thread.
#[inline(always)]
fn is_last(is_first: bool) -> bool {
    let signal_at = settings::task_signal();
    if signal_at == 0 {
        return is_first;
    }
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task() };
    // SAFETY: the helper checks what it reads.
    let signal = unsafe { bpf_probe_read_kernel((task + signal_at) as *const u64) };
    let Ok(signal) = signal else { return is_first };
    // SAFETY: as above.
    let live = unsafe { bpf_probe_read_kernel((signal + settings::signal_live()) as *const i32) };
    live.map_or(is_first, |live| live <= 0)
}
