//! Outcomes: every way in which a sample or a probed call can end, with one counter each.
//!
//! The eBPF program counts the first [`KERNEL_OUTCOMES`], per CPU and process; the daemon counts
//! the rest. Every loss has a counter here.

macro_rules! outcomes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// How a sample, or a probed call, ended.
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
    /// A call refused for its arguments (`calloc` overflow): it is in no total.
    Refused = "refused",
    /// A call that another probe counts, because its allocator calls another probed function
    /// (`realloc(NULL, n)` → `malloc`).
    Nested = "nested",
    /// A sampled or followed call that found no room in the table of calls that have not returned
    /// yet.
    PendingFull = "pending_full",
    /// A sampled or followed call whose return was never seen: its thread has called again from the
    /// same place (`longjmp`).
    PendingReplaced = "pending_replaced",
    /// A sampled or followed call counted at its entry, because a return probe would kill its
    /// thread (Syscall User Dispatch). What its block holds is not known.
    ReturnUnprobed = "return_unprobed",
    /// A return that belongs to a program image replaced by `execve`.
    StaleReturn = "stale_return",
    /// A sampled allocation whose record found no room in the ring: its stack is lost.
    RingFull = "ring_full",
    /// Like `ring_full`, and the table of lost sizes was full too: size and rate are lost.
    LostCellsFull = "lost_cells_full",
    /// A sampled allocation that found the live set full.
    LiveFull = "live_full",
    /// A sampled allocation that a nearly full live set did not admit; admitted samples stand for
    /// it too.
    LiveDeclined = "live_declined",
    /// An address entered in the live set twice: the free in between was missed.
    LiveReplaced = "live_replaced",
    /// A sampled block that was freed.
    Freed = "freed",
    /// A free of a sampled block whose record found no room in the ring; repaired from the live
    /// set.
    FreeRingFull = "free_ring_full",
    /// A failed `realloc` whose sampled old block was put back.
    Restored = "restored",
    /// A failed `realloc` whose sampled old block could not be put back.
    RestoreFailed = "restore_failed",
    /// A pointer or stack in user memory that could not be read.
    ReadFault = "read_fault",
    /// An `otel_memory` allocation with impossible values: size 0, no pointer, or more bytes than
    /// it stands for.
    UsdtRefused = "usdt_refused",
    /// An `otel_memory` allocation beyond what a process may send in a second.
    UsdtFlood = "usdt_flood",
    /// A mapping call of which a record was sent.
    MappingSeen = "mapping_seen",
    /// A mapping call whose stack was not copied: the process makes too many of them.
    MappingFlooded = "mapping_flooded",
    /// A mapping call whose record found no room in the ring: what is mapped may be wrong from then
    /// on.
    MappingRingFull = "mapping_ring_full",
    /// A process event (`execve`) whose record found no room in the ring; repaired by polling.
    EventRingFull = "event_ring_full",
    /// Like `ring_full`, for a process that had more than its share of a ring that others need as
    /// well.
    RingShare = "ring_share",
    /// Like `free_ring_full`, for a process that had more than its share of the ring.
    FreeRingShare = "free_ring_share",
    /// A sample that found the preloaded library's table of blocks full. Its end was reported at
    /// once, so held numbers are a lower bound.
    LibraryFull = "library_full",
    /// A block of a process with the library whose end was missed, and reported when its address
    /// was allocated again.
    LibraryLate = "library_late",
    /// A request for 0 bytes that the library sampled: the library cannot report it.
    LibraryEmpty = "library_empty",
    /// A call that the library sampled and that allocated nothing.
    LibraryFailed = "library_failed",
    /// A sample of a Python process, in a thread that did not hold the interpreter: it has native
    /// frames only.
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
    /// A complete stack that was not copied, because the kernel side knew it.
    StackCacheHit = "stack_cache_hit",
    /// A stack that reached its root through code without unwind information, by its frame pointer:
    /// frames may be missing.
    UnwindGuessed = "unwind_guessed",
    /// A stack cut because the snapshot ended.
    UnwindTruncated = "unwind_truncated",
    /// A stack cut at a frame without unwind information, or with a rule that does not lead to a
    /// caller: it needs memory or a register that is not known, or leads nowhere.
    UnwindFailed = "unwind_failed",
    /// A stack in which Python frames stand for frames of the interpreter.
    PythonStack = "python_stack",
    /// A stack with more Python frames than are read (128). `[python frames cut]` or native frames
    /// stand for the outer ones.
    PythonCut = "python_cut",
    /// A stack of a Python process that keeps some of the interpreter's frames: Python frames could
    /// not be read, or another interpreter of the process evaluates them.
    PythonUnread = "python_unread",
    /// A stack whose Python frames did not fit its native frames: it has native frames only.
    PythonUnmatched = "python_unmatched",
    /// A stack that led to code in no known mapping: the code was unmapped before the sample was
    /// read.
    NoMapping = "no_mapping",
    /// A sample without its stack, because its process or its user had used its share of the stack
    /// table or of the rows.
    StackTableFull = "stack_table_full",
    /// Stacks of exited processes that were discarded, because they had filled a quarter of the
    /// stack table. Their samples have no stack any more.
    StacksDiscarded = "stacks_discarded",
    /// A sampled allocation that found the time slots full: it has no stack in profiles of a
    /// window.
    WindowsFull = "windows_full",
    /// A sampled block that found the life tables full: its lifetime has no stack.
    LifetimesFull = "lifetimes_full",
    /// A free record of a sample that the store does not hold: its record was lost, or it was
    /// repaired before.
    FreedUnknown = "freed_unknown",
    /// Live samples ended by `execve`.
    EndedByExec = "ended_by_exec",
    /// Live samples ended by the exit of their process.
    EndedByExit = "ended_by_exit",
    /// Live samples of a process whose injected sampler was removed: nothing reports their ends any
    /// more.
    Orphaned = "orphaned",
    /// Live samples whose free record was lost, removed by reconciling with the live set.
    Reconciled = "reconciled",
    /// Mapped ranges that found the table of ranges full: mapped totals are a lower bound.
    MappingUnheld = "mapping_unheld",
    /// A moved mapping of which only the beginning was seen: its current address is unknown.
    MappingUnpaired = "mapping_unpaired",
    /// Samples not sent to a slow `StreamSamples` client.
    StreamLagged = "stream_lagged",
    /// A sample of a `--windows` window that did not end (exit, `execve`), or found no room.
    /// Neither the sample nor its window counts.
    WindowCut = "window_cut",
    /// A sample of an excluded or refused process, taken before the process was identified.
    Excluded = "excluded",
    /// A sample of the preloaded library that the library dropped because no reader was attached.
    LibraryUndelivered = "library_undelivered",
}

/// Outcomes counted by the eBPF program: the variants up to and including `PythonElsewhere`.
pub const KERNEL_OUTCOMES: usize = Outcome::PythonElsewhere as usize + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_explained_in_the_documents() {
        let text = include_str!("../../docs/formats.md");
        for outcome in Outcome::ALL {
            let name = outcome.name();
            assert!(text.contains(&format!("\n| `{name}` | ")), "{name} is not in docs/formats.md");
        }
    }
}
