//! The duty cycle of a process: its clock of progress, and the gate that lets its allocations be seen for a part of the time.

/// What a process has at most this budget for; value of the array `DUTIES`, by slot.
///
/// The gate is opened and closed by the clock itself, in the kernel: a window begins at one of its ticks, the `lead`-th, and ends at the `left`-th after
/// it, or at the first step of a word behind either ([`crate::duty::Steps`]), whatever the daemon does meanwhile. So the length of a window in progress does not depend on what is allocated in it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Duty {
    /// Number of the [`Gate`].
    pub gate: u64,
    /// Ticks in the program's own code.
    pub clock: u64,
    /// Those among them that came while the fine clock ran on their CPU, see [`crate::duty::Clock`].
    pub beside: u64,
    /// Tick at which the daemon is to be told, with [`Gate::Waiting`].
    pub due: u64,
    /// Ticks until the window ends, or a step is waited for that ends it: fewer than none then.
    pub left: u64,
    /// Ticks of the fine clock since the daemon was told, until the window begins.
    pub passed: u64,
    /// Whether the fine clock moves the gate from `Ready` on: 1, or 0 where it is the same that counts progress.
    pub fine: u64,
    /// Which of those the window begins with, see [`crate::duty::Lead`]; where probes are there later, it begins late.
    pub lead: u64,
    /// Calls of each marker since the gate opened, or while it is about to, see [`crate::duty::Marks`].
    pub marks: [u64; MARKERS],
    /// Calls of all of them until the gate closes, from when they are probed on.
    pub marks_left: u64,
    /// Bytes that the process had read and written when its window began to be seen, see [`crate::duty::Tally`]; [`UNKNOWN_TALLY`] where nobody knows.
    pub opened: u64,
    /// The same when its window ended.
    pub closed: u64,
    /// Addresses of words of its memory that count its work, 0 where there are fewer.
    pub words: [u64; WORDS],
    /// What they were then, their lower half; [`UNKNOWN_TALLY`] where they could not be read.
    pub words_opened: [u64; WORDS],
    /// The same when its window ended.
    pub words_closed: [u64; WORDS],
    /// Address of the word at whose steps the window begins and ends, 0: it does at ticks. See [`crate::duty::Steps`].
    pub step_at: u64,
    /// What that was at the tick from which on a step is waited for.
    pub step_from: u64,
    /// Number of the [`Phase`].
    pub phase: u64,
    /// Ticks in which a step is waited for, at most.
    pub patience: u64,
    /// Ticks until the window ends when it began to be seen.
    pub left_first: u64,
    /// Its ends that are at steps.
    pub steps: u64,
    /// Explicit padding, 0.
    pub pad: [u64; 5],
    /// Addresses of probes, 0 where there are fewer: ticks at them or just behind do not count.
    pub spots: [u64; SPOTS],
}

/// In place of what a process has read and written: it has more threads than are looked at, or the kernel does not say. And in place of a word of its memory that is not there.
pub const UNKNOWN_TALLY: u64 = u64::MAX;

/// Words of a process's memory that may count its work at a time.
pub const WORDS: usize = 6;

/// Functions of a process that may be probed as markers at a time.
pub const MARKERS: usize = 8;

/// Addresses of probes that the clock knows; a process with more functions that allocate has its rarest ones unknown.
pub const SPOTS: usize = 32;

/// What a window of so many ticks loses by beginning late. It ends at its time, but so that half of it is left: few ticks that stand for many would say
/// nothing.
#[inline(always)]
pub const fn missed(ticks: u64, late: u64) -> u64 {
    if late < ticks / 2 { late } else { ticks / 2 }
}

/// A tick of the fine clock on a CPU within so long means that it runs there, nanoseconds: more than two of its periods where ticks are dear.
pub const FINE_SHADOW_NS: u64 = 1_000_000;

const _: () = assert!(size_of::<Duty>() == 640);

/// Where the gate of a process stands. The daemon makes the moves to `Shut`, `Waiting` and `Ready`, back to `Due` from what markers were counted in, from `Ready` and `Open`
/// to where the process sleeps, and back from where it is awake; the clock makes the others, calls of markers that to `Over` if they are too many, whoever meets the step that ends a window that one too, and calls of whatever is probed those
/// from where it sleeps to where it is awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Gate {
    /// Nothing is to happen.
    Shut = 0,
    /// The clock goes on to `due`.
    Waiting = 1,
    /// It is there: the daemon may attach.
    Due = 2,
    /// Probes are attached: the window begins with the tick that is settled, or if that has passed with the next one.
    Ready = 3,
    /// It is in its window: allocations are seen, as its [`Phase`] has it.
    Open = 4,
    /// The window has ended.
    Over = 5,
    /// The process stands still in its window, and the fine clock does, too: nothing is seen or counted.
    Asleep = 6,
    /// It goes on, and its window as soon as the fine clock does.
    Awake = 7,
    /// The process stands still with its probes attached, before its window; the fine clock does, too.
    ReadyAsleep = 8,
    /// It goes on, and so will the fine clock.
    ReadyAwake = 9,
}

impl Gate {
    /// The gate with this number; what is none is shut.
    pub const fn from_number(number: u64) -> Gate {
        match number {
            1 => Gate::Waiting,
            2 => Gate::Due,
            3 => Gate::Ready,
            4 => Gate::Open,
            5 => Gate::Over,
            6 => Gate::Asleep,
            7 => Gate::Awake,
            8 => Gate::ReadyAsleep,
            9 => Gate::ReadyAwake,
            _ => Gate::Shut,
        }
    }
}

/// How far a window is that begins and ends at [steps](crate::duty::Steps); of others it is always [`Phase::Seen`]. The clock and whoever hits a probe make the moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Phase {
    /// Allocations are seen.
    Seen = 0,
    /// It has come to its beginning: nothing is seen until the next step.
    Begins = 1,
    /// It has come to its end: they are seen until the next step.
    Ends = 2,
    /// A step has come, or is not waited for any more, and somebody makes the move.
    Moves = 3,
}

/// Bytes behind a probed instruction in which a tick may gather that fell due in its trap.
pub const SPOT_BYTES: u64 = 16;

/// Longest time after the return of a sampled call in which a tick behind it does not count, nanoseconds.
pub const RETURN_SHADOW_NS: u64 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_have_their_numbers() {
        let all = [Gate::Shut, Gate::Waiting, Gate::Due, Gate::Ready, Gate::Open, Gate::Over];
        let sleep = [Gate::Asleep, Gate::Awake, Gate::ReadyAsleep, Gate::ReadyAwake];
        for gate in all.into_iter().chain(sleep) {
            assert_eq!(Gate::from_number(gate as u64), gate);
        }
        assert_eq!(Gate::from_number(77), Gate::Shut);
    }
}
