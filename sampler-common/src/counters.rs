//! Every way a sample, or a call that was looked at, can end: one counter each.
//!
//! The first [`KERNEL_OUTCOMES`] are counted by the eBPF program, per CPU and process; the rest
//! by the daemon. Nothing vanishes without being counted here.

macro_rules! outcomes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// How a sample, or a call that the probes looked at, ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Outcome { $($(#[$doc])* $variant,)* }

        impl Outcome {
            /// Every outcome, in the order of their numbers.
            pub const ALL: &'static [Outcome] = &[$(Outcome::$variant,)*];

            /// The name in `status`, json and metrics.
            pub const fn name(self) -> &'static str {
                match self { $(Outcome::$variant => $name,)* }
            }
        }
    };
}

outcomes! {
    /// A sampled allocation whose record reached the ring.
    Sampled = "sampled",
    /// A followed call that returned NULL or an error: nothing was allocated.
    Failed = "failed",
    /// A call refused on its arguments before it was charged (`calloc` overflow).
    Refused = "refused",
    /// A call left to the probe that its allocator calls next (`realloc(NULL, n)` → `malloc`).
    Nested = "nested",
    /// A sampled or followed call for which no pending entry was free.
    PendingFull = "pending_full",
    /// A sampled or followed call whose return was never seen, since its thread has called again from the same place (`longjmp`).
    PendingReplaced = "pending_replaced",
    /// A sampled or followed call counted at its entry, because a probe at its return would kill its thread (Syscall User Dispatch): what becomes of its block is not known.
    ReturnUnprobed = "return_unprobed",
    /// A return that belongs to a program image replaced by `execve`.
    StaleReturn = "stale_return",
    /// A sampled allocation whose record found no room in the ring: its stack is lost.
    RingFull = "ring_full",
    /// As `ring_full`, and there was no cell left to keep its size and rate.
    LostCellsFull = "lost_cells_full",
    /// A sampled allocation that found the live set full.
    LiveFull = "live_full",
    /// A sampled allocation that a nearly full live set did not admit; those that it admits count for it.
    LiveDeclined = "live_declined",
    /// An address entered in the live set twice: the free in between was missed.
    LiveReplaced = "live_replaced",
    /// A sampled block that was freed.
    Freed = "freed",
    /// A free of a sampled block whose record found no room in the ring (repaired from the live set).
    FreeRingFull = "free_ring_full",
    /// A failed `realloc` whose sampled old block was put back.
    Restored = "restored",
    /// A failed `realloc` whose sampled old block could not be put back.
    RestoreFailed = "restore_failed",
    /// A pointer or stack in user memory that could not be read.
    ReadFault = "read_fault",
    /// An `otel_memory` allocation whose values cannot be: size 0, no pointer, or more bytes than it stands for.
    UsdtRefused = "usdt_refused",
    /// An `otel_memory` allocation beyond what a process may send in a second.
    UsdtFlood = "usdt_flood",
    /// A mapping call of which a record was sent.
    MappingSeen = "mapping_seen",
    /// A mapping call whose stack was not copied: the process makes too many of them.
    MappingFlooded = "mapping_flooded",
    /// A mapping call whose record found no room in the ring: what is mapped may be wrong from then on.
    MappingRingFull = "mapping_ring_full",
    /// A process event (`execve`) whose record found no room in the ring (repaired by polling).
    EventRingFull = "event_ring_full",
    /// As `ring_full`, for a process that had more than its share of a ring that others need as well.
    RingShare = "ring_share",
    /// As `free_ring_full`, for such a process.
    FreeRingShare = "free_ring_share",
    /// A sample that found the preloaded library's table of blocks full: its end was reported at once, so what is held is a lower bound.
    LibraryFull = "library_full",
    /// A block of a process with the library whose end was missed: reported when its address came again.
    LibraryLate = "library_late",
    /// A request for no bytes that the library sampled: of these it cannot tell.
    LibraryEmpty = "library_empty",
    /// A call that the library sampled and that allocated nothing.
    LibraryFailed = "library_failed",
    /// A sample of a Python process, by a thread that did not hold the interpreter: it has native frames only.
    PythonElsewhere = "python_elsewhere",

    /// Live entries dropped when the live set was thinned.
    Thinned = "thinned",
    /// A record that could not be read: wrong length or kind.
    Malformed = "malformed",
    /// A record of a process slot that is no longer profiled.
    UnknownProcess = "unknown_process",
    /// A sampled call whose return was never seen (thread exit, `longjmp`, detach).
    ReturnLost = "return_lost",
    /// A stack unwound to its root.
    UnwindComplete = "unwind_complete",
    /// One of these that was not copied: the kernel side knew it again.
    StackCacheHit = "stack_cache_hit",
    /// A stack that reached its root through code without unwind information, by its frame pointer: frames may be missing.
    UnwindGuessed = "unwind_guessed",
    /// A stack cut because the snapshot ended.
    UnwindTruncated = "unwind_truncated",
    /// A stack cut because no unwind information covers a frame.
    UnwindFailed = "unwind_failed",
    /// A stack in which Python frames stand for frames of the interpreter.
    PythonStack = "python_stack",
    /// One of these with more Python frames than are read: of the outer ones native frames are shown.
    PythonCut = "python_cut",
    /// A stack of a Python process that keeps some of the interpreter's frames, because Python frames could not be read.
    PythonUnread = "python_unread",
    /// A stack whose Python frames did not fit its native frames: it has native frames only.
    PythonUnmatched = "python_unmatched",
    /// A stack that led to code in no known mapping: it was unmapped before the sample was read.
    NoMapping = "no_mapping",
    /// A sample without its stack, because its process had its share of the stack table or of the rows.
    StackTableFull = "stack_table_full",
    /// Stacks of exited processes that were given up, because these had filled a quarter of the stack table: their samples have no stack any more.
    StacksGivenUp = "stacks_given_up",
    /// A sampled allocation that found the time slots full: in windows it has no stack.
    WindowsFull = "windows_full",
    /// A sampled block that found the life tables full: its lifetime has no stack.
    LifetimesFull = "lifetimes_full",
    /// A free record of a sample that the store does not hold (its record was lost, or it was repaired before).
    FreedUnknown = "freed_unknown",
    /// Live samples ended by `execve`.
    EndedByExec = "ended_by_exec",
    /// Live samples ended by the exit of their process.
    EndedByExit = "ended_by_exit",
    /// Live samples of a process whose injected sampler was taken out: nothing reports their ends any more.
    Orphaned = "orphaned",
    /// Live samples whose free record was lost, removed by reconciling with the live set.
    Reconciled = "reconciled",
    /// Mapped ranges that found the table of ranges full: what is still mapped is a lower bound.
    MappingUnheld = "mapping_unheld",
    /// A moved mapping of which only the beginning was seen: it is not known where it is now.
    MappingUnpaired = "mapping_unpaired",
    /// Samples not sent to a slow `StreamSamples` client.
    StreamLagged = "stream_lagged",
    /// A sample of a window of `--max-overhead` that did not end (exit, `execve`), or had no room: it counts for nothing, and its window neither.
    WindowCut = "window_cut",
    /// A sample of an excluded or refused process, taken before it was known who that is.
    Excluded = "excluded",
    /// A sample of the preloaded library while nobody listened to it.
    LibraryUnheard = "library_unheard",
}

/// Outcomes counted by the eBPF program: the variants up to and including `PythonElsewhere`.
pub const KERNEL_OUTCOMES: usize = Outcome::PythonElsewhere as usize + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_explained_to_users() {
        let text = include_str!("../../docs/formats.md");
        for outcome in Outcome::ALL {
            let name = outcome.name();
            assert!(text.contains(&format!("\n| `{name}` | ")), "{name} is not in docs/formats.md");
        }
    }
}
