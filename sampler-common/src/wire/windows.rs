//! The window of a process: a clock of progress, and a gate that decides whether allocations are
//! counted.

/// Clock and gate of a process with windows; value of the array `WINDOWS`, by slot.
///
/// The kernel opens and closes the gate at ticks of the clock. So the length of a window depends
/// neither on the allocations in it nor on when the daemon runs.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct WindowState {
    /// Number of the [`Gate`].
    pub gate: u64,
    /// Ticks in the program's own code.
    pub clock: u64,
    /// Tick at which the daemon is woken to attach, while the gate is [`Gate::Waiting`].
    pub due: u64,
    /// Tick at which the window opens; it opens later if the probes are attached later.
    pub open_at: u64,
    /// Ticks until the window ends.
    pub left: u64,
    /// Explicit padding, 0.
    pub pad: [u64; 3],
    /// Addresses of probes, padded with 0. A tick at a probe, or just behind a probe, may have been
    /// delayed by the trap and is not counted.
    pub probes: [u64; PROBE_ADDRESSES],
}

/// Number of probe addresses that the clock knows.
pub const PROBE_ADDRESSES: usize = 32;

/// Bytes behind a probed instruction at which a tick may have been delayed by its trap.
pub const TRAP_SHADOW_BYTES: u64 = 16;

/// Time after the return of a followed call in which a tick behind the call may have been delayed,
/// in nanoseconds.
pub const RETURN_SHADOW_NS: u64 = 20_000;

const _: () = assert!(size_of::<WindowState>() == 320);

/// The state of a window. The daemon changes it to `Shut`, `Waiting` and `Ready`; the clock makes
/// the other changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Gate {
    /// No window is planned.
    Shut = 0,
    /// The clock runs towards the window.
    Waiting = 1,
    /// The daemon attaches the probes.
    Due = 2,
    /// The probes are attached. The window opens at its tick, or at the next tick if its tick has
    /// passed.
    Ready = 3,
    /// Allocations are profiled.
    Open = 4,
    /// The window has ended.
    Over = 5,
}

impl Gate {
    /// The gate with this number; an unknown number is `Shut`.
    pub const fn from_number(number: u64) -> Gate {
        match number {
            1 => Gate::Waiting,
            2 => Gate::Due,
            3 => Gate::Ready,
            4 => Gate::Open,
            5 => Gate::Over,
            _ => Gate::Shut,
        }
    }
}
