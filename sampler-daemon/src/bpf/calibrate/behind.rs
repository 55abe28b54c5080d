//! What a trap adds to the code behind it: typical code with traps in between, its own time by the processor's counter, against the same without; and
//! the same of a loop that does nothing but allocate, which has less to lose.
//!
//! A probed function of the ground reads the counter right behind its trap, and the one before is read right before the call, when all that came before is done,
//! so that nothing of the trap itself is in between. Traps are taken some functions deep, as programs call malloc: where the kernel's own
//! calls push out what the processor knows of the callers, as on processors whose returns are guarded in software, each return misses.

use super::batch::cpu_time;
use super::dense;
use super::typical::{KINDS, Typical};
use crate::bpf::sys::ground::{Function, Ground};
use crate::bpf::sys::tsc;
use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Steps of each kind of code in a run.
const STEPS: u64 = 120;
/// The first ones of a run find what the one before has left.
const COLD: u64 = 16;
/// Batches at the start: four runs of each kind, with traps and without.
pub(super) const ROUNDS: u64 = 11;
/// Fewer batches say nothing: so many are made however long that takes, and no more in a later look.
pub(super) const LEAST_ROUNDS: u64 = 5;
/// CPU time after which no more are begun.
const MOST: Duration = Duration::from_millis(100);
/// Steps that took so much longer than most were interrupted.
const INTERRUPTED: u64 = 32;
/// Bytes of stack above a call.
const STACK: usize = 1024;
/// Nanoseconds of a tick of the counter, between which all processors are.
const TICK_NS: (f64, f64) = (0.05, 10.0);

/// When a call began and its trap was over, by the processor's counter.
pub(super) struct Trapped {
    begin: u64,
    end: u64,
}

/// What traps were found to add, nanoseconds, by batches; none where the counter says nothing.
#[derive(Default)]
pub(super) struct Added {
    /// To typical code.
    pub(super) typical: Vec<f64>,
    /// To a loop that does nothing but allocate.
    pub(super) dense: Vec<f64>,
    /// What such a loop takes for each trap without any.
    pub(super) own: Vec<f64>,
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

/// A call of a function that allocates, from right above it.
pub(super) fn called_at_once(ground: &Ground, of: Function) -> Trapped {
    allocate(ground, of)
}

/// Measures it.
pub(super) fn batches(ground: &Ground, rounds: u64) -> Added {
    let mut typical = Typical::new();
    let (cpu_begin, begin, first) = (cpu_time(), Instant::now(), tsc::now());
    let mut added = Added::default();
    for round in 0..rounds {
        if round >= LEAST_ROUNDS && cpu_time() - cpu_begin > MOST {
            break;
        }
        let each = (0..KINDS).map(|kind| difference(ground, &mut typical, kind, round));
        added.typical.push(each.sum::<f64>() / KINDS as f64);
        let loops = dense::look(ground);
        added.dense.push(loops.added);
        added.own.push(loops.own);
    }
    let passed = tsc::now().checked_sub(first).filter(|ticks| *ticks > 0);
    let tick_ns = passed.map_or(0.0, |ticks| begin.elapsed().as_nanos() as f64 / ticks as f64);
    if !(TICK_NS.0..TICK_NS.1).contains(&tick_ns) {
        return Added::default();
    }
    let Added { typical, dense, own } = &mut added;
    [typical, dense, own].into_iter().flatten().for_each(|of| *of *= tick_ns);
    added
}

/// Ticks of the counter that a step takes more with a trap than without: what comes second finds predictors and caches that the first has taught,
/// so that both come first once.
fn difference(ground: &Ground, typical: &mut Typical, kind: usize, round: u64) -> f64 {
    let mut own = |of, half| own(ground, typical, kind, (2 * round + half) * STEPS, of);
    let with_first = own(Function::CLOCKED, 0) - own(Function::CLOCKED_TWIN, 0);
    let without = own(Function::CLOCKED_TWIN, 1);
    (with_first + own(Function::CLOCKED, 1) - without) / 2.0
}

/// Ticks of the counter that a step takes on average.
fn own(ground: &Ground, typical: &mut Typical, kind: usize, from: u64, of: Function) -> f64 {
    let steps = from..from + STEPS;
    between(|| statement(ground, of), steps, from + COLD, |at| typical.step(kind, at))
}

/// Ticks of the counter that a step takes on average, from one on, between the ends of two traps.
pub(super) fn between(
    call: impl Fn() -> Trapped,
    steps: Range<u64>,
    from: u64,
    mut step: impl FnMut(u64),
) -> f64 {
    let mut before = call();
    let mut each = Vec::with_capacity((steps.end - steps.start) as usize);
    for at in steps {
        step(at);
        let trapped = call();
        // None that came to another processor, whose counter is behind.
        let ticks = trapped.begin.checked_sub(before.end);
        each.extend(ticks.filter(|_| at >= from));
        before = trapped;
    }
    each.sort_unstable();
    let most = each.get(each.len() / 2).map_or(0, |median| INTERRUPTED * median);
    each.retain(|of| *of <= most);
    each.iter().sum::<u64>() as f64 / each.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_common::cost::Measured;
    use std::time::{Duration, Instant};

    #[test]
    fn without_probes_nothing_is_added() {
        // The probed function has none here.
        let ground = Ground::new().expect("functions to call");
        let look = || {
            let Added { typical, dense, own } = batches(&ground, ROUNDS);
            assert!(typical.len() >= LEAST_ROUNDS as usize, "{typical:?}");
            [typical, dense, own].map(|of| Measured::of_batches(&of).expect("batches enough"))
        };
        // Tests beside it come and go, some for seconds: what is always added is added in each of many looks.
        let is_nothing = |of: &Measured| of.ns.abs() < 8.0 * of.error() + 5.0;
        let is_found =
            |looks: &[[Measured; 3]], at: usize| looks.iter().any(|of| is_nothing(&of[at]));
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut looks: Vec<[Measured; 3]> = Vec::new();
        while !(is_found(&looks, 0) && is_found(&looks, 1)) {
            assert!(Instant::now() < deadline, "{looks:?}");
            looks.push(look());
        }
        assert!(looks.iter().all(|of| (1.0..2000.0).contains(&of[2].ns)), "{looks:?}");
    }
}
