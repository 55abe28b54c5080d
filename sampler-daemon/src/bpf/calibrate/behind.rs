//! What a trap adds to the code behind it: typical code with traps in between, its own time by the processor's counter, against the same without.
//!
//! A probed function of the ground reads the counter right behind its trap, and the one before is read right before the call, so that nothing of the trap itself is in
//! between. Traps are taken some functions deep, as programs call malloc: where the kernel's own calls push out what the processor knows of the callers, as
//! on processors whose returns are guarded in software, each return misses.

use super::points::{probed_clocked, twin_clocked};
use super::typical::{KINDS, Typical};
use crate::bpf::sys::ground::{Function, Ground};
use crate::bpf::sys::tsc;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Steps of each kind of code in a batch.
const STEPS: u64 = 250;
/// The first ones of a batch find what the one before has left.
const COLD: u64 = 16;
/// Batches of each kind, with traps and without.
const ROUNDS: u64 = 11;
/// Steps that took so much longer than most were interrupted.
const INTERRUPTED: u64 = 32;
/// Bytes of stack above a call.
const STACK: usize = 1024;
/// CPU time that all of it takes at most.
const MOST: Duration = Duration::from_millis(100);

/// When a call began and its trap was over, by the processor's counter.
struct Trapped {
    begin: u64,
    end: u64,
}

/// Functions of which each calls the next, so that every return has another address.
macro_rules! callers {
    ($caller:ident) => {
        #[inline(never)]
        fn $caller(ground: &Ground, of: Function) -> Trapped {
            let begin = tsc::now();
            black_box(Trapped { begin, end: ground.call(of, STACK, [1, 0, 0]) })
        }
    };
    ($caller:ident $callee:ident $($more:ident)*) => {
        #[inline(never)]
        fn $caller(ground: &Ground, of: Function) -> Trapped {
            black_box($callee(ground, of))
        }
        callers! { $callee $($more)* }
    };
}

callers! { statement expression call assign append grow reserve allocate }

/// Nanoseconds that a trap adds, by batches.
pub(super) fn batches(ground: &Ground) -> Vec<f64> {
    let mut typical = Typical::new();
    let (begin, first) = (Instant::now(), tsc::now());
    let mut added = Vec::new();
    for round in 0..ROUNDS {
        let mut differences = 0.0;
        for kind in 0..KINDS {
            let mut own = |of| own(ground, &mut typical, kind, round * STEPS, of);
            let (with, without) = match round % 2 {
                0 => (own(probed_clocked()), own(twin_clocked())),
                _ => {
                    let without = own(twin_clocked());
                    (own(probed_clocked()), without)
                }
            };
            differences += with - without;
        }
        added.push(differences / KINDS as f64);
        if begin.elapsed() > MOST {
            break;
        }
    }
    let ns = begin.elapsed().as_nanos() as f64 / (tsc::now() - first).max(1) as f64;
    added.into_iter().map(|of| of * ns).collect()
}

/// Ticks of the counter that a step takes on average.
fn own(ground: &Ground, typical: &mut Typical, kind: usize, from: u64, of: Function) -> f64 {
    let mut before = statement(ground, of);
    let mut each = Vec::with_capacity(STEPS as usize);
    for at in from..from + STEPS {
        typical.step(kind, at);
        let trapped = statement(ground, of);
        each.push(trapped.begin.saturating_sub(before.end));
        before = trapped;
    }
    let mut sorted = each.split_off(COLD as usize);
    sorted.sort_unstable();
    let most = INTERRUPTED * sorted[sorted.len() / 2];
    sorted.retain(|of| *of <= most);
    sorted.iter().sum::<u64>() as f64 / sorted.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_probes_nothing_is_added() {
        // The probed functions have none here: with and without are the same, but for the order in which they come.
        let ground = Ground::new().expect("functions to call");
        let mut batches = batches(&ground);
        assert!(batches.len() >= 5, "{batches:?}");
        batches.sort_by(f64::total_cmp);
        let median = batches[batches.len() / 2];
        assert!(median.abs() < 60.0, "{batches:?}");
    }
}
