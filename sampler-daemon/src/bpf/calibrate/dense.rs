//! A loop that does nothing but allocate and free, with a trap in each round: what such a loop has to lose.
//!
//! Without a trap a round begins before the one before it is done, and with one it cannot: so it is timed as a whole without calls of the ground, and between traps with
//! them. What the reading of the counter itself takes in between is that of rounds that do nothing.

use super::behind::{between, called_at_once};
use crate::bpf::sys::ground::{Function, Ground};
use crate::bpf::sys::tsc;
use std::hint::black_box;

/// Rounds of a loop.
const ROUNDS: u64 = 256;
/// The first ones of a loop find what the one before has left.
const COLD: u64 = 32;
/// Bytes of blocks.
const BYTES: usize = 64;

/// What loops took for each round, in ticks of the counter.
pub(super) struct Loops {
    /// Without traps.
    pub(super) own: f64,
    /// More with them.
    pub(super) added: f64,
}

/// Allocates and frees.
fn allocate() {
    black_box(Vec::<u8>::with_capacity(black_box(BYTES)));
}

/// Runs them.
pub(super) fn look(ground: &Ground) -> Loops {
    let with = |of, round: fn(u64)| between(|| called_at_once(ground, of), 0..ROUNDS, COLD, round);
    let own = alone();
    let empty = with(Function::CLOCKED_TWIN, |_| ());
    let trapped = with(Function::CLOCKED, |_| allocate());
    Loops { own, added: trapped - empty - own }
}

/// Ticks for each round of the loop alone: the best of a few, since nothing makes it faster than it is.
fn alone() -> f64 {
    let run = || {
        let begin = tsc::now();
        (0..ROUNDS).for_each(|_| allocate());
        tsc::now().saturating_sub(begin)
    };
    let best = (0..4).map(|_| run()).filter(|ticks| *ticks > 0).min();
    best.unwrap_or(0) as f64 / ROUNDS as f64
}
